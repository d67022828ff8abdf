"""The page of the terms of service, a step of the dispatcher: accept the current version."""

from dataclasses import replace

from flask import redirect, request, url_for
from flask_login import login_required
from werkzeug.wrappers import Response

from sso import audit
from sso.endpoints import authorize, browser_session, page
from sso.endpoints.forms import TermsForm
from sso.extensions import db
from sso.services import agent_identity
from sso.services import terms as accepted_terms


@login_required
def terms() -> Response:
    """Ask the user to accept the current version, before an application or from the account."""
    pending, current = page.pending_request(), page.signed_in()
    version = accepted_terms.missing(current.user)
    validated = page.validate(pending)[0] if pending else None
    if version is None:  # accepted in another tab, or there is none any more
        return authorize.resume(pending) if pending else redirect(url_for("pages.account"), 303)
    form = TermsForm()
    if request.method == "POST" and form.decision.data == "cancel":
        if pending:
            return authorize.resume(replace(pending, denied=True))
        return redirect(url_for("pages.account"), 303)
    # A version that was not on the page is asked about now.
    if form.validate_on_submit() and form.version.data == version:
        accepted_terms.accept(audit.USER, current.user, version)
        browser_session.touch(current)
        db.session.commit()
        return authorize.resume(pending) if pending else redirect(url_for("pages.account"), 303)
    client = validated.client if validated else None
    return page.render(
        "terms.html",
        form=form,
        version=version,
        is_new=current.user.terms_version is None,
        client_name=agent_identity.title_of(client) if client else None,
        client_logo=page.logo_of(client),
        user=current.user,
    )
