"""The end of every sign-in through an upstream provider, however it has authenticated the person.

Here it is decided whether they are signed in, link an identity, or have to prove themselves first.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from flask import redirect, url_for
from flask_babel import gettext
from flask_login import login_required
from werkzeug.wrappers import Response

from sso import audit
from sso.audit.events import Event
from sso.config.upstream.provider import Provider
from sso.endpoints import browser_session, page, pending_identity, second_factor
from sso.endpoints.forms import DecisionForm
from sso.extensions import db
from sso.flow.request import AuthorizationRequest
from sso.mfa import policy
from sso.observability import counters
from sso.services import identities
from sso.services.authentication import SignInEnded
from sso.services.identities import LinkRefused, ProveAccount, Refused
from sso.store.sessions import CurrentSession
from sso.upstream.identity import UpstreamIdentity
from sso.web import errors
from sso.web.pending_request import PendingRequest

SKEW = timedelta(minutes=1)  # between the provider's clock and ours


@dataclass(frozen=True)
class Attempt:
    """A sign-in through a provider, from the button on.

    `again`: the person has to authenticate again. `user_id`: who is signed in here, and adds
    the identity to their account. `hint`: the email address that was typed. `max_age`: the oldest
    sign-in, in seconds, that the application takes. `asked`: its request, while it begins.
    """

    provider: Provider
    pending: PendingRequest | None
    began_at: datetime
    remember: bool = False
    again: bool = False
    user_id: str | None = None
    hint: str | None = None
    max_age: int | None = None
    asked: AuthorizationRequest | None = None


def finish(attempt: Attempt, found: UpstreamIdentity) -> Response:
    """Go on after the provider has said who it is. Commits."""
    counters.upstream(attempt.provider.id, "ok")
    if attempt.user_id:
        return _link_own(attempt, found)
    provider = attempt.provider
    if attempt.again and provider.REDIRECTS and not _is_fresh(attempt, found):
        reason = "no fresh authentication"
        audit.event(Event.SIGN_IN_FAILED, method=provider.id, reason=reason)
        return _problem(
            provider,
            gettext("%(provider)s did not ask you to sign in again.", provider=provider.name),
        )
    if attempt.max_age is not None and provider.REDIRECTS and found.auth_time is None:
        audit.event(Event.SIGN_IN_FAILED, method=provider.id, reason="no auth_time")
        return _problem(
            provider,
            gettext("%(provider)s did not say when you signed in.", provider=provider.name),
        )
    try:
        resolved = identities.resolve(audit.USER, provider, found)
    except LinkRefused as error:
        return _problem(provider, gettext(str(error)))
    if isinstance(resolved, Refused):
        db.session.rollback()
        return _problem(provider, gettext(resolved.text))
    if isinstance(resolved, ProveAccount):
        db.session.rollback()
        pending_identity.keep(provider, found)
        return page.to_step("pages.sign_in", local="1")
    waiting = pending_identity.waiting()
    if waiting and waiting[0].id == provider.id:
        pending_identity.forget()  # another account there
    upstream = identities.note_session(resolved.identity, found)
    if found.auth_time is None or _is_fresh(attempt, found):
        upstream.auth_time = None  # just now
    try:
        return second_factor.after_upstream(
            resolved.user, provider, upstream, attempt.remember, attempt.pending
        )
    except SignInEnded:
        db.session.rollback()
        return page.to_step("pages.sign_in")


def _is_fresh(attempt: Attempt, found: UpstreamIdentity) -> bool:
    """Whether the person has proven themselves there since the attempt began."""
    return found.auth_time is not None and found.auth_time >= attempt.began_at - SKEW


def _link_own(attempt: Attempt, found: UpstreamIdentity) -> Response:
    current = browser_session.current_session()
    if current is None or str(current.user.id) != attempt.user_id:
        return page.confirm_first("identities")
    return _link(attempt.provider, found) or redirect(
        url_for("pages.identities", done="connected"), 303
    )


def _link(provider: Provider, found: UpstreamIdentity) -> Response | None:
    """Link it to the account that is signed in; the answer, if that is not possible. Commits."""
    current = page.signed_in()
    if policy.lock(current) is None or not may_link(current):
        db.session.rollback()
        return page.confirm_first("identities")
    try:
        identities.link(audit.USER, current.user, provider, found)
    except LinkRefused as error:
        db.session.rollback()
        return _problem(provider, gettext(str(error)))
    db.session.commit()
    return None


def may_link(current: CurrentSession) -> bool:
    """Whether this session may add a way to sign in, or remove one."""
    return policy.is_fresh(current) and not policy.lacks_second_factor(current)


@login_required
def connect() -> Response:
    """Asks whether to link the identity that waits to the account that has just signed in."""
    pending, waiting, current = page.pending_request(), pending_identity.waiting(), page.signed_in()
    if waiting is None:
        return page.after_sign_in(pending)
    provider, found = waiting
    form = DecisionForm()
    if form.validate_on_submit():
        if form.decision.data == "connect" and (answer := _link(provider, found)):
            return answer
        pending_identity.forget()
        return page.after_sign_in(pending)
    return page.render(
        "connect.html", form=form, user=current.user, provider=provider, identity=found
    )


def unavailable(provider: Provider, error: Exception) -> Response:
    """The page when a provider cannot be asked. The other ways to sign in stay open."""
    counters.upstream(provider.id, "unavailable")
    audit.event(Event.SIGN_IN_FAILED, method=provider.id, reason=f"unavailable: {error}"[:200])
    words = gettext("%(provider)s cannot be reached at the moment.", provider=provider.name)
    return _problem(provider, words, status=503)


def refused(provider: Provider, error: Exception) -> Response:
    """The page when a provider did not let the person in, or its answer is not accepted."""
    counters.upstream(provider.id, "refused")
    audit.event(Event.SIGN_IN_FAILED, method=provider.id, reason=str(error)[:200])
    words = gettext("The sign-in with %(provider)s did not succeed.", provider=provider.name)
    return _problem(provider, words)


def _problem(provider: Provider, message: str, status: int = 400) -> Response:
    return errors.page(
        message,
        status=status,
        title=gettext("You are not signed in"),
        hint=gettext("You can try again, or sign in another way."),
        link=(gettext("Back to the sign-in page"), page.step("pages.sign_in", local="1")),
    )
