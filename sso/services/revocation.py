"""Revocation: end sessions and grants, with one function for each cause, in its transaction.

The table is in docs/explanation/revocation.md; tests/endpoints/test_what_ends_what.py proves it.
Each function queues the logout tokens first, while the grants can still be found. Consents are
here, too: they are remembered, denied and withdrawn.
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
    """End a session with its grants; `offline_access` outlives it (OIDC Core §11)."""
    _sessions(ended.user_id, reason, BrowserSession.id == ended.id)


def sessions_of_user(user_id: UUID, reason: str, but: UUID | None = None) -> int:
    """End all sessions of a user, except `but`, with their grants; return their number.

    All device cookies become invalid; the caller renews the cookie of the remaining session. So do
    sign-ins that wait for their second factor.
    """
    users.forget_devices(user_id)
    conditions = [BrowserSession.id != but] if but else []
    return _sessions(user_id, reason, BrowserSession.user_id == user_id, *conditions)


def some_sessions(user_id: UUID, session_ids: Collection[UUID], reason: str) -> int:
    """End these sessions of a user, with their grants; return their number."""
    few = list(session_ids)[:_AT_ONCE]
    return _sessions(user_id, reason, BrowserSession.id.in_(few)) if few else 0


def surplus_of_user(user_id: UUID) -> None:
    """End the oldest sessions beyond `MOST_SESSIONS`, with their grants."""
    some_sessions(user_id, sessions.surplus(user_id, MOST_SESSIONS), "too_many")


def _sessions(user_id: UUID, reason: str, *conditions: ColumnElement[bool]) -> int:
    # Sessions first: a request for a grant in one of them waits for this, and then gets none.
    ended = sessions.end(*conditions)
    for batch in batches(ended, _AT_ONCE):
        outbox.enqueue_logouts(Grant.session_id.in_(batch))
        grants.end_of_sessions(batch, reason)
    for sid in ended:
        audit.event(Event.SESSION_ENDED, user=user_id, sid=sid, reason=reason)
    return len(ended)


def everything_of_user(user_id: UUID, reason: str, but: UUID | None = None) -> None:
    """End all sessions and all grants of a user, except the session `but` and its grants."""
    sessions_of_user(user_id, reason, but)
    if but is None:
        outbox.enqueue_logouts(Grant.user_id == user_id, Grant.ended_at.is_(None))
        grants.end_of_user(user_id, reason)
    else:
        other = or_(Grant.session_id.is_(None), Grant.session_id != but)
        outbox.enqueue_logouts(Grant.user_id == user_id, Grant.ended_at.is_(None), other)
        grants.end_of_user_but_session(user_id, but, reason)


def grants_of_user_and_client(user_id: UUID, client_id: str, reason: str) -> None:
    """End every grant of a user at one client."""
    conditions = (Grant.user_id == user_id, Grant.client_id == client_id)
    outbox.enqueue_logouts(*conditions, Grant.ended_at.is_(None))
    grants.end_of_user_and_client(user_id, client_id, reason)


def end_lost_access(people: Iterable[User], clients: Iterable[Client]) -> None:
    """End the grants of users at clients that no longer admit them because of their groups."""
    restricted = [client for client in clients if client.groups]
    for user in people:
        for client in restricted:
            if not client.admits(user.groups):
                grants_of_user_and_client(user.id, client.client_id, "group_lost")


@audit.acting
def remember_consent(
    actor: Actor, user_id: UUID, client_id: str, allowed: Sequence[str], declined: Sequence[str]
) -> datetime:
    """Store the scopes that were allowed and declined; return the time of the consent."""
    given_at = grants.remember_consent(user_id, client_id, allowed, declined)
    scope = audit.Uncut(" ".join(allowed))  # as many names as the page of consent can have
    audit.own_event(Event.CONSENT_GIVEN, user_id, client=client_id, scope=scope)
    return given_at


@audit.acting
def deny_consent(actor: Actor, user_id: UUID, client_id: str) -> None:
    """Record that the user denied access; no consent is stored."""
    audit.own_event(Event.CONSENT_DENIED, user_id, client=client_id)


@audit.acting
def withdraw_agents(actor: Actor, user_id: UUID) -> int:
    """End the access of all agents of a user; return how many there were."""
    users.lock(user_id)  # before the consents, as in `approvals.add`
    client_ids = grants.agents_of(user_id)
    for client_id in client_ids:
        withdraw_consent(actor, user_id, client_id)
    return len(client_ids)


@audit.acting
def withdraw_consent(actor: Actor, user_id: UUID, client_id: str) -> None:
    """Delete the user's consent for a client, and end its grants for this user."""
    users.lock(user_id)  # before the consent, as in `approvals.add`
    grants.withdraw_consent(user_id, client_id)
    grants_of_user_and_client(user_id, client_id, "consent_withdrawn")
    audit.own_event(Event.CONSENT_WITHDRAWN, user_id, client=client_id)
