"""The sign-in page, a step of the dispatcher. Without a request, it leads to the account."""

from dataclasses import replace

from flask import redirect, request, url_for
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso import audit, clock, context
from sso.audit.events import Event
from sso.config import email_addresses
from sso.config.upstream.provider import Provider
from sso.crypto import passwords
from sso.endpoints import authorize, browser_session, mailed, page, second_factor, upstream
from sso.endpoints.forms import DecisionForm, PasskeyForm, SignInForm
from sso.extensions import db
from sso.flow import decision
from sso.i18n import N_
from sso.mfa import passkeys, policy
from sso.models import User
from sso.ratelimit import device_cookie, limiting
from sso.services import agent_identity, authentication
from sso.store import identities, users
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
    pending = page.pending_request()
    validated, next_step = page.validate(pending) if pending else (None, None)
    current = browser_session.current_session()
    parameters = validated.grant.request.asked if validated else None
    reason = next_step.why if isinstance(next_step, decision.SignIn) else None
    if "back" in request.args and current and reason is None:
        reason = decision.Why.AGAIN  # a page of the account requires a fresh sign-in
    if form.is_submitted() and (provider := _chosen_provider(form, reason)):
        return upstream.start(
            provider,
            pending,
            remember=form.remember.data,
            again=reason is decision.Why.AGAIN,
            hint=form.email.data or (parameters.login_hint if parameters else None),
            parameters=parameters,
        )
    if pending and reason is None and request.method == "GET" and "another" not in request.args:
        return authorize.resume(pending)  # signed in already, in another tab
    if reason is decision.Why.SELECT and current and "another" not in request.args and pending:
        return _select_account(validated, current, pending)
    return _ask(form, validated, current, pending, reason)


def _chosen_provider(form: SignInForm, reason: decision.Why | None) -> Provider | None:
    """Return the provider of a button or of the email's domain; none if `local` is in the URL."""
    providers = context.upstreams()
    if form.upstream.data:
        return providers.find(form.upstream.data)
    if "local" in request.args or reason is decision.Why.AGAIN:
        return None
    return providers.of_email(form.email.data or "")


def _providers(current: CurrentSession | None, again: bool) -> list[Provider]:
    """Return all providers, or for reauthentication those that are linked to the account."""
    if not (again and current):
        return list(context.upstreams())
    linked = {identity.provider for identity in identities.of_user(current.user.id)}
    return [provider for provider in context.upstreams() if provider.id in linked]


def _ask(
    form: SignInForm,
    validated: authorize.Validated | None,
    current: CurrentSession | None,
    pending: PendingRequest | None,
    reason: decision.Why | None,
) -> Response:
    error, wait = None, 0
    again = reason is decision.Why.AGAIN
    if request.method == "POST":
        if form.validate():
            email = form.email.data or ""
            attempt, wait = page.try_once(email)
            user = None if wait else _authenticate(attempt, email, form.password.data or "")
            if user:
                goes_on = again and current is not None and current.user.id == user.id
                remember = current.session.remembered if goes_on and current else form.remember.data
                return second_factor.after_password(user, bool(remember), pending)
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
        client_name=agent_identity.title_of(validated.client) if validated else None,
        client_logo=page.logo_of(validated.client if validated else None),
        reauthenticate=again,
        notice=notice,
        waiting=waiting,
        providers=_providers(current, again),
        elsewhere="local" not in request.args
        and any(provider.domains for provider in context.upstreams()),
        can_sign_up=not again
        and (context.settings().sign_up != "off" or (waiting is not None and waiting[0].sign_up)),
    )


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
        client_name=agent_identity.title_of(validated.client) if validated else None,
        client_logo=page.logo_of(validated.client if validated else None),
        user=current.user,
    )


def _authenticate(attempt: limiting.Attempt, email: str, password: str) -> User | None:
    account = attempt.known_account
    user = users.find_by_email(email) if "\0" not in email else None
    imported = users.foreign_hash_methods()
    # The transaction must not wait for Argon2. A rollback would read the user again.
    db.session.commit()
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
