"""The signed-in user's own page: profile, sign-ins, applications, password."""

from collections.abc import Callable

from flask import make_response, redirect, render_template, request, url_for
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso import audit
from sso.audit.events import Event
from sso.crypto import passwords
from sso.endpoints.forms import ChangePasswordForm, DecisionForm
from sso.extensions import db
from sso.flow import scopes
from sso.flow.claim_words import CLAIM_WORDS
from sso.i18n import N_
from sso.mfa import policy
from sso.ratelimit import device_cookie, limiting
from sso.services import consents, credentials, revocation
from sso.store import grants, sessions, users
from sso.store.sessions import CurrentSession
from sso.web import browser_session, i18n, user_agents

_SHOWN = ("profile", "address", "phone")


def account() -> Response:
    """Show what is open in the user's name; a POST ends some of it or changes the password."""
    visit = browser_session.current_session()
    if visit is None:
        return redirect(url_for("pages.sign_in"), 303)
    form = ChangePasswordForm()
    if request.method == "POST":
        act = _ACTIONS.get(request.form.get("action", ""))
        done = act(visit, form) if act else None
        if done == "confirm":
            return redirect(url_for("pages.second_factor", back="password"), 303)
        if done == "everywhere":
            db.session.commit()
            return redirect(url_for("pages.sign_out"), 303)
        if done:
            db.session.commit()
            return redirect(url_for("pages.account", done=done), 303)
    browser_session.touch(visit)
    page = _page(visit, form)
    db.session.commit()
    return page


def _page(visit: CurrentSession, form: ChangePasswordForm) -> Response:
    user = visit.user
    claims = scopes.values(user, scopes.claims_of(_SHOWN))
    html = render_template(
        "account.html",
        user_name=user.name,
        user_email=user.email,
        email_verified=user.email_verified,
        claims=[
            (gettext(CLAIM_WORDS.get(name, name)), value)
            for name, value in claims.items()
            if name not in ("name", "updated_at", "locale")  # `locale` has a field of its own
        ],
        groups=user.groups,
        sessions=[(one, user_agents.name(one.browser)) for one in sessions.of_user(user.id)],
        this_session=visit.session.id,
        accesses=[(access, _titles(access.scope)) for access in grants.accesses_of(user.id)],
        form=form,
        confirm_url=url_for("pages.second_factor", back="password")
        if policy.lacks_second_factor(visit)
        else None,
        languages=i18n.LANGUAGES,
        chosen_language=user.claims.get("locale", ""),
        decision=DecisionForm(formdata=None),
        done=_DONE.get(request.args.get("done", "")),
        sign_out_url=url_for("pages.sign_out"),
    )
    return make_response(html)


def _titles(scope: str) -> list[str]:
    return [found.title for found in scopes.SCOPES.values() if found.name in scope.split()]


def _end_session(visit: CurrentSession, _: ChangePasswordForm) -> str | None:
    for session in sessions.of_user(visit.user.id):
        if str(session.id) == request.form.get("session") and session.id != visit.session.id:
            revocation.session(session, "ended_by_user")
            return "session"
    return None


def _end_others(visit: CurrentSession, _: ChangePasswordForm) -> str:
    if policy.lock(visit) is None:
        db.session.rollback()
        return "ended"
    browser_session.end_others(visit, "ended_by_user")
    return "sessions"


def _end_all(visit: CurrentSession, _: ChangePasswordForm) -> str:
    revocation.sessions_of_user(visit.user.id, "ended_by_user", but=visit.session.id)
    device_cookie.remember(visit.user)  # unless `sign_out` forgets it: strangers may be guessing
    browser_session.sign_out("ended_by_user")
    return "everywhere"


def _withdraw(visit: CurrentSession, _: ChangePasswordForm) -> str:
    client_id = request.form.get("client", "").replace("\0", "")[:48]
    consents.withdraw(audit.USER, visit.user.id, client_id)
    return "withdrawn"


def _change_password(visit: CurrentSession, form: ChangePasswordForm) -> str | None:
    if policy.lacks_second_factor(visit):
        return "confirm"
    if not form.validate():
        return None
    old, new = form.old_password.data or "", form.new_password.data or ""
    attempt = limiting.enter(limiting.PASSWORD_CHECK, visit.user.email)
    db.session.commit()  # the transaction must not wait for the checks
    if not passwords.verify(old, visit.user.password_hash, str(visit.user.id)):
        audit.event(Event.PASSWORD_CHANGE_FAILED, user=visit.user.id, reason="old password")
        attempt.failed()
        form.old_password.errors = [N_("The old password is not right.")]
        return None
    attempt.passed()
    if fault := passwords.fault(new, (visit.user.name, visit.user.email)):
        form.new_password.errors = [fault]
        return None
    fresh = passwords.hash_password(new, str(visit.user.id))
    if policy.lock(visit) is None or policy.lacks_second_factor(visit):
        db.session.rollback()
        return "ended"  # the way leads to the sign-in page, or back to this one
    credentials.change_password(audit.USER, visit.user, fresh, keep=visit.session.id)
    device_cookie.remember(visit.user)
    browser_session.renew(visit)
    return "password"


def _choose_language(visit: CurrentSession, _: ChangePasswordForm) -> str:
    # All claims are one value, of which an operator may be changing another part.
    users.lock(visit.user.id)
    asked = request.form.get("locale", "")
    others = {name: value for name, value in visit.user.claims.items() if name != "locale"}
    visit.user.claims = {**others, "locale": asked} if asked in i18n.LANGUAGES else others
    db.session.flush()
    return "language"


_ACTIONS: dict[str, Callable[[CurrentSession, ChangePasswordForm], str | None]] = {
    "end_session": _end_session,
    "end_other_sessions": _end_others,
    "end_all_sessions": _end_all,
    "withdraw": _withdraw,
    "change_password": _change_password,
    "choose_language": _choose_language,
}

_DONE = {
    "session": N_("The sign-in was ended."),
    "sessions": N_("All other sign-ins were ended."),
    "withdrawn": N_("The application has no access any more."),
    "password": N_("Your password was changed, and all other sign-ins were ended."),
    "language": N_("The language was changed."),
}
