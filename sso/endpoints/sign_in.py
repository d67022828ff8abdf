"""The sign-in page, a step of the dispatcher; without a waiting request it leads to the account."""

from contextlib import suppress
from dataclasses import replace

from flask import make_response, redirect, render_template, request, url_for
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso import audit, clock, context
from sso.audit.events import Event
from sso.config import email_addresses
from sso.crypto import passwords
from sso.endpoints import authorize, second_factor
from sso.endpoints.forms import DecisionForm, SignInForm
from sso.endpoints.redirects import step
from sso.extensions import db
from sso.flow import decision
from sso.i18n import N_
from sso.mfa import passkeys
from sso.models import User
from sso.process import concurrency
from sso.ratelimit import device_cookie, limiting
from sso.store import users
from sso.store.sessions import CurrentSession
from sso.web import browser_session, headers
from sso.web.pending_request import PendingRequest

WRONG = N_("The email address or the password is not right.")
_NOTICES = {
    "password": N_("Your password is set. Sign in with it."),
    "signed_up": N_("Your account is made. Sign in with your new password."),
}


def sign_in() -> Response:
    """Ask who is there. A wrong password and an unknown email look and take the same."""
    if request.method == "POST" and "password" in request.form:
        # Under a flood, refusing must cost less than what it spares.
        passwords.look_for_room(_known_account)
    waiting, validated = authorize.read_waiting(), None
    if "resume" in request.args and waiting is None:
        return authorize.stale()
    if waiting is not None:
        found = authorize.validate(waiting)
        if isinstance(found, Response):
            return found
        validated = found
    visit = browser_session.current_session()
    why = None
    if validated is not None:
        next_step = authorize.decide(validated)
        why = next_step.why if isinstance(next_step, decision.SignIn) else None
    if "back" in request.args and visit and why is None:
        why = decision.Why.AGAIN  # a page of the account asks who is there
    if waiting and why is None and request.method == "GET" and "another" not in request.args:
        return authorize.resume(waiting)  # signed in already, in another tab
    if why is decision.Why.SELECT and visit and "another" not in request.args and waiting:
        return _select_account(validated, visit, waiting)
    return _ask(validated, visit, waiting, why)


def _ask(
    validated: authorize.Validated | None,
    visit: CurrentSession | None,
    waiting: PendingRequest | None,
    why: decision.Why | None,
) -> Response:
    form, user, error, wait = SignInForm(), None, None, 0
    again = why is decision.Why.AGAIN
    if request.method == "POST":
        if form.validate():
            attempt, wait = limiting.ask(limiting.SIGN_IN, form.email.data or "")
            if wait:
                db.session.commit()  # nothing but what is told; no transaction waits
                concurrency.delay_refusal()
            else:
                user = _authenticate(attempt, form.email.data or "", form.password.data or "")
            if user:
                goes_on = again and visit is not None and visit.user.id == user.id
                remember = visit.session.remembered if goes_on and visit else form.remember.data
                return second_factor.after_password(user, bool(remember), waiting)
            error = limiting.words(wait) if wait else gettext(WRONG)
    elif not form.email.data:
        hint = validated.grant.request.asked.login_hint if validated else None
        form.email.data = visit.user.email if again and visit else hint
    by_passkey = passkeys.available()
    if by_passkey:
        headers.allow_own_script()
    if request.args.get("problem") == "passkey":
        words = second_factor.WRONG["passkey"]
        error = error or gettext(words)
    html = render_template(
        "sign_in.html",
        passkey=passkeys.ask_to_sign_in() if by_passkey else None,
        passkey_url=step("pages.passkey_sign_in"),
        form=form,
        error=error,
        client_name=validated.client.name if validated else None,
        reauthenticate=again,
        notice=gettext("Please sign in with the account that the application asked for.")
        if why is decision.Why.SOMEBODY_ELSE
        else _notice(),
        can_sign_up=context.settings().sign_up != "off",
    )
    response = make_response(html)
    if wait:
        response.status_code = 429
        response.headers["Retry-After"] = str(wait)
    return response


def _select_account(
    validated: authorize.Validated | None, visit: CurrentSession, waiting: PendingRequest
) -> Response:
    form = DecisionForm()
    if request.method == "POST" and form.validate():
        if request.form.get("decision") == "continue":
            selected = str(visit.user.id)
            return authorize.resume(replace(waiting, selected=selected, selected_at=clock.now()))
        return redirect(url_for("pages.sign_in", resume=request.args["resume"], another=1), 303)
    html = render_template(
        "select_account.html",
        form=form,
        client_name=validated.client.name if validated else None,
        user_name=visit.user.name,
        user_email=visit.user.email,
    )
    return make_response(html)


def _authenticate(attempt: limiting.Attempt, email: str, password: str) -> User | None:
    user = users.find_by_email(email) if "\0" not in email else None
    known = user.password_hash if user and user.disabled_at is None else None
    # The transaction must not wait for Argon2; the check is as costly for an unknown user.
    db.session.commit()  # not rolled back, after which the user would be read again
    if not passwords.verify(password, known, attempt.known_account):
        reason = "password" if known else "disabled or without password" if user else "unknown"
        audit.event(Event.SIGN_IN_FAILED, user=user.id if user else None, reason=reason)
        attempt.failed()
        return None
    attempt.passed()
    if user is None or known is None:
        return None
    anew = _rehashed(password, known, attempt.known_account)
    # What ended meanwhile (a new password, a disabled user) ends this sign-in, too.
    user = users.lock(user.id)
    if user is None or user.password_hash != known:
        db.session.rollback()
        return None
    user.password_hash = anew or known
    return user


def _known_account() -> str | None:
    """The account that is named, if this browser is one that it has signed in from before."""
    email = request.form.get("email", "")[: email_addresses.LONGEST]
    return device_cookie.mark(email) if device_cookie.id_for(email, at_password=True) else None


def _rehashed(password: str, known: str, account: str | None) -> str | None:
    """A hash with today's parameters, if the known one has others and there is time for it."""
    with suppress(passwords.Busy):
        if passwords.needs_rehash(known):
            return passwords.hash_password(password, account)
    return None


def _notice() -> str | None:
    words = _NOTICES.get(request.args.get("notice", ""))
    return gettext(words) if words else None
