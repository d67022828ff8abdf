"""Statements about grants: one approval, and the end of everything that it gave."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    bindparam,
    exists,
    func,
    insert,
    literal,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.orm import contains_eager, scoped_session

from sso import clock
from sso.extensions import db
from sso.models import BrowserSession, Client, Consent, Grant, Token, User
from sso.store import client_turn, prepared, unredeemed
from sso.store.statements import without_time_limit

_GRANTS, _CONSENTS = prepared.table(Grant), prepared.table(Consent)
_USERS, _SESSIONS = prepared.table(User), prepared.table(BrowserSession)
_NEW = (
    "id", "user_id", "client_id", "session_id", "sid", "scope", "claims", "auth_time", "amr",
    "acr", "created_at",
)  # fmt: skip

# FOR SHARE: people sign in beside each other, but the client's row waits. Everybody locks in this
# order: client, user, session, consent, codes, grants.
_CLIENT_AS_SEEN = (
    select(Client.client_id)
    .where(
        Client.client_id == bindparam("client_id"),
        Client.updated_at == bindparam("client_seen"),
        Client.disabled_at.is_(None),
        client_turn.shared(Client.client_id),
    )
    .with_for_update(read=True)
    .subquery()
)
_VISIT = (
    select(*(bindparam(name, type_=_GRANTS.c[name].type).label(name) for name in _NEW))
    .select_from(User)
    .join(BrowserSession, BrowserSession.user_id == User.id)
    .join(_CLIENT_AS_SEEN, true())
    .where(
        BrowserSession.id == bindparam("session_id"),
        BrowserSession.ended_at.is_(None),
        User.updated_at == bindparam("user_seen"),
        User.disabled_at.is_(None),
    )
)
_BY_CONSENT = _VISIT.join(
    _CONSENTS,
    (_CONSENTS.c.user_id == User.id) & (_CONSENTS.c.client_id == bindparam("client_id")),
).where(_CONSENTS.c.updated_at == bindparam("consent_seen"))
# Before grants are dropped: an ending locks these first, and the grants last.
_IN_ORDER = (
    select(literal(1).label("is_locked"))
    .select_from(User)
    .join(BrowserSession, BrowserSession.user_id == User.id)
    .join(_CLIENT_AS_SEEN, true())
    .where(User.id == bindparam("user_id"), BrowserSession.id == bindparam("session_id"))
    .with_for_update(key_share=True, of=(_USERS, _SESSIONS))
)
_FEW = ~unredeemed.ARE_MANY
_ADD, _ADD_ONE_OF_MANY, _ADD_BY_CONSENT, _ADD_ONE_OF_MANY_BY_CONSENT = (
    insert(_GRANTS)
    # Nobody ends them until we commit; who waits for that finds the new grant, and ends it, too.
    # Not FOR SHARE: two tabs would hold it together, and then each wait to note its visit.
    .from_select(_NEW, state.with_for_update(key_share=True, of=of), include_defaults=False)
    .execution_options(preserve_rowcount=True)  # SQLAlchemy keeps it for UPDATE and DELETE alone
    for state, of in (
        (_VISIT.where(_FEW), (_USERS, _SESSIONS)),
        (_VISIT, (_USERS, _SESSIONS)),
        (_BY_CONSENT.where(_FEW), (_USERS, _SESSIONS, _CONSENTS)),
        (_BY_CONSENT, (_USERS, _SESSIONS, _CONSENTS)),
    )
)


def add(
    connection: Connection,
    client_seen: datetime,
    user_seen: datetime,
    consent_seen: datetime | None,
    codes_since: datetime,
    **columns: Any,
) -> UUID | None:
    """Store an approval; gives its id.

    `None` if what the decision was made from has changed meanwhile: the client or the user was
    changed, the session has ended, the consent was given again or withdrawn. One statement looks
    and writes. Of the user's grants whose codes wait since `codes_since`, the oldest go if there
    are too many.
    """
    grant_id = uuid4()
    values = {
        "id": grant_id,
        "created_at": clock.now(),
        "client_seen": client_seen,
        "user_seen": user_seen,
        "codes_since": codes_since,
        **columns,
    }
    add, add_one_of_many = _ADD, _ADD_ONE_OF_MANY
    if consent_seen is not None:
        add, add_one_of_many = _ADD_BY_CONSENT, _ADD_ONE_OF_MANY_BY_CONSENT
        values["consent_seen"] = consent_seen
    is_added = prepared.changed(connection, add, values) or (
        unredeemed.are_many(connection, columns["user_id"], codes_since)
        and _lock_in_order(connection, values)
        and unredeemed.drop_oldest(connection, columns["user_id"], codes_since)
        and prepared.changed(connection, add_one_of_many, values)
    )
    return grant_id if is_added else None


def _lock_in_order(connection: Connection, values: Mapping[str, Any]) -> bool:
    """Lock client, user and session, in the transaction that the first attempt has begun; whether
    the client is as it was seen."""
    names = ("client_id", "client_seen", "user_id", "session_id")
    values = {name: values[name] for name in names}
    return prepared.first(connection, _IN_ORDER, values) is not None


_IS_OFFLINE = (literal(" ") + Grant.scope + " ").contains(" offline_access ", autoescape=True)


class Access(NamedTuple):
    """What one application has from one user: since when, and when it last got tokens."""

    client: Client
    scope: str
    since: datetime
    last_used: datetime | None


def accesses_of(user_id: UUID) -> list[Access]:
    """The applications that have something from a user: a consent, or a grant that lives."""
    given = db.session.execute(
        select(Client, Consent)
        .join(Consent, Consent.client_id == Client.client_id)
        .where(Consent.user_id == user_id)
    )
    used = db.session.execute(
        select(Client, func.min(Grant.created_at), func.max(Token.issued_at), func.max(Grant.scope))
        .join(Grant, Grant.client_id == Client.client_id)
        .outerjoin(Token, Token.grant_id == Grant.id)
        .where(Grant.user_id == user_id, Grant.ended_at.is_(None))
        .group_by(Client.client_id)
    )
    found = {
        client.client_id: Access(client, consent.scope, consent.created_at, None)
        for client, consent in given
    }
    for client, since, last_used, scope in used:
        before = found.get(client.client_id)
        found[client.client_id] = Access(
            client,
            before.scope if before else scope,
            min(before.since, since) if before else since,
            last_used,
        )
    return sorted(found.values(), key=lambda access: access.client.name.lower())


MOST_COUNTED = 1000


def live_at(client_id: str, limit: int) -> tuple[int, Sequence[Grant]]:
    """How many grants of a client live, up to `MOST_COUNTED`, and the newest with their users."""
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
    found = db.session.scalars(
        joined.options(contains_eager(Grant.user)).order_by(Grant.created_at.desc()).limit(limit)
    ).all()
    return int(count or 0), found


def end(
    on: Connection | scoped_session[Any], reason: str, *conditions: ColumnElement[bool]
) -> None:
    """End the grants that meet the conditions; their codes and tokens end with them.

    A session writes first what waits in it, so that rows are locked in the order of `add`. Grants
    are locked client by client, as by somebody who changes several.
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
    """End the grants of browser sessions, but for those with `offline_access`."""
    end(db.session, reason, Grant.session_id.in_(session_ids), ~_IS_OFFLINE)


def end_of_user(user_id: UUID, reason: str) -> None:
    """End all grants of a user."""
    end(db.session, reason, Grant.user_id == user_id)


def end_of_user_and_client(user_id: UUID, client_id: str, reason: str) -> None:
    """End what one user gave one client."""
    end(db.session, reason, Grant.user_id == user_id, Grant.client_id == client_id)


def end_of_user_but_session(user_id: UUID, session_id: UUID, reason: str) -> None:
    """End all grants of a user but for those of one browser session."""
    other = or_(Grant.session_id.is_(None), Grant.session_id != session_id)
    end(db.session, reason, Grant.user_id == user_id, other)


def end_of_client(client_id: str, reason: str) -> None:
    """End all grants of a client, maybe millions."""
    without_time_limit()
    end(db.session, reason, Grant.client_id == client_id)
