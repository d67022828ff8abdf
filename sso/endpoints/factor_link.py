"""The page of an operator's link: lets somebody without access to mail add the first factor."""

from flask import redirect, request, url_for
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso import audit
from sso.endpoints import page
from sso.endpoints.forms import DecisionForm
from sso.extensions import db
from sso.mfa import policy
from sso.services import emailed_code, mail_links
from sso.web import browser_session, errors


def factor_link() -> Response:
    """Ask for a click; the link counts together with a fresh sign-in to its account."""
    visit = browser_session.current_session()
    found = mail_links.find(request.args.get("token", ""), mail_links.ENROLMENT)
    if found is None:
        return _dead()
    if visit is None or found[1] is None or found[1].id != visit.user.id:
        return _sign_in_first()
    if not policy.is_fresh(visit):
        return _sign_in_first()
    form = DecisionForm()
    if form.validate_on_submit():
        locked = policy.lock(visit)
        if locked is None:
            return _sign_in_first()
        if not mail_links.use(found[0], locked.user):
            db.session.rollback()
            return _dead()
        emailed_code.allow_enrolment(audit.USER, locked.user, locked.session, "link")
        db.session.commit()
        return redirect(url_for("pages.factors"), 303)
    return page.render("factor_link.html", form=form, user=visit.user)


def _dead() -> Response:
    return errors.page(
        gettext("It was used already, is too old, or is not whole."),
        status=410,
        title=gettext("This link does not work any more"),
        mend=gettext("Ask your administrator for a new one."),
        way_on=(gettext("Your account"), url_for("pages.account")),
    )


def _sign_in_first() -> Response:
    return errors.page(
        gettext("The link works together with a sign-in to the account that it was made for."),
        status=403,
        title=gettext("Please sign in first"),
        mend=gettext("Sign in to that account in this browser, then open the link again at once."),
        way_on=(gettext("Sign in"), url_for("pages.sign_in", back="factors")),
    )
