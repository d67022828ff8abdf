"""Identifiers that count only once: of client assertions, request objects and DPoP proofs."""

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Integer, Select, String, bindparam, literal_column, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.dml import Insert

from sso.crypto import secrets
from sso.extensions import UtcDateTime
from sso.models import UsedOnce
from sso.store import prepared

KEPT = 20_000  # unexpired identifiers of a holder
_TABLE = prepared.table(UsedOnce)


class TooManyUsed(Exception):
    """The holder has too many unexpired identifiers for another one to be kept."""


def _insert(dialect: "type[postgresql.Insert] | type[sqlite.Insert]") -> Insert:
    held: Select[Any] = select(literal_column("1")).where(
        _TABLE.c.holder == bindparam("holder", type_=String),
        _TABLE.c.expires_at > bindparam("now", type_=UtcDateTime),
    )
    is_full = held.offset(bindparam("others", type_=Integer)).limit(1).exists()
    row = select(
        bindparam("digest", type_=String),
        bindparam("holder", type_=String),
        bindparam("expires_at", type_=UtcDateTime),
    ).where(~is_full)
    made = dialect(_TABLE).from_select(["digest", "holder", "expires_at"], row)
    return made.on_conflict_do_nothing()


_ADD = {"postgresql": _insert(postgresql.Insert), "sqlite": _insert(sqlite.Insert)}
_FIND = select(_TABLE.c.digest).where(_TABLE.c.digest == bindparam("digest"))


def use_once(
    connection: Connection,
    kind: str,
    holder: str,
    identifier: str,
    *,
    now: datetime,
    expires_at: datetime,
) -> bool:
    """Whether an identifier is used for the first time. Atomic, in one statement.

    `kind` and `holder` (a client ID, or a key's thumbprint) say whose identifier it is.
    `expires_at`: when it can no longer be presented. Only what the transaction commits counts; one
    that is rolled back frees the identifier. Raises `TooManyUsed`.
    """
    digest = secrets.digest(f"{kind}\n{holder}\n{identifier}")
    values = {
        "digest": digest,
        "holder": holder,
        "now": now,
        "expires_at": expires_at,
        "others": KEPT - 1,
    }
    if prepared.changed(connection, _ADD[connection.dialect.name], values):
        return True
    if prepared.first(connection, _FIND, {"digest": digest}) is None:
        raise TooManyUsed(holder)
    return False
