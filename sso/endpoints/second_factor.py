"""The page that asks for the second factor: after the password, or to step a session up."""

from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from flask import redirect, url_for
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso import audit, database
from sso.config.upstream.provider import Provider
from sso.endpoints import authorize, browser_session, page
from sso.endpoints.forms import SecondFactorForm
from sso.extensions import db
from sso.flow import decision
from sso.flow.request import ONE_FACTOR
from sso.i18n import N_
from sso.mfa import passkeys, policy
from sso.models import UpstreamSession, User
from sso.ratelimit import limiting
from sso.services import authentication, second_factors
from sso.store import factors
from sso.store.sessions import CurrentSession
from sso.web import forms
from sso.web.pending_request import PendingRequest

WRONG = {
    "totp": N_("The code is wrong or was already used. Wait for the next one."),
    "recovery": N_("The recovery code is wrong or was already used."),
    "passkey": N_("The passkey could not be used. Please try again."),
}


class Subject(NamedTuple):
    """The user who has to show a factor. `current`: the session, if they are already signed in."""

    user: User
    current: CurrentSession | None
    remember: bool = False
    upstream: UpstreamSession | None = None


def after_password(user: User, remember: bool, pending: PendingRequest | None) -> Response:
    """Sign in a user after the password, or ask for the second factor first. Commits."""
    if factors.has_any(
        database.session_connection(), user.id
    ):  # read under the lock of the user that the caller has taken
        policy.begin_pending(user, remember)
        browser, notice = browser_session.browser(user), policy.notice_id()
        policy.keep_notice(authentication.accept_password(audit.USER, user, browser, notice))
        db.session.commit()
        return page.to_step("pages.second_factor")
    signed_in_at = browser_session.begin(user, policy.PASSWORD, remember).auth_time
    db.session.commit()
    return page.after_sign_in(pending, signed_in_at)


def ask_before_form(current: CurrentSession, at: str) -> Response:
    """Ask for the factor in the response to an admin form, and carry its values. Commits."""
    form = SecondFactorForm(data={forms.UNSENT: forms.packed()})
    action = url_for("pages.second_factor", back="admin", at=at)
    response = _page(form, Subject(current.user, current), None, action=action)
    db.session.commit()
    return response


def after_upstream(
    user: User,
    provider: Provider,
    upstream: UpstreamSession,
    remember: bool,
    pending: PendingRequest | None,
) -> Response:
    """Sign in a user after an upstream sign-in, or ask for the second factor first. Commits.

    The provider's second factor replaces the local one if the operator trusts it. Raises
    `SignInEnded`.
    """
    proof = policy.of_upstream(upstream.amr, upstream.has_two_factors)
    needs_second = proof.acr == ONE_FACTOR
    if needs_second and factors.has_any(database.session_connection(), user.id):
        policy.begin_pending(user, remember, upstream)
        authentication.accept_identity(audit.USER, user, provider.id)
        db.session.commit()
        return page.to_step("pages.second_factor")
    signed_in_at = browser_session.begin(user, proof, remember, upstream).auth_time
    db.session.commit()
    return page.after_sign_in(pending, signed_in_at)


def second_factor() -> Response:
    """Ask for a code, a passkey or a recovery code."""
    pending = page.pending_request()
    subject = _subject(pending)
    if isinstance(subject, Response):
        return subject
    form, problem = SecondFactorForm(), None
    if form.validate_on_submit():
        if form.decision.data == "cancel":
            return _cancel(pending, subject)
        attempt, wait = page.try_once(subject.user.email)
        if wait:
            return _page(form, subject, None, wait)
        if not _lock(subject):
            db.session.rollback()
            return page.to_step("pages.sign_in")
        factor = second_factors.show(
            subject.user,
            form.code.data,
            form.recovery_code.data,
            form.credential.data,
            form.challenge.data,
        )
        if factor.methods:
            attempt.passed()
            if factor.kind == "recovery":
                second_factors.record_recovery_code(audit.USER, subject.user)
            try:
                signed_in_at = _let_in(subject, factor.methods)
            except authentication.SignInEnded:
                db.session.rollback()
                return page.to_step("pages.sign_in")
            db.session.commit()
            return page.after_sign_in(pending, signed_in_at)
        db.session.rollback()
        problem = factor.kind
        # Failures are notified for known browsers, too, but not within a session.
        is_sign_in = subject.current is None and subject.upstream is None
        browser = browser_session.browser(subject.user) if is_sign_in else None
        notice = policy.notice_id()
        policy.keep_notice(
            authentication.fail_second_factor(audit.USER, subject.user, problem, browser, notice)
        )
        db.session.commit()
        attempt.failed()
    return _page(form, subject, problem)


def _subject(pending: PendingRequest | None) -> Subject | Response:
    half = policy.current_pending()
    if half is not None:
        return Subject(half.user, None, half.remember, half.upstream)
    current = browser_session.current_session()
    if current is None:
        return page.to_step("pages.sign_in")
    if page.is_asked_back():
        # A page of the account waits for a second factor before a change.
        if policy.lacks_second_factor(current):
            return Subject(current.user, current)
        return page.after_sign_in(pending)
    if pending is None:
        return redirect(url_for("pages.account"), 303)
    if page.validate(pending)[1] != decision.SecondFactor():
        return authorize.resume(pending)  # shown already, in another tab
    return Subject(current.user, current)


def _lock(subject: Subject) -> bool:
    """Lock the user; return False if password, sign-in or session have changed meanwhile."""
    if subject.current is not None:
        return policy.lock(subject.current) is not None
    return policy.lock_pending(subject.user)


def _let_in(subject: Subject, methods: str) -> datetime | None:
    """Step the session up, or begin one; return the time of a new sign-in."""
    if subject.current is not None:
        browser_session.step_up(subject.current, methods)
        return None
    policy.finish_pending(subject.user)
    first = subject.upstream.amr if subject.upstream else policy.PASSWORD.amr
    proof = policy.with_second(first, methods)
    session = browser_session.begin(subject.user, proof, subject.remember, subject.upstream)
    return session.auth_time


def _cancel(pending: PendingRequest | None, subject: Subject) -> Response:
    policy.end_pending()
    if pending:
        return authorize.resume(replace(pending, denied=True))
    return redirect(url_for("pages.account" if subject.current else "pages.sign_in"), 303)


def _page(
    form: SecondFactorForm,
    subject: Subject,
    problem: str | None,
    wait: int = 0,
    action: str = "",
) -> Response:
    user_factors = factors.of_user(subject.user.id)
    by_passkey = bool(user_factors.passkeys) and passkeys.available()
    message = gettext(WRONG[problem]) if problem else None
    response = page.render(
        "second_factor.html",
        wait=wait,
        action=action,
        form=form,
        user=subject.user,
        passkey=passkeys.ask_as_second(subject.user, list(user_factors.passkeys))
        if by_passkey
        else None,
        known=user_factors,
        problem=problem,
        error=limiting.waiting_time(wait) if wait else message,
    )
    if form.unsent.data:  # continues at an admin page, which checks the Origin
        response.headers["Referrer-Policy"] = "same-origin"
    return response
