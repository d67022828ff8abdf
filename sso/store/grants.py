"""Statements about grants and consents: list, read and end them.

A live grant is read in one statement with everything that narrows the tokens it may still give.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Uuid,
    and_,
    bindparam,
    delete,
    exists,
    func,
    literal,
    or_,
    select,
    union,
    update,
)
from sqlalchemy.orm import contains_eager, scoped_session

from sso import clock
from sso.database import dialects
from sso.extensions import db
from sso.flow.resources import qualified
from sso.models import BrowserSession, Client, Consent, Grant, Token, User
from sso.store import clients, lists, prepared
from sso.store.clients import RegisteredClient
from sso.store.users import ENABLED, USER_PROFILE, UserProfile, profile_of

_IS_OFFLINE = (literal(" ") + Grant.scope + " ").contains(" offline_access ", autoescape=True)


class Access(NamedTuple):
    """The access of one application to one user's data, and when it last got tokens."""

    client: Client
    scope: str
    since: datetime
    last_used: datetime | None
    address: str | None  # that requested the last tokens


def accesses_of(user_id: UUID) -> list[Access]:
    """Return the applications that have a user's consent or a live grant, by name.

    One statement.
    """
    live = (Grant.user_id == user_id, Grant.ended_at.is_(None))
    ids = union(
        select(Consent.client_id.label("client_id")).where(Consent.user_id == user_id),
        select(Grant.client_id.label("client_id")).where(*live),
    ).subquery()
    granted = (
        select(
            Grant.client_id,
            func.min(Grant.created_at).label("since"),
            func.max(Grant.scope).label("scope"),
        )
        .where(*live)
        .group_by(Grant.client_id)
        .subquery()
    )
    newest_first = func.row_number().over(
        partition_by=Grant.client_id, order_by=(Token.issued_at.desc(), Token.jti)
    )
    issued = (
        select(Grant.client_id, Token.issued_at, Token.address, newest_first.label("place"))
        .join(Token, Token.grant_id == Grant.id)
        .where(*live)
        .subquery()
    )
    columns = (granted.c.since, granted.c.scope, issued.c.issued_at, issued.c.address)
    rows = db.session.execute(
        select(Client, Consent, *columns)
        .join(ids, ids.c.client_id == Client.client_id)
        .outerjoin(Consent, (Consent.client_id == Client.client_id) & (Consent.user_id == user_id))
        .outerjoin(granted, granted.c.client_id == Client.client_id)
        .outerjoin(issued, (issued.c.client_id == Client.client_id) & (issued.c.place == 1))
    )
    accesses = [
        Access(
            client,
            consent.scope if consent else scope,
            min(moment for moment in (since, consent and consent.created_at) if moment),
            last_used,
            address,
        )
        for client, consent, since, scope, last_used, address in rows
    ]
    return sorted(accesses, key=lambda access: access.client.name.lower())


def agents_of(user_id: UUID) -> Sequence[str]:
    """Return the identifiers of the agents that have a user's consent or a live grant."""
    ids = union(
        select(Consent.client_id).where(Consent.user_id == user_id),
        select(Grant.client_id).where(Grant.user_id == user_id, Grant.ended_at.is_(None)),
    )
    return db.session.scalars(
        select(Client.client_id)
        .where(Client.registration.is_not(None), Client.client_id.in_(ids))
        .order_by(Client.client_id)
    ).all()


MOST_COUNTED = 1000


def live_at(client_id: str, limit: int) -> tuple[int, Sequence[Grant]]:
    """Return the number of a client's live grants, up to `MOST_COUNTED`, and the newest ones with
    their users.
    """
    now = clock.now()
    session_lives = and_(BrowserSession.ended_at.is_(None), BrowserSession.expires_at > now)
    live = and_(
        Grant.client_id == client_id,
        Grant.ended_at.is_(None),
        or_(session_lives, _IS_OFFLINE),
        exists().where(
            Token.grant_id == Grant.id,
            or_(Token.expires_at > now, Token.refresh_expires_at > now),
        ),
    )
    joined = select(Grant).join(Grant.user).outerjoin(Grant.session).where(live)
    counted = joined.limit(MOST_COUNTED).subquery()
    count = db.session.scalar(select(func.count()).select_from(counted))
    newest = db.session.scalars(
        joined.options(contains_eager(Grant.user)).order_by(Grant.created_at.desc()).limit(limit)
    ).all()
    return int(count or 0), newest


def end(
    on: Connection | scoped_session[Any], reason: str, *conditions: ColumnElement[bool]
) -> None:
    """End the grants that meet the conditions, and with them their codes and tokens.

    A session first writes its pending changes, so that rows are locked in the order of
    `approvals.add`. Grants are locked client by client, as in a change of several clients.
    """
    live = and_(Grant.ended_at.is_(None), *conditions)
    in_order = select(Grant.id).where(live).order_by(Grant.client_id, Grant.id)
    on.execute(
        update(Grant)
        .where(Grant.id.in_(in_order.with_for_update(key_share=True)), Grant.ended_at.is_(None))
        .values(ended_at=clock.now(), end_reason=reason)
        .execution_options(synchronize_session=False)
    )


def end_one(on: Connection | scoped_session[Any], grant_id: UUID, reason: str) -> None:
    """End one grant."""
    end(on, reason, Grant.id == grant_id)


def end_of_sessions(session_ids: Sequence[UUID], reason: str) -> None:
    """End the grants of browser sessions, except those with `offline_access`."""
    end(db.session, reason, Grant.session_id.in_(session_ids), ~_IS_OFFLINE)


def end_of_user(user_id: UUID, reason: str) -> None:
    """End all grants of a user."""
    end(db.session, reason, Grant.user_id == user_id)


def end_of_user_and_client(user_id: UUID, client_id: str, reason: str) -> None:
    """End all grants that one user gave one client."""
    end(db.session, reason, Grant.user_id == user_id, Grant.client_id == client_id)


def end_of_user_but_session(user_id: UUID, session_id: UUID, reason: str) -> None:
    """End all grants of a user except those of one browser session."""
    is_of_other = or_(Grant.session_id.is_(None), Grant.session_id != session_id)
    end(db.session, reason, Grant.user_id == user_id, is_of_other)


_GRANTS, _CONSENTS = prepared.table(Grant), prepared.table(Consent)


@dataclass(frozen=True)
class LiveGrant:
    """A grant that has not ended, and its user: tokens are made from it.

    `flow.narrowing` decides what it may still give.
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
        """Return whether the grant belongs to a client: Authlib asks this of a refresh token."""
        return self.client_id == client.client_id


_SESSION_IS_LIVE = BrowserSession.ended_at.is_(None) & (
    BrowserSession.expires_at > bindparam("now")
)
TODAY = (
    # An assertion of another server gives a grant without a session, whose `sid` is empty.
    or_(BrowserSession.id.is_not(None), Grant.sid == "").label("grant_session_is_live"),
    _CONSENTS.c.scope.label("grant_consented"),
    _CONSENTS.c.declined.label("grant_declined"),
)
"""The columns that `join_today` adds: whether the session is live, and the user's consent."""
LIVE_GRANT = (*prepared.columns(LiveGrant, _GRANTS, "grant_"), *TODAY, *USER_PROFILE)
"""The columns that `live_grant_of` reads."""


def join_today(statement: Select[Any]) -> Select[Any]:
    """Join a grant with its live session and with its user's current consent for its client.

    The statement has the parameter `now`.
    """
    is_its = (_CONSENTS.c.user_id == Grant.user_id) & (_CONSENTS.c.client_id == Grant.client_id)
    return statement.outerjoin(
        BrowserSession, (BrowserSession.id == Grant.session_id) & _SESSION_IS_LIVE
    ).outerjoin(_CONSENTS, is_its)


def join_live_grant(statement: Select[Any], grant_id: ColumnElement[UUID]) -> Select[Any]:
    """Join a client with one of its grants that has not ended, and with the grant's enabled user.

    The statement has the parameter `now`.
    """
    is_its_own = (Grant.id == grant_id) & (Grant.client_id == Client.client_id)
    return join_today(
        statement.outerjoin(Grant, is_its_own & Grant.ended_at.is_(None)).outerjoin(
            User, (User.id == Grant.user_id) & ENABLED
        )
    )


def live_grant_of(row: prepared.Row) -> LiveGrant | None:
    """Return the grant in the columns of `LIVE_GRANT`; `None` if grant or user was not joined."""
    if row["user_id"] is None:
        return None
    user = profile_of(row)
    return prepared.record(LiveGrant, row, "grant_", user=user)


_FIND = join_live_grant(
    select(*LIVE_GRANT).select_from(Client), bindparam("grant_id", type_=Uuid())
).where(Client.client_id == bindparam("client"), Client.disabled_at.is_(None))


def find_live_grant(connection: Connection, grant_id: UUID, client_id: str) -> LiveGrant | None:
    """Return a grant of this client that has not ended, if its user and the client are enabled."""
    values = {"grant_id": grant_id, "client": client_id, "now": clock.now()}
    row = prepared.first(connection, _FIND, values)
    return live_grant_of(row) if row else None


_FIND_WITH_CLIENT = join_live_grant(
    select(*clients.COLUMNS, *LIVE_GRANT).select_from(Client), bindparam("grant_id", type_=Uuid())
).where(Client.client_id == bindparam("client"), Client.disabled_at.is_(None))


def find_with_client(
    connection: Connection, client_id: str, grant_id: UUID | None
) -> tuple[RegisteredClient | None, LiveGrant | None]:
    """Return the enabled client, and its grant as `find_live_grant` does. One statement."""
    values = {"grant_id": grant_id, "client": client_id, "now": clock.now()}
    row = prepared.first(connection, _FIND_WITH_CLIENT, values)
    return (clients.registered_client(row), live_grant_of(row)) if row else (None, None)


def find_consent(user_id: UUID, client_id: str) -> Consent | None:
    return db.session.scalar(
        select(Consent).where(Consent.user_id == user_id, Consent.client_id == client_id)
    )


def remember_consent(
    user_id: UUID, client_id: str, allowed: Iterable[str], declined: Iterable[str] = ()
) -> datetime:
    """Store the allowed and the declined scopes beside earlier decisions about other scopes; return
    the time of the consent. Two tabs may do so at once.
    """
    now = clock.now()
    key = {"user_id": user_id, "client_id": client_id}
    row = {**key, "scope": "", "declined": "", "created_at": now, "updated_at": now}
    dialects.insert_or_ignore(Consent, [row])
    consent = db.session.scalars(
        select(Consent)
        .where(Consent.user_id == user_id, Consent.client_id == client_id)
        .with_for_update()
        .execution_options(populate_existing=True)
    ).one()
    consent.scope = _merged(consent.scope, allowed, declined)
    consent.declined = _merged(consent.declined, declined, allowed)
    consent.updated_at = now
    db.session.flush()
    return now


def take_over_consents(rows: Sequence[tuple[UUID, str, str]]) -> None:
    """Store consents that users gave at another server: user, client, scopes. Decisions that are
    here stay.
    """
    now = clock.now()
    values = [
        {"user_id": user_id, "client_id": client_id, "scope": scope, "declined": "",
         "created_at": now, "updated_at": now}
        for user_id, client_id, scope in rows
    ]  # fmt: skip
    for batch in lists.batches(values, 1_000):
        dialects.insert_or_ignore(Consent, batch)


def _merged(scope: str, added: Iterable[str], removed: Iterable[str]) -> str:
    without = set(removed)
    names = dict.fromkeys((*scope.split(), *added))
    return " ".join(name for name in names if name not in without)


def withdraw_consent(user_id: UUID, client_id: str) -> None:
    """Delete the consent of a user for a client. The caller ends the grants."""
    db.session.execute(
        delete(Consent).where(Consent.user_id == user_id, Consent.client_id == client_id)
    )


def forget_api(identifier: str) -> None:
    """Remove the scopes of an API from all consents: nobody has approved them for another API."""
    part = qualified(identifier, "")
    mentioned = or_(
        Consent.scope.contains(part, autoescape=True),
        Consent.declined.contains(part, autoescape=True),
    )
    for consent in db.session.scalars(select(Consent).where(mentioned)):
        for name in ("scope", "declined"):
            names = getattr(consent, name).split()
            remaining = [scope for scope in names if not scope.startswith(part)]
            setattr(consent, name, " ".join(remaining))
    db.session.flush()
