"""The page that asks for the second factor: half way into a sign-in, or to step a session up."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from flask import make_response, redirect, render_template, request, url_for
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso import audit
from sso.audit.events import Event
from sso.endpoints import authorize
from sso.endpoints.forms import DecisionForm
from sso.endpoints.redirects import after_sign_in, is_asked_back, step
from sso.extensions import db
from sso.flow import decision
from sso.i18n import N_
from sso.mfa import passkeys, pending_mfa, policy, proof, recovery, totp
from sso.models import User
from sso.process import concurrency
from sso.ratelimit import device_cookie, limiting
from sso.services import notifications
from sso.store import factors, recovery_codes, users
from sso.store.sessions import CurrentSession
from sso.web import browser_session, headers
from sso.web.pending_request import PendingRequest

WRONG = {
    "totp": N_("The code is not right, or it was used already. Wait for the next one."),
    "recovery": N_("The recovery code is not right, or it was used already."),
    "passkey": N_("The passkey could not be used. Please try again."),
}


class Subject(NamedTuple):
    """Who has to show a factor; `visit`: in which session, if they are signed in already."""

    user: User
    visit: CurrentSession | None
    remember: bool = False


def after_password(user: User, remember: bool, waiting: PendingRequest | None) -> Response:
    """Sign in who has shown the password, or ask for the second factor first. Commits."""
    if factors.has_any(user.id):  # read under the lock of the user that the caller has taken
        pending_mfa.begin(user, remember)
        audit.event(Event.PASSWORD_ACCEPTED, user=user.id)
        if device_cookie.id_for(user.email) is None:
            _tell_if_not_finished(user)
        db.session.commit()
        return redirect(step("pages.second_factor"), 303)
    signed_in_at = browser_session.begin(user, proof.PASSWORD, remember).auth_time
    db.session.commit()
    return after_sign_in(waiting, signed_in_at)


def _tell_if_not_finished(user: User) -> None:
    """Owe the owner a mail that is withdrawn when the second step is done."""
    agent, network = request.user_agent.string, request.remote_addr or ""
    delay = timedelta(seconds=pending_mfa.LIFETIME)
    mail_id = notifications.second_step_missing(
        user, agent, network, delay, pending_mfa.notice_id()
    )
    pending_mfa.keep_notice(mail_id)


def second_factor() -> Response:
    """Ask for a code, a passkey or a recovery code."""
    waiting = authorize.read_waiting()
    if "resume" in request.args and waiting is None:
        return authorize.stale()
    subject = _subject(waiting)
    if isinstance(subject, Response):
        return subject
    problem = None
    if request.method == "POST" and DecisionForm().validate():
        if request.form.get("decision") == "cancel":
            return _cancel(waiting, subject)
        attempt, wait = limiting.ask(limiting.SECOND_FACTOR, subject.user.email)
        if wait:
            db.session.commit()  # nothing but what is told; no transaction waits
            concurrency.delay_refusal()
            return _page(subject, None, wait)
        if not _lock(subject):
            db.session.rollback()
            return redirect(step("pages.sign_in"), 303)
        used, methods = _check(subject.user)
        if methods:
            attempt.passed()
            if used == "recovery":
                audit.event(Event.RECOVERY_CODE_USED, user=subject.user.id)
                left = recovery_codes.unused(subject.user.id)
                notifications.recovery_code_used(subject.user, left)
            signed_in_at = _let_in(subject, methods)
            db.session.commit()
            return after_sign_in(waiting, signed_in_at)
        db.session.rollback()
        audit.event(Event.SECOND_FACTOR_FAILED, user=subject.user.id, method=used)
        if subject.visit is None:  # from a browser that is known, too
            _tell_if_not_finished(subject.user)
        db.session.commit()
        attempt.failed()
        problem = used
    return _page(subject, problem)


def _subject(waiting: PendingRequest | None) -> Subject | Response:
    half = pending_mfa.current()
    if half is not None:
        return Subject(half.user, None, half.remember)
    visit = browser_session.current_session()
    if visit is None:
        return redirect(step("pages.sign_in"), 303)
    if is_asked_back():
        # A page of the account waits, for a change that asks for a second factor.
        return (
            Subject(visit.user, visit)
            if policy.lacks_second_factor(visit)
            else after_sign_in(waiting)
        )
    if waiting is None:
        return redirect(url_for("pages.account"), 303)
    validated = authorize.validate(waiting)
    if isinstance(validated, Response):
        return validated
    found = authorize.decide(validated)
    if found != decision.SecondFactor():
        return authorize.resume(waiting)  # shown already, in another tab
    return Subject(visit.user, visit)


def _lock(subject: Subject) -> bool:
    """Lock the user; whether what was decided of them, and of the session, is still so."""
    if subject.visit is not None:
        return policy.lock(subject.visit) is not None
    shown_to = subject.user.password_hash
    locked = users.lock(subject.user.id)
    return locked is not None and locked.password_hash == shown_to


def _check(user: User) -> tuple[str, str | None]:
    """Which factor was tried, and the methods that it proves (RFC 8176) if it is right."""
    form = request.form
    if form.get("credential"):
        answer, challenge = form["credential"], form.get("challenge", "")
        return "passkey", passkeys.accept_as_second(user, answer, challenge)
    if form.get("recovery_code"):
        right = recovery.accept(user.id, form["recovery_code"])
        return "recovery", proof.OTP if right else None
    return "totp", proof.OTP if totp.accept(user.id, form.get("code", "")) else None


def _let_in(subject: Subject, methods: str) -> datetime | None:
    """When the user signed in, if this is the end of a sign-in."""
    if subject.visit is not None:
        browser_session.step_up(subject.visit, methods)
        return None
    pending_mfa.finish(subject.user)
    shown = proof.with_second(proof.PASSWORD.amr, methods)
    return browser_session.begin(subject.user, shown, subject.remember).auth_time


def _cancel(waiting: PendingRequest | None, subject: Subject) -> Response:
    pending_mfa.end()
    if waiting:
        return authorize.resume(replace(waiting, denied=True))
    if subject.visit:
        return redirect(url_for("pages.account"), 303)
    return redirect(url_for("pages.sign_in"), 303)


def _words(problem: str | None) -> str | None:
    words = WRONG.get(problem or "")
    return gettext(words) if words else None


def _page(subject: Subject, problem: str | None, wait: int = 0) -> Response:
    known = factors.of_user(subject.user.id)
    by_passkey = bool(known.passkeys) and passkeys.available()
    if by_passkey:
        headers.allow_own_script()
    html = render_template(
        "second_factor.html",
        form=DecisionForm(formdata=None),
        user_name=subject.user.name,
        user_email=subject.user.email,
        passkey=passkeys.ask_as_second(subject.user, list(known.passkeys)) if by_passkey else None,
        totp=known.totp is not None,
        recovery=known.recovery_codes > 0,
        problem=problem,
        error=limiting.words(wait) if wait else _words(problem),
    )
    response = make_response(html)
    if wait:
        response.status_code = 429
        response.headers["Retry-After"] = str(wait)
    return response
