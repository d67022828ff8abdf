"""The signed-in user's own page: profile, sign-ins, applications, password, language."""

from flask import redirect, request, url_for
from flask_babel import gettext
from flask_login import login_required
from werkzeug.wrappers import Response

from sso import audit, context
from sso.audit.events import Event
from sso.crypto import passwords
from sso.endpoints import browser_session, page
from sso.endpoints.forms import AccountForm, ChangeNameForm, ChangePasswordForm
from sso.extensions import db
from sso.flow import scopes
from sso.flow.scopes import CLAIM_NAMES
from sso.i18n import N_, languages
from sso.i18n.languages import LANGUAGES
from sso.mfa import policy
from sso.models import User
from sso.ratelimit import device_cookie
from sso.services import credentials, revocation, staff
from sso.services import identities as linking
from sso.store import clients, factors, grants, identities, sessions, users
from sso.store.sessions import CurrentSession
from sso.web import cookies

_SHOWN = ("profile", "address", "phone")
_DONE = {
    "session": N_("The session was ended."),
    "sessions": N_("All other sessions were ended."),
    "withdrawn": N_("The application no longer has access."),
    "password": N_("Your password was changed, and all other sessions were ended."),
    "name": N_("Your name was changed."),
    "language": N_("The language was changed."),
}


@login_required
def account() -> Response:
    """The user's sessions and applications; a POST ends some, or changes name or password."""
    current, password_form, name_form = page.signed_in(), ChangePasswordForm(), ChangeNameForm()
    if request.method == "POST":
        done = _act(AccountForm(), password_form, name_form, current)
        if isinstance(done, Response):
            return done
        if done:
            db.session.commit()
            response = redirect(url_for("pages.account", done=done), 303)
            if done == "language":
                cookies.choose_language(response, None)  # what was chosen before the sign-in
            return response
    browser_session.touch(current)
    response = _page(current, password_form, name_form)
    db.session.commit()
    return response


def _page(
    current: CurrentSession, password_form: ChangePasswordForm, name_form: ChangeNameForm
) -> Response:
    user = current.user
    claims = scopes.values(user, scopes.claims_of(_SHOWN))
    return page.render(
        "account.html",
        user=user,
        claims=[
            (gettext(CLAIM_NAMES.get(name, name)), value)
            for name, value in claims.items()
            if name not in ("name", "updated_at", "locale")  # `locale` has a field of its own
        ],
        sessions=[(one, languages.browser_name(one.browser)) for one in sessions.of_user(user.id)],
        applications=[
            (client, page.logo_url(digest)) for client, digest in clients.of_launchable(user.groups)
        ],
        identities=_identities(user),
        this_session=current.session.id,
        accesses=[(access, _titles(access.scope)) for access in grants.accesses_of(user.id)],
        form=password_form,
        name_form=name_form,
        opened=request.args.get("open"),
        known=factors.of_user(user.id),
        can_delete=context.settings().account_deletion == "on",
        directory=linking.directory_of(user),
        has_password=user.password_hash is not None,
        lacks_second_factor=policy.lacks_second_factor(current),
        languages=LANGUAGES,
        may_administer=staff.role_of(user.groups) is not None,
        # A form that failed is sent to the same URL.
        done=_DONE.get(request.args.get("done", "")) if request.method == "GET" else None,
    )


def _identities(user: User) -> list[str] | None:
    """The names of the providers that sign the user in; `None` without any to choose from."""
    if not (providers := {one.id: one.name for one in context.upstreams()}):
        return None
    return [providers.get(one.provider, one.provider) for one in identities.of_user(user.id)]


def _titles(scope: str) -> list[str]:
    return [found.title for found in scopes.SCOPES.values() if found.name in scope.split()]


def _act(
    form: AccountForm,
    password_form: ChangePasswordForm,
    name_form: ChangeNameForm,
    current: CurrentSession,
) -> Response | str | None:
    """Do what a button asks for. Gives what was done, by its key in `_DONE`."""
    user_id = current.user.id
    match form.action.data:
        case "end_session":
            return _end_session(current, form.session.data)
        case "end_other_sessions":
            if policy.lock(current) is None:
                db.session.rollback()
                return "ended"
            browser_session.end_others(current, "ended_by_user")
            return "sessions"
        case "end_all_sessions":
            revocation.sessions_of_user(user_id, "ended_by_user", but=current.session.id)
            # Unless `sign_out` forgets this browser: strangers may be guessing.
            device_cookie.remember(current.user)
            browser_session.sign_out("ended_by_user")
            db.session.commit()
            return redirect(url_for("pages.sign_out"), 303)
        case "withdraw":
            client_id = form.client.data.replace("\0", "")[:48]
            revocation.withdraw_consent(audit.USER, user_id, client_id)
            return "withdrawn"
        case "change_password":
            return _change_password(current, password_form)
        case "change_name" if linking.directory_of(current.user) is None:
            return _change_name(current, name_form)
        case "choose_language":
            return _choose_language(current, form.locale.data)
    return None


def _end_session(current: CurrentSession, session_id: str) -> str | None:
    for session in sessions.of_user(current.user.id):
        if str(session.id) == session_id and session.id != current.session.id:
            revocation.session(session, "ended_by_user")
            return "session"
    return None


def _change_password(current: CurrentSession, form: ChangePasswordForm) -> Response | str | None:
    user = current.user
    if policy.lacks_second_factor(current):
        return redirect(url_for("pages.second_factor", back="password"), 303)
    if not form.validate():
        return None
    if not page.is_password_right(
        current,
        form.old_password,
        N_("The old password is wrong."),
        Event.PASSWORD_CHANGE_FAILED,
        "old password",
    ):
        return None
    new = form.new_password.data or ""
    if error := passwords.weakness(new, (user.name, user.email)):
        form.new_password.errors = [error]
        return None
    fresh = passwords.hash_password(new, str(user.id))
    if policy.lock(current) is None or policy.lacks_second_factor(current):
        db.session.rollback()
        return "ended"  # the way leads to the sign-in page, or back to this one
    credentials.change_password(audit.USER, user, fresh, keep=current.session.id)
    device_cookie.remember(user)
    browser_session.renew(current)
    return "password"


def _change_name(current: CurrentSession, form: ChangeNameForm) -> str | None:
    if not form.validate():
        return None
    if users.lock(current.user.id) is None:
        db.session.rollback()
        return "ended"
    credentials.rename(audit.USER, current.user, form.name.data or "")
    return "name"


def _choose_language(current: CurrentSession, tag: str) -> str:
    # All claims are one value, of which an operator may be changing another part.
    users.lock(current.user.id)
    others = {name: value for name, value in current.user.claims.items() if name != "locale"}
    current.user.claims = {**others, "locale": tag} if tag in LANGUAGES else others
    db.session.flush()
    return "language"
