"""What ends what: one function for each cause, in the transaction of the cause.

docs/explanation/revocation.md has the table, and tests/endpoints/test_what_ends_what.py proves that
table. The order in each function: logout tokens are queued while the grants can still be found.
What a user allowed an application, refused it or took back is a consent.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import ColumnElement, or_

from sso import audit
from sso.audit import Actor
from sso.audit.events import Event
from sso.models import BrowserSession, Client, Grant, User
from sso.store import grants, outbox, sessions, users
from sso.store.lists import batches

MOST_SESSIONS = 50  # sign-ins of one user, so that all of them can be ended at once
_AT_ONCE = 500  # sessions named in one statement


def session(ended: BrowserSession, reason: str) -> None:
    """One sign-in, with its grants; `offline_access` outlives it (OIDC Core §11)."""
    _sessions(ended.user_id, reason, BrowserSession.id == ended.id)


def sessions_of_user(user_id: UUID, reason: str, but: UUID | None = None) -> int:
    """All sign-ins of a user (but for one), with their grants. Returns how many.

    All device cookies are void; the caller renews that of the session that goes on.
    """
    users.forget_devices(user_id)
    others = [BrowserSession.id != but] if but else []
    return _sessions(user_id, reason, BrowserSession.user_id == user_id, *others)


def some_sessions(user_id: UUID, session_ids: Collection[UUID], reason: str) -> int:
    """These sign-ins of a user, with their grants. Returns how many."""
    few = list(session_ids)[:_AT_ONCE]
    return _sessions(user_id, reason, BrowserSession.id.in_(few)) if few else 0


def surplus_of_user(user_id: UUID) -> None:
    """The oldest sign-ins beyond `MOST_SESSIONS`, with their grants."""
    some_sessions(user_id, sessions.surplus(user_id, MOST_SESSIONS), "too_many")


def _sessions(user_id: UUID, reason: str, *conditions: ColumnElement[bool]) -> int:
    # First the sessions: a request for a grant in one of them now waits for us, and gets none.
    ended = sessions.end(*conditions)
    for some in batches(ended, _AT_ONCE):
        outbox.enqueue_logouts(Grant.session_id.in_(some))
        grants.end_of_sessions(some, reason)
    for sid in ended:
        audit.event(Event.SESSION_ENDED, user=user_id, sid=sid, reason=reason)
    return len(ended)


def everything_of_user(user_id: UUID, reason: str, but: UUID | None = None) -> None:
    """All sign-ins and all grants of a user, but for those of one session."""
    sessions_of_user(user_id, reason, but)
    if but is None:
        outbox.enqueue_logouts(Grant.user_id == user_id, Grant.ended_at.is_(None))
        grants.end_of_user(user_id, reason)
    else:
        other = or_(Grant.session_id.is_(None), Grant.session_id != but)
        outbox.enqueue_logouts(Grant.user_id == user_id, Grant.ended_at.is_(None), other)
        grants.end_of_user_but_session(user_id, but, reason)


def grants_of_user_and_client(user_id: UUID, client_id: str, reason: str) -> None:
    """Every grant that a user has given one client."""
    meant = (Grant.user_id == user_id, Grant.client_id == client_id)
    outbox.enqueue_logouts(*meant, Grant.ended_at.is_(None))
    grants.end_of_user_and_client(user_id, client_id, reason)


def end_lost_access(people: Iterable[User], clients: Iterable[Client]) -> None:
    """End the grants of users at clients that are for groups which they are not in (any more)."""
    restricted = [client for client in clients if client.groups]
    for user in people:
        for client in restricted:
            if not client.admits(user.groups):
                grants_of_user_and_client(user.id, client.client_id, "group_lost")


@audit.acting
def remember_consent(
    actor: Actor, user_id: UUID, client_id: str, allowed: Sequence[str], declined: Sequence[str]
) -> datetime:
    """Remember the scopes that were allowed and declined; returns the moment that is noted."""
    given_at = grants.remember_consent(user_id, client_id, allowed, declined)
    audit.own_event(Event.CONSENT_GIVEN, user_id, client=client_id, scope=" ".join(allowed))
    return given_at


@audit.acting
def deny_consent(actor: Actor, user_id: UUID, client_id: str) -> None:
    """Record that the user refused; nothing is remembered."""
    audit.own_event(Event.CONSENT_DENIED, user_id, client=client_id)


@audit.acting
def withdraw_consent(actor: Actor, user_id: UUID, client_id: str) -> None:
    """Forget what was allowed, and end every grant of the client for this user."""
    users.lock(user_id)  # before the consent, as in `approvals.add`
    grants.withdraw_consent(user_id, client_id)
    grants_of_user_and_client(user_id, client_id, "consent_withdrawn")
    audit.own_event(Event.CONSENT_WITHDRAWN, user_id, client=client_id)
