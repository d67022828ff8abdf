"""The user's own page of connected accounts: the upstream identities that sign them in."""

from uuid import UUID

from flask import redirect, request, url_for
from flask_login import login_required
from werkzeug.wrappers import Response
from wtforms import StringField

from sso import audit, context
from sso.endpoints import page, upstream
from sso.endpoints.upstream_sign_in import may_link
from sso.extensions import db
from sso.i18n import N_
from sso.mfa import policy
from sso.services import identities as linking
from sso.services.identities import LinkRefused
from sso.store import identities as stored
from sso.store.sessions import CurrentSession
from sso.web.page_form import PageForm

_DONE = {
    "connected": N_("The account was connected."),
    "removed": N_("It was removed."),
}


class IdentitiesForm(PageForm):
    """The provider to connect, or the id of the identity to remove."""

    action = StringField()
    provider = StringField()
    identity = StringField()


@login_required
def identities() -> Response:
    """Connected accounts; a POST adds or removes one, after a recent sign-in."""
    current, form, error = page.signed_in(), IdentitiesForm(), None
    if form.validate_on_submit():
        if not may_link(current):
            return page.confirm_first("identities")
        if form.action.data == "connect":
            provider = context.upstreams().find(form.provider.data or "")
            if provider:
                return upstream.start(provider, None, user_id=str(current.user.id))
        else:
            error = _remove(current, form.identity.data or "")
            if error is None:
                return redirect(url_for("pages.identities", done="removed"), 303)
    known = stored.of_user(current.user.id)
    linked = {one.provider for one in known}
    providers = {one.id: one for one in context.upstreams()}
    return page.render(
        "identities.html",
        form=form,
        error=error,
        user=current.user,
        is_managed=linking.is_managed,
        fresh=may_link(current),
        known=[(one, providers.get(one.provider)) for one in known],
        others=[one for one in providers.values() if one.id not in linked],
        done=_DONE.get(request.args.get("done", "")),
    )


def _remove(current: CurrentSession, identity_id: str) -> str | None:
    """What keeps it from being removed. Commits."""
    if policy.lock(current) is not None:
        try:
            linking.unlink(audit.USER, current.user, _id(identity_id), current.session.id)
        except LinkRefused as error:
            db.session.rollback()
            return str(error)
    db.session.commit()
    return None


def _id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        return UUID(int=0)
