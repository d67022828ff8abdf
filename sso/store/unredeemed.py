"""Grants whose codes were never redeemed: how many one user may have at a time.

Anybody who is signed in can have codes made in a loop. Anyone who has too many waiting loses the
oldest ones, which no application will come back for; nobody is refused, and nothing piles up.
"""

from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, bindparam, delete, exists, func, literal, select

from sso.extensions import db
from sso.models import AuthorizationCode, Grant
from sso.store import prepared

MOST = 300
_AT_ONCE = 50  # are dropped, so that a flood pays for this only now and then

_GRANTS, _CODES = prepared.table(Grant), prepared.table(AuthorizationCode)
_WITH_CODES = _CODES.join(_GRANTS, _GRANTS.c.id == _CODES.c.grant_id)
_ARE_UNREDEEMED = (
    (_GRANTS.c.user_id == bindparam("user_id"))
    & (_GRANTS.c.created_at > bindparam("codes_since"))
    & _CODES.c.used_at.is_(None)
)
_COUNT = select(func.count().label("count")).select_from(
    select(_CODES.c.digest)
    .select_from(_WITH_CODES)
    .where(_ARE_UNREDEEMED)
    .limit(literal(MOST))
    .subquery()
)
ARE_MANY = exists(
    select(_GRANTS.c.created_at)
    .where(_GRANTS.c.user_id == bindparam("user_id"))
    .where(_GRANTS.c.created_at > bindparam("codes_since"))
    .order_by(_GRANTS.c.created_at)
    .limit(1)
    .offset(MOST - 1)
)
"""Whether `user_id` got as many codes since `codes_since`, redeemed or not: the index can tell."""
_TELL_MANY = select(ARE_MANY.label("are_many"))


def are_many(connection: Connection, user_id: UUID, codes_since: datetime) -> bool:
    """Whether a user got so many codes that those which wait have to be counted."""
    values = {"user_id": user_id, "codes_since": codes_since}
    found = prepared.first(connection, _TELL_MANY, values)
    return found is not None and bool(found["are_many"])


def drop_oldest(connection: Connection, user_id: UUID, codes_since: datetime) -> bool:
    """Delete the oldest grants whose codes wait, if there are too many; whether there is room.

    The caller has locked client, user and session, as everybody does who ends grants. The codes
    come before the grants, as in their redemption; one that is being redeemed is left alone.
    """
    values = {"user_id": user_id, "codes_since": codes_since}
    found = prepared.first(connection, _COUNT, values)
    if found is None or found["count"] < MOST:
        return True  # most were redeemed, or another request of the user has dropped some
    oldest = (
        select(_CODES.c.grant_id)
        .select_from(_WITH_CODES)
        .where(_ARE_UNREDEEMED)
        .order_by(_GRANTS.c.created_at)
        .limit(_AT_ONCE)
        .with_for_update(of=_CODES, skip_locked=True)
    )
    ids = connection.scalars(oldest, values).all()
    connection.execute(delete(_GRANTS).where(_GRANTS.c.id.in_(ids)))
    return bool(ids)


def drop_all(user_id: UUID) -> None:
    """Delete a user's grants without a trace, as no application has redeemed their codes."""
    db.session.execute(delete(_GRANTS).where(_GRANTS.c.user_id == user_id))
