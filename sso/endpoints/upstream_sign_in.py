"""The completion of upstream sign-ins, and the page for a directory's password.

The completion is the same for all providers: the user is signed in, links an identity, or has to
sign in locally first. A password for a directory is sent to that directory only, and never compared
with a local one; local passwords are never sent to a directory.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from time import perf_counter

from flask import abort, redirect, request, url_for
from flask_babel import gettext, lazy_gettext
from flask_login import login_required
from werkzeug.wrappers import Response
from wtforms import BooleanField, StringField
from wtforms.validators import DataRequired, Length

from sso import audit, clock, context
from sso.audit.events import Event
from sso.config import email_addresses
from sso.config.upstream.ldap import LdapProvider
from sso.config.upstream.provider import Provider
from sso.endpoints import browser_session, page, second_factor
from sso.endpoints.forms import TOO_LONG, DecisionForm, password_field
from sso.extensions import db
from sso.flow.request import AuthorizationRequest
from sso.i18n import N_
from sso.ldap import account_state
from sso.ldap.directory import NotAllowed
from sso.mfa import policy
from sso.observability import counters
from sso.process import concurrency
from sso.ratelimit import limiting
from sso.ratelimit.limiting import DIRECTORY
from sso.services import identities as linking
from sso.services.authentication import SignInEnded
from sso.services.identities import LinkRefused, ProveAccount, Refused
from sso.store import identities, users
from sso.store.sessions import CurrentSession
from sso.upstream import ldap
from sso.upstream.identity import UpstreamIdentity, UpstreamUnavailable
from sso.web import errors
from sso.web.forms import PageForm
from sso.web.pending_request import PendingRequest

SKEW = timedelta(minutes=1)  # between the provider's clock and ours


@dataclass(frozen=True)
class Attempt:
    """A sign-in through a provider, beginning with the button.

    `again`: the user has to authenticate again. `user_id`: the signed-in user who adds the identity
    to the account. `hint`: the email address that was typed. `max_age`: the oldest sign-in, in
    seconds, that the application accepts. `request`: the application's request, unless the browser
    has just returned from the provider.
    """

    provider: Provider
    pending: PendingRequest | None
    began_at: datetime
    remember: bool = False
    again: bool = False
    user_id: str | None = None
    hint: str | None = None
    max_age: int | None = None
    request: AuthorizationRequest | None = None


def finish(attempt: Attempt, identity: UpstreamIdentity) -> Response:
    """Complete an attempt with the identity from the provider. Commits."""
    counters.upstream(attempt.provider.id, "ok")
    if attempt.user_id:
        return _link_own(attempt, identity)
    provider = attempt.provider
    if attempt.again and provider.REDIRECTS and not _is_fresh(attempt, identity):
        reason = "no fresh authentication"
        audit.event(Event.SIGN_IN_FAILED, method=provider.id, reason=reason)
        return _problem(
            provider,
            gettext("%(provider)s did not ask you to sign in again.", provider=provider.name),
        )
    if attempt.max_age is not None and provider.REDIRECTS and identity.auth_time is None:
        audit.event(Event.SIGN_IN_FAILED, method=provider.id, reason="no auth_time")
        return _problem(
            provider,
            gettext("%(provider)s did not say when you signed in.", provider=provider.name),
        )
    try:
        resolved = linking.resolve(audit.USER, provider, identity)
    except LinkRefused as error:
        return _problem(provider, gettext(str(error)))
    if isinstance(resolved, Refused):
        db.session.rollback()
        return _problem(provider, gettext(resolved.text))
    if isinstance(resolved, ProveAccount):
        db.session.rollback()
        browser_session.keep_pending_identity(provider, identity)
        return page.to_step("pages.sign_in", local="1")
    waiting = browser_session.pending_identity()
    if waiting and waiting[0].id == provider.id:
        browser_session.forget_pending_identity()  # another account there
    upstream = linking.note_session(resolved.identity, identity)
    if identity.auth_time is None or _is_fresh(attempt, identity):
        upstream.auth_time = None  # just now
    try:
        return second_factor.after_upstream(
            resolved.user, provider, upstream, attempt.remember, attempt.pending
        )
    except SignInEnded:
        db.session.rollback()
        return page.to_step("pages.sign_in")


def _is_fresh(attempt: Attempt, identity: UpstreamIdentity) -> bool:
    """Return whether the user authenticated at the provider after the attempt began."""
    return identity.auth_time is not None and identity.auth_time >= attempt.began_at - SKEW


def _link_own(attempt: Attempt, identity: UpstreamIdentity) -> Response:
    current = browser_session.current_session()
    if current is None or str(current.user.id) != attempt.user_id:
        return page.confirm_first("identities")
    return _link(attempt.provider, identity) or redirect(
        url_for("pages.identities", done="connected"), 303
    )


def _link(provider: Provider, identity: UpstreamIdentity) -> Response | None:
    """Link an identity to the signed-in account; return a page if it is refused. Commits."""
    current = page.signed_in()
    if policy.lock(current) is None or not may_link(current):
        db.session.rollback()
        return page.confirm_first("identities")
    try:
        linking.link(audit.USER, current.user, provider, identity)
    except LinkRefused as error:
        db.session.rollback()
        return _problem(provider, gettext(str(error)))
    db.session.commit()
    return None


def may_link(current: CurrentSession) -> bool:
    """Return whether this session may link or unlink identities."""
    return policy.is_fresh(current) and not policy.lacks_second_factor(current)


@login_required
def connect() -> Response:
    """Ask whether to link the pending identity to the account that has just signed in."""
    pending, waiting, current = (
        page.pending_request(),
        browser_session.pending_identity(),
        page.signed_in(),
    )
    if waiting is None:
        return page.after_sign_in(pending)
    provider, identity = waiting
    form = DecisionForm()
    if form.validate_on_submit():
        if form.decision.data == "connect" and (answer := _link(provider, identity)):
            return answer
        browser_session.forget_pending_identity()
        return page.after_sign_in(pending)
    return page.render(
        "connect.html", form=form, user=current.user, provider=provider, identity=identity
    )


def unavailable(provider: Provider, error: Exception) -> Response:
    """Render the page for a provider that is unavailable, and record the failure."""
    counters.upstream(provider.id, "unavailable")
    audit.event(Event.SIGN_IN_FAILED, method=provider.id, reason=f"unavailable: {error}"[:200])
    message = gettext("%(provider)s cannot be reached at the moment.", provider=provider.name)
    return _problem(provider, message, status=503)


def refused(provider: Provider, error: Exception) -> Response:
    """Render the page for a sign-in that failed at the provider, and record the failure."""
    counters.upstream(provider.id, "refused")
    audit.event(Event.SIGN_IN_FAILED, method=provider.id, reason=str(error)[:200])
    message = gettext("The sign-in with %(provider)s did not succeed.", provider=provider.name)
    return _problem(provider, message)


def _problem(provider: Provider, message: str, status: int = 400) -> Response:
    return errors.page(
        message,
        status=status,
        title=gettext("You are not signed in"),
        hint=gettext("You can try again, or sign in another way."),
        link=(gettext("Back to the sign-in page"), page.step("pages.sign_in", local="1")),
    )


class DirectoryForm(PageForm):
    """Name and password in a directory. The name may be an email address."""

    user_name = StringField(
        lazy_gettext("User name or email"),
        [
            DataRequired(N_("Enter your user name.")),
            Length(max=email_addresses.LONGEST, message=TOO_LONG),
        ],
    )
    password = password_field(lazy_gettext("Password"), N_("Enter your password."))
    remember = BooleanField(lazy_gettext("Keep me signed in on this device"))


def start_at_directory(attempt: Attempt) -> Response:
    """Show the page for the password, with the name that was typed before."""
    provider = attempt.provider
    assert isinstance(provider, LdapProvider)
    form = DirectoryForm()  # not validated: another form was submitted
    form.user_name.data, form.remember.data = attempt.hint or "", attempt.remember
    if attempt.again and (current := browser_session.current_session()):
        form.remember.data = current.session.remembered
    return _page(provider, form, is_linking=attempt.user_id is not None)


def directory_sign_in(provider_id: str) -> Response:
    """Ask for the name and password in a directory, and sign the user in."""
    provider = context.upstreams().find(provider_id)
    if not isinstance(provider, LdapProvider):
        abort(404)
    pending, form, is_linking = page.pending_request(), DirectoryForm(), "link" in request.args
    if request.method != "POST" or not form.validate():
        return _page(provider, form, is_linking=is_linking)
    current = browser_session.current_session() if is_linking else None
    if is_linking and current is None:
        return page.confirm_first("identities")
    login = form.user_name.data or ""
    attempt, wait = page.try_once(login)
    if wait:
        return _page(provider, form, limiting.waiting_time(wait), wait, is_linking)
    started_at = perf_counter()
    try:
        identity = _ask(provider, login, form.password.data or "")
    except UpstreamUnavailable as error:
        return unavailable(provider, error)
    except limiting.TooManyAttempts as error:
        concurrency.delay_refusal(started_at)
        return _page(
            provider, form, limiting.waiting_time(error.seconds), error.seconds, is_linking
        )
    except NotAllowed as error:
        attempt.failed()
        concurrency.delay_refusal(started_at)
        return _page(provider, form, _words(provider, error), is_linking=is_linking)
    attempt.passed()
    linking.enable_user(audit.USER, provider, identity)
    user_id = str(current.user.id) if current else None
    remember = bool(form.remember.data)
    return finish(Attempt(provider, pending, clock.now(), remember, user_id=user_id), identity)


def _ask(provider: LdapProvider, login: str, password: str) -> UpstreamIdentity:
    """Verify name and password, and return the identity. Ends the transaction.

    A wrong password counts against the account, whichever of its names was typed. Raises
    `NotAllowed`, `TooManyAttempts` and `UpstreamUnavailable`.
    """
    bind: limiting.Attempt | None = None
    user_id = None

    def admit(subject: str | None) -> None:
        nonlocal bind, user_id
        identity = identities.find(provider.issuer, subject) if subject else None
        user = users.find(identity.user_id) if identity else None
        user_id = user.id if user else None
        account = user.email if user else f"{provider.issuer}/{subject or '?' + login}"
        bind = limiting.enter(DIRECTORY, account)
        db.session.commit()  # the transaction must not wait for the directory

    db.session.commit()
    try:
        with concurrency.slot_released():
            identity = ldap.sign_in(provider, login, password, admit)
    except NotAllowed as error:
        audit.event(
            Event.SIGN_IN_FAILED, user=user_id, method=provider.id, reason=error.reason[:200]
        )
        db.session.commit()
        counters.upstream(provider.id, "refused")
        if bind:
            bind.failed()
        raise
    if bind:
        bind.passed()
    return identity


def _words(provider: LdapProvider, error: NotAllowed) -> str:
    """Return the message of a refusal; the reason only if the password was correct."""
    text = gettext("The name or the password is wrong.")
    if error.is_password_right:
        text = gettext("Your account in %(provider)s is disabled.", provider=provider.name)
        if error.reason == account_state.State.MUST_CHANGE:
            text = gettext(
                "Your password has expired. Change it in %(provider)s, then sign in here.",
                provider=provider.name,
            )
    return str(text)


def _page(
    provider: LdapProvider,
    form: DirectoryForm,
    error: str | None = None,
    wait: int = 0,
    is_linking: bool = False,
) -> Response:
    more = {"link": "1"} if is_linking else {}
    return page.render(
        "directory_sign_in.html",
        wait=wait,
        form=form,
        error=error,
        provider=provider,
        is_linking=is_linking,
        action=page.step("pages.directory_sign_in", provider_id=provider.id, **more),
    )
