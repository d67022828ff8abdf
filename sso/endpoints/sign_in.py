"""The sign-in page, a step of the dispatcher. Without a request, it leads to the account."""

from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

import flask
from flask import abort, redirect, request, url_for
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso import audit, clock, context, database
from sso.audit.events import Event
from sso.config import email_addresses
from sso.config.upstream.provider import Provider
from sso.crypto import passwords
from sso.endpoints import authorize, browser_session, mailed, page, second_factor, upstream
from sso.endpoints.forms import (
    DecisionForm,
    EmailedCodeForm,
    PasskeyForm,
    SignInCodeForm,
    SignInForm,
)
from sso.extensions import db
from sso.flow import decision
from sso.flow.request import AuthorizationRequest
from sso.i18n import N_
from sso.mfa import passkeys, policy
from sso.models import User
from sso.ratelimit import device_cookie, limiting
from sso.services import agent_identity, authentication, sign_in_codes
from sso.store import identities, password_hashes
from sso.store.sessions import CurrentSession
from sso.web import routing
from sso.web.pending_request import PendingRequest

WRONG = N_("The email address or the password is wrong.")
_NOTICES = {
    "password": N_("Your password was set. Sign in with it."),
    "signed_up": N_("Your account was created. Sign in with your new password."),
}


def sign_in() -> Response:
    """Ask for email and password. A wrong password and an unknown email look and time the same."""
    form = SignInForm()
    if form.password.data is not None:
        # Under a flood of requests, refusing must be cheap.
        passwords.look_for_room(lambda: _known_account(form.email.data or ""))
    step = _step()
    if form.is_submitted() and (provider := _chosen_provider(form, step)):
        return _start_upstream(provider, step, form.email.data, form.remember.data)
    if step.pending and "another" not in request.args:
        if step.is_over:
            return authorize.resume(step.pending)  # signed in already, in another tab
        if step.reason is decision.Why.SELECT and step.current:
            return _select_account(step.validated, step.current, step.pending)
    return _ask(form, step)


class _Step(NamedTuple):
    """A sign-in: the request that waits for it, the session before it, and why it is needed."""

    pending: PendingRequest | None
    validated: authorize.Validated | None
    current: CurrentSession | None
    reason: decision.Why | None

    @property
    def is_again(self) -> bool:
        return self.reason is decision.Why.AGAIN

    @property
    def is_over(self) -> bool:
        """Whether the request no longer waits for a sign-in."""
        return self.pending is not None and self.reason is None and request.method == "GET"

    @property
    def parameters(self) -> AuthorizationRequest | None:
        return self.validated.grant.request.asked if self.validated else None

    def remembers(self, user: User, ticked: bool) -> bool:
        """Return whether the new session outlives the browser's window."""
        current = self.current
        goes_on = self.is_again and current is not None and current.user.id == user.id
        return current.session.remembered if goes_on and current else ticked


def _step() -> _Step:
    pending = page.pending_request()
    validated, next_step = page.validate(pending) if pending else (None, None)
    current = browser_session.current_session()
    reason = next_step.why if isinstance(next_step, decision.SignIn) else None
    if "back" in request.args and current and reason is None:
        reason = decision.Why.AGAIN  # a page of the account requires a fresh sign-in
    return _Step(pending, validated, current, reason)


def _start_upstream(provider: Provider, step: _Step, email: str | None, remember: bool) -> Response:
    parameters = step.parameters
    return upstream.start(
        provider,
        step.pending,
        remember=remember,
        again=step.is_again,
        hint=email or (parameters.login_hint if parameters else None),
        parameters=parameters,
    )


def _chosen_provider(form: SignInForm, step: _Step) -> Provider | None:
    """Return the provider of a button or of the email's domain."""
    if form.upstream.data:
        return context.upstreams().find(form.upstream.data)
    return _provider_of(form.email.data or "", step)


def _provider_of(email: str, step: _Step) -> Provider | None:
    """Return the provider of an email's domain; none if `local` is in the URL."""
    if "local" in request.args or step.is_again:
        return None
    return context.upstreams().of_email(email)


def _providers(current: CurrentSession | None, again: bool) -> list[Provider]:
    """Return all providers, or for reauthentication those that are linked to the account."""
    if not (again and current):
        return list(context.upstreams())
    linked = {identity.provider for identity in identities.of_user(current.user.id)}
    return [provider for provider in context.upstreams() if provider.id in linked]


def _ask(form: SignInForm, step: _Step) -> Response:
    error, wait = None, 0
    pending, validated, current, reason = step
    again = step.is_again
    if request.method == "POST":
        if form.validate():
            email = form.email.data or ""
            attempt, wait = page.try_once(email)
            user = None if wait else _authenticate(attempt, email, form.password.data or "")
            if user:
                remember = step.remembers(user, bool(form.remember.data))
                return second_factor.after_password(user, remember, pending)
            error = limiting.waiting_time(wait) if wait else gettext(WRONG)
    else:
        hint = validated.grant.request.asked.login_hint if validated else None
        form.email.data = current.user.email if again and current else hint
        if request.args.get("notice") in _NOTICES:
            form.email.data = mailed.email_to_fill_in() or hint
    by_passkey, waiting = passkeys.available(), browser_session.pending_identity()
    if request.args.get("problem") == "passkey":
        message = second_factor.WRONG["passkey"]
        error = error or gettext(message)
    notice = _NOTICES.get(request.args.get("notice", ""))
    if reason is decision.Why.SOMEBODY_ELSE:
        notice = N_("Please sign in with the account that the application requested.")
    return page.render(
        "sign_in.html",
        wait=wait,
        passkey=passkeys.ask_to_sign_in() if by_passkey else None,
        form=form,
        error=error,
        **_client_of(validated),
        reauthenticate=again,
        by_code=_may_use_code(step),
        notice=notice,
        waiting=waiting,
        providers=_providers(current, again),
        elsewhere="local" not in request.args
        and any(provider.domains for provider in context.upstreams()),
        can_sign_up=not again
        and (context.settings().sign_up != "off" or (waiting is not None and waiting[0].sign_up)),
    )


def _client_of(validated: authorize.Validated | None) -> dict[str, Any]:
    """Return the name and the logo of the application, for the page."""
    client = validated.client if validated else None
    return {
        "client_name": agent_identity.title_of(client) if client else None,
        "client_logo": page.logo_of(client),
    }


def _select_account(
    validated: authorize.Validated | None, current: CurrentSession, pending: PendingRequest
) -> Response:
    form = DecisionForm()
    if form.validate_on_submit():
        if form.decision.data == "continue":
            selected = str(current.user.id)
            return authorize.resume(replace(pending, selected=selected, selected_at=clock.now()))
        return redirect(url_for("pages.sign_in", resume=request.args["resume"], another=1), 303)
    return page.render(
        "select_account.html",
        form=form,
        **_client_of(validated),
        user=current.user,
    )


def _authenticate(attempt: limiting.Attempt, email: str, password: str) -> User | None:
    account = attempt.known_account
    with database.reading() as connection:
        user = password_hashes.find_password_owner(connection, email) if "\0" not in email else None
    imported = password_hashes.foreign_hash_methods()
    db.session.commit()  # the transaction must not wait for Argon2
    if not authentication.verify_password(audit.USER, user, password, account, imported=imported):
        attempt.failed()
        return None
    attempt.passed()
    # A new password or a disabled user meanwhile ends this sign-in, too.
    locked = authentication.lock_verified(user, password, account) if user else None
    if locked is None:
        db.session.rollback()
    return locked


def _known_account(email: str) -> str | None:
    """Return the account of an email if it has signed in from this browser before."""
    email = email[: email_addresses.LONGEST]
    return device_cookie.mark(email) if device_cookie.id_for(email, at_password=True) else None


def passkey_sign_in() -> Response:
    """Sign in with a passkey alone; the form is on the sign-in page."""
    pending = page.pending_request()
    form = PasskeyForm()
    if form.validate_on_submit():
        attempt = routing.enter("")
        accepted = passkeys.accept_sign_in(form.credential.data, form.challenge.data)
        if accepted:
            user, proof = accepted
            policy.finish_pending(user)
            signed_in_at = browser_session.begin(user, proof, form.remember.data).auth_time
            db.session.commit()
            return page.after_sign_in(pending, signed_in_at)
        db.session.rollback()
        audit.event(Event.SIGN_IN_FAILED, method="passkey")
        attempt.failed()
    return page.to_step("pages.sign_in", problem="passkey")


_CODE = "sign_in_code"  # in the browser's cookie: the token, and whether to stay signed in
WRONG_CODE = N_(
    "The code is wrong or has expired, or it was requested in another browser. After a few "
    "attempts you need a new one."
)


def sign_in_code() -> Response:
    """Sign in with a mailed code: ask for the email address, then for the code.

    The page is the same for all addresses. The code counts only in the browser that requested it.
    """
    step = _step()
    if context.settings().mail_codes != "on":
        abort(404)
    if step.pending and step.is_over and "another" not in request.args:
        return authorize.resume(step.pending)
    if not _may_use_code(step):
        return page.to_step("pages.sign_in")
    request_form, form = SignInCodeForm(), EmailedCodeForm()
    token_id, remember = _kept_code()
    email = sign_in_codes.address_of(token_id) if token_id else None
    if request_form.email.data is not None:
        return _request_code(request_form, step)
    if token_id is None or email is None or "change" in request.args:
        return _code_page(request_form, step)
    if form.validate_on_submit():
        if form.action.data == "send":
            return _send_code(email, remember)
        return _take_code(form, step, token_id, email, remember)
    return _code_page(form, step, email)


def _may_use_code(step: _Step) -> bool:
    """Return whether a code is enough: it is one factor."""
    if context.settings().mail_codes != "on":
        return False
    validated, parameters = step.validated, step.parameters
    if validated is None or parameters is None:
        return True
    policy_there = validated.client.policy_at(parameters.redirect_uri)
    return not decision.demands_two_factors(parameters, policy_there)


def _kept_code() -> tuple[UUID | None, bool]:
    """Return the token that this browser requested, and whether to stay signed in."""
    token_id, remember = flask.session.get(_CODE, (None, False))
    return UUID(token_id) if token_id else None, bool(remember)


def _request_code(form: SignInCodeForm, step: _Step) -> Response:
    if not form.validate():
        return _code_page(form, step)
    email = form.email.data or ""
    if provider := _provider_of(email, step):
        return _start_upstream(provider, step, email, bool(form.remember.data))
    return _send_code(email, bool(form.remember.data))


def _send_code(email: str, remember: bool) -> Response:
    routing.spend(email)
    token_id = sign_in_codes.request(audit.USER, email, _kept_code()[0])
    db.session.commit()
    flask.session[_CODE] = [str(token_id), remember]
    return page.to_step("pages.sign_in_code")


def _take_code(
    form: EmailedCodeForm, step: _Step, token_id: UUID, email: str, remember: bool
) -> Response:
    attempt, wait = page.try_once(email)
    if wait:
        return _code_page(form, step, email, limiting.waiting_time(wait), wait)
    user = sign_in_codes.redeem(audit.USER, token_id, form.code.data)
    if user is None:
        db.session.commit()  # the try counts
        attempt.failed()
        return _code_page(form, step, email, gettext(WRONG_CODE))
    attempt.passed()
    session = browser_session.begin(user, policy.EMAILED_CODE, step.remembers(user, remember))
    signed_in_at = session.auth_time
    db.session.commit()
    return page.after_sign_in(step.pending, signed_in_at)


def _code_page(
    form: SignInCodeForm | EmailedCodeForm,
    step: _Step,
    email: str | None = None,
    error: str | None = None,
    wait: int = 0,
) -> Response:
    if isinstance(form, SignInCodeForm) and not form.is_submitted():
        parameters, current = step.parameters, step.current
        hint = parameters.login_hint if parameters else None
        form.email.data = current.user.email if step.is_again and current else hint
    return page.render(
        "sign_in_code.html",
        wait=wait,
        form=form,
        email=email,
        error=error,
        reauthenticate=step.is_again,
        **_client_of(step.validated),
    )
