"""What ends what: one function a cause. Nothing here commits; the cause's transaction does.

The table in the README is this file in words; tests/endpoints/test_what_ends_what.py
proves it. The order in each function: logout tokens are owed while the grants can still be found.
"""

from collections.abc import Iterable
from uuid import UUID

from sqlalchemy import or_

from sso import audit
from sso.models import BrowserSession, Client, Grant, User
from sso.store import consents, grants, logout_deliveries, sessions


def session(ended: BrowserSession, reason: str) -> None:
    """One sign-in, with what hangs on it; `offline_access` outlives it (OIDC Core §11)."""
    logout_deliveries.owe(Grant.session_id == ended.id)
    sessions.end([ended.id])
    grants.end_of_sessions([ended.id], reason)
    audit.event("session_ended", user=ended.user_id, sid=ended.id, reason=reason)


def sessions_of_user(user_id: UUID, reason: str, but: UUID | None = None) -> int:
    """All sign-ins of a user (but for one), with what hangs on them. Tells how many."""
    found = [one for one in sessions.of_user(user_id) if one.id != but]
    for one in found:
        session(one, reason)
    return len(found)


def everything_of_user(user_id: UUID, reason: str, but: UUID | None = None) -> None:
    """All sign-ins and all grants of a user, but for those of one session."""
    sessions_of_user(user_id, reason, but)
    if but is None:
        logout_deliveries.owe(Grant.user_id == user_id, Grant.ended_at.is_(None))
        grants.end_of_user(user_id, reason)
    else:
        other = or_(Grant.session_id.is_(None), Grant.session_id != but)
        logout_deliveries.owe(Grant.user_id == user_id, Grant.ended_at.is_(None), other)
        grants.end_of_user_but_session(user_id, but, reason)


def consent(user_id: UUID, client_id: str) -> None:
    """What a user allowed one client: the consent, and every grant."""
    consents.withdraw(user_id, client_id)
    _of_user_and_client(user_id, client_id, "consent_withdrawn")
    audit.event("consent_withdrawn", user=user_id, client=client_id)


def lost_memberships(users: Iterable[User], clients: Iterable[Client]) -> None:
    """What users have at clients that are for groups which they are not in (any more)."""
    restricted = [client for client in clients if client.groups]
    for user in users:
        for client in restricted:
            if not set(client.groups) & set(user.groups):
                _of_user_and_client(user.id, client.client_id, "group_lost")


def _of_user_and_client(user_id: UUID, client_id: str, reason: str) -> None:
    meant = (Grant.user_id == user_id, Grant.client_id == client_id)
    logout_deliveries.owe(*meant, Grant.ended_at.is_(None))
    grants.end_of_user_and_client(user_id, client_id, reason)
