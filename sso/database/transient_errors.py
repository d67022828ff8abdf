"""Which database errors are temporary: a restart, a full pool, a lock, an outdated schema."""

from sqlalchemy.exc import (
    DBAPIError,
    InterfaceError,
    InvalidRequestError,
    OperationalError,
    SQLAlchemyError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout

from sso.process.program import COMMAND

OLD_SCHEMA = f"the schema is not the one of this program; run: {COMMAND} db upgrade"

# SQLSTATE of PostgreSQL.
_OLD_SCHEMA = ("42P01", "42703")  # undefined table, undefined column
_READ_ONLY = "25006"  # a standby, before it takes over
_IDLE = "25P03"  # idle in transaction for too long
# Connection exceptions, shutdowns of the server, an idle session that was ended.
_CLOSED = ("08", "57P01", "57P02", "57P03", "57P05")
# A prepared statement that another session has, or lacks: there is a pooler in between.
_OF_POOLER = ("26000", "42P05")


def is_lost(error: BaseException) -> bool:
    """Whether the driver's error makes this connection, and those like it, useless."""
    state = getattr(error, "sqlstate", None) or ""
    return state.startswith((*_CLOSED, _READ_ONLY, *_OF_POOLER))


def is_of_pooler(error: BaseException) -> bool:
    """Whether a driver's error shows that sessions are shared."""
    return getattr(error, "sqlstate", None) in _OF_POOLER


def reason(error: SQLAlchemyError) -> str | None:
    """Why to try again, without statement and values; `None` for a permanent error."""
    if isinstance(error, PoolTimeout):
        return "all connections of the pool are in use"
    if isinstance(error, InvalidRequestError) and "connection is closed" in str(error):
        return "the server closes its connections as soon as they are made"
    if not isinstance(error, DBAPIError):
        return None
    state, text = getattr(error.orig, "sqlstate", None), str(error.orig).strip()
    if state in _OLD_SCHEMA or "no such table" in text or "no such column" in text:
        return OLD_SCHEMA
    if (
        isinstance(error, OperationalError | InterfaceError)
        or error.connection_invalidated
        or state in (_READ_ONLY, _IDLE)
    ):
        return text.splitlines()[0] if text else type(error).__name__
    return None
