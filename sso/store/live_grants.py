"""Reads a grant with everything that decides what it may still give, in one statement."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Select, Uuid, bindparam, select

from sso import clock
from sso.models import BrowserSession, Client, Consent, Grant, User
from sso.store import prepared
from sso.store.clients import RegisteredClient
from sso.store.users import USER_PROFILE, UserProfile

_GRANTS, _CONSENTS = prepared.table(Grant), prepared.table(Consent)


@dataclass(frozen=True)
class LiveGrant:
    """A grant that has not ended, and its user: what tokens are made from.

    Whether it may still give anything is for `flow.narrowing` to say.
    """

    id: UUID
    user_id: UUID
    client_id: str
    sid: str
    scope: str
    claims: dict[str, Any]
    auth_time: datetime
    amr: str
    acr: str | None
    created_at: datetime
    session_is_live: bool
    consented: str | None
    declined: str | None
    user: UserProfile

    def check_client(self, client: RegisteredClient) -> bool:
        """What Authlib asks a refresh token."""
        return self.client_id == client.client_id


_SESSION_IS_LIVE = BrowserSession.ended_at.is_(None) & (
    BrowserSession.expires_at > bindparam("now")
)
TODAY = (
    BrowserSession.id.is_not(None).label("grant_session_is_live"),
    _CONSENTS.c.scope.label("grant_consented"),
    _CONSENTS.c.declined.label("grant_declined"),
)
"""What `join_today` finds: whether the session is live, and the consent of the user."""
LIVE_GRANT = (*prepared.columns(LiveGrant, _GRANTS, "grant_"), *TODAY, *USER_PROFILE)
"""The columns that `live_grant_of` reads."""


def join_today(statement: Select[Any]) -> Select[Any]:
    """Join a grant with its live session, and with what its user allows its client by now.

    The statement has the parameter `now`.
    """
    is_its = (_CONSENTS.c.user_id == Grant.user_id) & (_CONSENTS.c.client_id == Grant.client_id)
    return statement.outerjoin(
        BrowserSession, (BrowserSession.id == Grant.session_id) & _SESSION_IS_LIVE
    ).outerjoin(_CONSENTS, is_its)


def join_live_grant(statement: Select[Any], grant_id: ColumnElement[UUID]) -> Select[Any]:
    """Join an enabled client with a grant of its own that has not ended, and its enabled user.

    The statement has the parameter `now`.
    """
    is_its_own = (Grant.id == grant_id) & (Grant.client_id == Client.client_id)
    return join_today(
        statement.outerjoin(Grant, is_its_own & Grant.ended_at.is_(None)).outerjoin(
            User, (User.id == Grant.user_id) & User.disabled_at.is_(None)
        )
    )


def live_grant_of(row: prepared.Row) -> LiveGrant | None:
    """What the columns of `LIVE_GRANT` hold, if grant and user were there to join."""
    if row["user_id"] is None:
        return None
    user = prepared.record(UserProfile, row, "user_")
    return prepared.record(LiveGrant, row, "grant_", user=user)


_FIND = join_live_grant(
    select(*LIVE_GRANT).select_from(Client), bindparam("grant_id", type_=Uuid())
).where(Client.client_id == bindparam("client"), Client.disabled_at.is_(None))


def find(connection: Connection, grant_id: UUID, client_id: str) -> LiveGrant | None:
    """A grant of this client that has not ended; its user and the client are enabled."""
    values = {"grant_id": grant_id, "client": client_id, "now": clock.now()}
    row = prepared.first(connection, _FIND, values)
    return live_grant_of(row) if row else None
