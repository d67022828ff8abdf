"""Deletes the user's own account, where the operator allows it."""

from flask import abort, redirect, request, url_for
from werkzeug.wrappers import Response

from sso import audit, context
from sso.audit.events import Event
from sso.endpoints import browser_session, page
from sso.endpoints.forms import DeleteAccountForm
from sso.extensions import db
from sso.i18n import N_
from sso.mfa import policy
from sso.services import accounts, staff
from sso.store import grants, sessions
from sso.store.sessions import CurrentSession


def delete_account() -> Response:
    """Says what ends, asks for the password and the second factor, and deletes the account."""
    if context.settings().account_deletion != "on":
        abort(404)
    current = browser_session.current_session()
    if current is None:
        if "done" in request.args:
            return page.render("account_deleted.html")
        return redirect(url_for("pages.sign_in", back="delete"), 303)
    form = DeleteAccountForm()
    if current.user.password_hash is None:
        del form.password
    if request.method == "POST" and not _is_barred(current) and _is_right(form, current):
        return _delete(current)
    return page.render(
        "delete_account.html",
        form=form,
        user=current.user,
        administers=_administers(current),
        must_confirm=_must_confirm(current),
        lacks_second_factor=policy.lacks_second_factor(current),
        sessions=len(sessions.of_user(current.user.id)),
        applications=[access.client.name for access in grants.accesses_of(current.user.id)],
    )


def _must_confirm(current: CurrentSession) -> bool:
    """Whether the password, if there is one, would not be enough."""
    if policy.lacks_second_factor(current):
        return True
    return current.user.password_hash is None and not policy.is_fresh(current)


def _administers(current: CurrentSession) -> bool:
    """Administrators do not remove themselves: the last one would be gone."""
    return staff.role_of(current.user.groups) == staff.ADMIN


def _is_barred(current: CurrentSession) -> bool:
    return _administers(current) or _must_confirm(current)


def _is_right(form: DeleteAccountForm, current: CurrentSession) -> bool:
    if not form.validate():
        return False
    return form.password is None or page.is_password_right(
        current,
        form.password,
        N_("The password is wrong."),
        Event.ACCOUNT_DELETION_FAILED,
        "password",
    )


def _delete(current: CurrentSession) -> Response:
    locked = policy.lock(current)
    if locked is None or _is_barred(locked):  # changed meanwhile
        db.session.rollback()
        return redirect(url_for("pages.delete_account"), 303)
    accounts.delete(audit.USER, locked.user, is_own=True)
    browser_session.forget(locked.user)
    db.session.commit()
    return redirect(url_for("pages.delete_account", done=1), 303)
