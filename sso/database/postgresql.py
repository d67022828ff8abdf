"""The connections to PostgreSQL: a pool per worker, time limits, restarts, failover, PgBouncer.

A pooler in transaction mode gives each transaction another session of the server. So no session
keeps a setting or a prepared statement: time limits are set at the beginning of a transaction, and
nothing is prepared. Nothing else here belongs to a session: advisory locks end with their
transaction, and nobody listens.

A transaction that only read ends by COMMIT instead of ROLLBACK: at ROLLBACK psycopg forgets what it
has prepared, and PostgreSQL would parse and plan the statements of the next request again.
"""

import logging
import re
import select
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import URL, Connection, Engine, event
from sqlalchemy.engine import Dialect, ExceptionContext
from sqlalchemy.exc import (
    DBAPIError,
    InterfaceError,
    InvalidatePoolError,
    InvalidRequestError,
    OperationalError,
    SQLAlchemyError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection

from sso.config.connections import has_several_hosts
from sso.process import concurrency
from sso.process.program import COMMAND

if TYPE_CHECKING:
    import psycopg


_IN_TRANSACTION = 2  # libpq's PQTRANS_INTRANS; a failed one has another status


def prepare_read_only(engine: Engine) -> None:
    """Hook an engine of psycopg."""
    roll_back = engine.dialect.do_rollback

    def end(dbapi_connection: PoolProxiedConnection) -> None:
        driver: Any = dbapi_connection.driver_connection
        is_in_order = driver.info.transaction_status == _IN_TRANSACTION
        if is_in_order and not getattr(driver, "sso_wrote", True):
            driver.commit()
        else:
            roll_back(dbapi_connection)

    # SQLAlchemy has no event that could do without the ROLLBACK.
    engine.dialect.do_rollback = end  # type: ignore[method-assign]  # of this engine alone

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        driver: Any = connection.connection.driver_connection
        driver.sso_wrote = False

    @event.listens_for(engine, "before_cursor_execute")
    def look(connection: Connection, _cursor: object, statement: str, *_: object) -> None:
        if not statement.startswith("SELECT"):
            note_write(connection)


def note_write(connection: Connection) -> None:
    """Call it before a statement that writes and that SQLAlchemy does not execute itself."""
    driver: Any = connection.connection.driver_connection
    driver.sso_wrote = True


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


def transient_reason(error: SQLAlchemyError) -> str | None:
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


logger = logging.getLogger("sso.database")

# One for each concurrent request; `MORE` is for background threads. Besides, audit events and
# refusals have one each, in bursts (see `buffer`). All workers of all nodes must together stay
# below PostgreSQL's max_connections, which is 100 by default.
POOL_SIZE = concurrency.MAX_CONCURRENT
MORE = 2
CONNECT_TIMEOUT = 3  # seconds
# As PostgreSQL shows them. A request waits for a lock, then for a statement, before its caller
# gives up.
LIMITS = {
    "lock_timeout": "5s",
    "statement_timeout": "15s",
    "idle_in_transaction_session_timeout": "1min",
}
_OPTIONS = " ".join(f"-c {name}={value}" for name, value in {**LIMITS, "jit": "off"}.items())
_IN_OPTIONS = re.compile(rf"(?:-c\s*|--)({'|'.join(LIMITS)})=(\w+)")
# How PgBouncer and Amazon's RDS Proxy refuse `options`.
_REFUSED = re.compile("unsupported startup parameter|command-line options")
_PROBE = "SELECT pg_backend_pid(), " + ", ".join(f"current_setting('{name}')" for name in LIMITS)
# What is known of a connection.
_TOOK_WRITES = "sso.took_writes"
_LIMITS_OF_TRANSACTION = "sso.limits_of_transaction"  # if it is pooled; may be empty


def engine_options(url: URL) -> dict[str, Any]:
    """Arguments for `create_engine`, for the engine that answers requests."""
    return {
        "pool_size": POOL_SIZE,
        "max_overflow": MORE,
        "pool_timeout": 5,
        "pool_recycle": 1800,
        "pool_use_lifo": True,  # what is not needed stays idle, and is closed when recycled
        "connect_args": connect_args(url, options=_OPTIONS),
    }


def connect_args(url: URL, **more: str) -> dict[str, Any]:
    """Arguments for the driver. What the URL's own query says takes precedence."""
    defaults = {
        "application_name": "sso",
        "connect_timeout": CONNECT_TIMEOUT,
        # A machine that vanished silently is noticed after 6 seconds. Its standby takes over later.
        "keepalives_idle": 3,
        "keepalives_interval": 1,
        "keepalives_count": 3,
        "tcp_user_timeout": 6_000,
        **({"target_session_attrs": "read-write"} if has_several_hosts(url) else {}),
        **more,
    }
    return {name: value for name, value in defaults.items() if name not in url.query}


def prepare(engine: Engine) -> None:
    """Hook an engine: how it connects, begins and ends a transaction, and drops connections."""
    prepare_read_only(engine)
    connecting = _Connecting(engine.url)
    event.listen(engine, "do_connect", connecting.connect)

    @event.listens_for(engine, "checkout")
    def is_alive(
        connection: "psycopg.Connection[Any]", record: ConnectionPoolEntry, _proxy: object
    ) -> None:
        """Discard connections that the server closed while they were idle.

        The socket shows it: an idle connection receives nothing but its end. So a restart of the
        database fails no request, and checking costs no round trip (unlike `pool_pre_ping`). Nor
        does it when the server began to refuse writes: it reports that with its answers.
        """
        if connection.closed or _has_input(connection.fileno()):
            raise InvalidatePoolError
        if record.info.get(_TOOK_WRITES) and _is_read_only(connection):
            raise InvalidatePoolError

    @event.listens_for(engine, "begin")
    def begin_transaction(connection: Connection) -> None:
        driver: Any = connection.connection.driver_connection
        if limits := connection.info.get(_LIMITS_OF_TRANSACTION):
            begin = "BEGIN; " if driver.autocommit else ""  # else the driver sends it
            connection.exec_driver_sql(begin + limits, execution_options={"no_parameters": True})
        elif driver.autocommit:
            driver.autocommit = False

    @event.listens_for(engine, "handle_error")
    def note_loss(context: ExceptionContext) -> None:
        if is_lost(context.original_exception):
            context.is_disconnect = True

    @event.listens_for(engine, "invalidate")
    def empty_pool(_connection: object, _record: object, error: BaseException | None) -> None:
        """After a failover every connection of the pool leads to a server that takes no writes."""
        if error is not None and is_lost(error):
            connecting.is_pooled |= is_of_pooler(error)
            engine.dispose()


@contextmanager
def connection(engine: Engine) -> Iterator[Connection]:
    """A connection of the pool. The answer stands, even if it is gone before the end.

    Statements that `store.prepared` reads with run without a transaction, until SQLAlchemy begins
    one. Behind a pooler it begins one at once, where time limits hold in a transaction only. What
    only reads is not rolled back: psycopg would forget what it has prepared.
    """
    taken = engine.connect()
    try:
        driver: Any = taken.connection.driver_connection
        if not driver.autocommit:
            driver.autocommit = True
        if taken.info.get(_LIMITS_OF_TRANSACTION):
            taken.begin()
        yield taken
    finally:
        try:
            taken.close()
        except SQLAlchemyError:
            logger.info("a connection was gone before the end of its transaction")
            if not taken.closed:
                taken.invalidate()


def is_pooled(connection: Connection) -> bool:
    """Whether each transaction on this connection may run in another session of the server."""
    return _LIMITS_OF_TRANSACTION in connection.info


class _Connecting:
    """How an engine connects, and whether it has met a pooler."""

    def __init__(self, url: URL) -> None:
        self.is_pooled = url.query.get("pgbouncer") == "true"
        self.threshold = url.query.get("prepare_threshold")
        self.last = ("", "")  # host and port that took writes

    def connect(
        self,
        dialect: Dialect,
        record: ConnectionPoolEntry,
        positional: list[Any],
        named: dict[str, Any],
    ) -> "psycopg.Connection[Any]":
        """Connect, and find out whether a pooler stands in between.

        A pooler refuses `options` or ignores them, or reports a process ID of its own. Asking costs
        a query for each new connection. To see a pooler that is not there is safe; for one that
        hides, the URL has `pgbouncer=true`.
        """
        named = {k: v for k, v in named.items() if k not in ("pgbouncer", "prepare_threshold")}
        self._put_last_first(named)
        options = named.get("options")
        if self.is_pooled and options == _OPTIONS:
            del named["options"]
        try:
            made: Any = dialect.connect(*positional, **named)
        except dialect.loaded_dbapi.OperationalError as error:
            if named.get("options") != _OPTIONS or not _REFUSED.search(str(error)):
                raise
            del named["options"]
            made = dialect.connect(*positional, **named)
        try:
            made.autocommit = True
            pid, *in_force = made.execute(_PROBE, prepare=False).fetchone() or (None,)
            made.autocommit = False
        except dialect.loaded_dbapi.Error:
            made.close()
            raise
        self.last = made.info.host, str(made.info.port)
        record.info[_TOOK_WRITES] = not _is_read_only(made)
        is_as_asked = options == named.get("options") and (
            options != _OPTIONS or in_force == [*LIMITS.values()]
        )
        if self.is_pooled or pid != made.info.backend_pid or not is_as_asked:
            self.is_pooled = True
            made.prepare_threshold = None
            # What was not sent is set for the role or the database, and so in all sessions.
            is_enough = "options" not in named and "0" not in in_force
            record.info[_LIMITS_OF_TRANSACTION] = (
                _set_local(options) if options and not is_enough else ""
            )
        if self.threshold:
            made.prepare_threshold = int(str(self.threshold))
        return cast("psycopg.Connection[Any]", made)

    def _put_last_first(self, named: dict[str, Any]) -> None:
        """Try the host of the last connection first: one that is gone costs its time limit."""
        hosts, ports = (str(named.get(name, "")).split(",") for name in ("host", "port"))
        if len(hosts) > 1 and len(hosts) == len(ports) and "hostaddr" not in named:
            pairs = sorted(zip(hosts, ports, strict=True), key=lambda pair: pair != self.last)
            named["host"], named["port"] = (",".join(parts) for parts in zip(*pairs, strict=True))


def _set_local(options: str) -> str:
    limits = {**LIMITS, "jit": "off", **dict(_IN_OPTIONS.findall(options))}
    return "; ".join(f"SET LOCAL {name} = '{value}'" for name, value in limits.items())


def _is_read_only(connection: "psycopg.Connection[Any]") -> bool:
    return connection.pgconn.parameter_status(b"default_transaction_read_only") == b"on"


def _has_input(descriptor: int) -> bool:
    watched = select.poll()
    watched.register(descriptor, select.POLLIN | select.POLLPRI)
    return bool(watched.poll(0))
