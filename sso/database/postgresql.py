"""The connections to PostgreSQL: a pool per worker, time limits, restarts, failover, PgBouncer.

A pooler in transaction mode gives each transaction another session of the server. So no session
keeps a setting or a prepared statement: time limits are set at the beginning of a transaction, and
nothing is prepared. Nothing else here belongs to a session: advisory locks end with their
transaction, and there is no LISTEN.

A transaction that only reads ends by COMMIT instead of ROLLBACK: at ROLLBACK psycopg forgets its
prepared statements, and PostgreSQL would parse and plan those of the next request again.
"""

import re
import select
import time
from collections.abc import Mapping
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
from sso.database.kept_connections import KeptConnections
from sso.process import concurrency
from sso.process.program import COMMAND

if TYPE_CHECKING:
    import psycopg


_IN_TRANSACTION = 2  # libpq's PQTRANS_INTRANS; a failed one has another status


def prepare_read_only(engine: Engine) -> None:
    """Let transactions of an engine that have only read end by COMMIT."""
    roll_back = engine.dialect.do_rollback

    def end(dbapi_connection: PoolProxiedConnection) -> None:
        driver: Any = dbapi_connection.dbapi_connection  # also of one that is detached
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
    """Note a write on a connection, before a statement that SQLAlchemy does not execute itself."""
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
# A prepared statement whose result has another type since a migration: the state is a general one,
# and the message is in the server's language.
_STALE_PLAN = ("0A000", "RevalidateCachedQuery")


def is_lost(error: BaseException) -> bool:
    """Return whether the driver's error makes this connection, and those like it, useless."""
    state = getattr(error, "sqlstate", None) or ""
    if state.startswith((*_CLOSED, _READ_ONLY, *_OF_POOLER)):
        return True
    function = getattr(getattr(error, "diag", None), "source_function", None)
    return (state, function) == _STALE_PLAN


def is_of_pooler(error: BaseException) -> bool:
    """Return whether a driver's error shows that sessions are shared."""
    return getattr(error, "sqlstate", None) in _OF_POOLER


def transient_reason(error: SQLAlchemyError) -> str | None:
    """Return why an error is transient, without statement and values; `None`: it is permanent."""
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


# One connection for each concurrent request; `MORE` is for background threads, and for connections
# that wait outside the pool for requests without the ORM. Audit events and refusals have one more
# each, in bursts (see `buffer`). All workers of all nodes together must stay below PostgreSQL's
# max_connections, which is 100 by default.
POOL_SIZE = concurrency.MAX_CONCURRENT
KEPT = 2  # wait out of the pool
KEPT_FOR = 60  # seconds until the pool looks at them again
MORE = 2 + KEPT
CONNECT_TIMEOUT = 3  # seconds
# As PostgreSQL shows them. They are shorter than the time that callers wait for an answer.
LIMITS = {
    "lock_timeout": "5s",
    "statement_timeout": "15s",
    "idle_in_transaction_session_timeout": "1min",
}
_OPTIONS = " ".join(f"-c {name}={value}" for name, value in {**LIMITS, "jit": "off"}.items())
_IN_OPTIONS = re.compile(rf"(?:-c\s*|--)({'|'.join(LIMITS)})=(\w+)")
# The messages by which PgBouncer and Amazon's RDS Proxy refuse `options`.
_REFUSES_OPTIONS = re.compile("unsupported startup parameter|command-line options")
_PROBE = "SELECT pg_backend_pid(), " + ", ".join(f"current_setting('{name}')" for name in LIMITS)
# Keys in the `info` of a connection.
_TOOK_WRITES = "sso.took_writes"
_LIMITS_OF_TRANSACTION = "sso.limits_of_transaction"  # behind a pooler; may be empty
_OUT_SINCE = "sso.out_since"


def engine_options(url: URL) -> dict[str, Any]:
    """Return the arguments of `create_engine` for the engine that answers requests."""
    return {
        "pool_size": POOL_SIZE,
        "max_overflow": MORE,
        "pool_timeout": 5,
        "pool_recycle": 1800,
        "pool_use_lifo": True,  # connections that are not needed stay idle, and are recycled
        "connect_args": connect_args(url, options=_OPTIONS),
    }


def connect_args(url: URL, **more: str) -> dict[str, Any]:
    """Return the driver's arguments, without those in the URL's query, which take precedence."""
    defaults = {
        "application_name": "sso",
        "connect_timeout": CONNECT_TIMEOUT,
        # A machine that vanished is noticed after 6 seconds, before its standby takes over.
        "keepalives_idle": 3,
        "keepalives_interval": 1,
        "keepalives_count": 3,
        "tcp_user_timeout": 6_000,
        **({"target_session_attrs": "read-write"} if has_several_hosts(url) else {}),
        **more,
    }
    return {name: value for name, value in defaults.items() if name not in url.query}


def prepare(engine: Engine) -> None:
    """Register the handlers that connect, begin and end transactions, and drop connections."""
    prepare_read_only(engine)
    connecting = _Connecting(engine.url)
    event.listen(engine, "do_connect", connecting.connect)

    @event.listens_for(engine, "checkout")
    def is_alive(
        connection: "psycopg.Connection[Any]", record: ConnectionPoolEntry, _proxy: object
    ) -> None:
        """Discard connections that the server closed while they were idle.

        The socket shows it: an idle connection receives nothing but its end. So a restart of the
        database fails no request, and the check costs no round trip (unlike `pool_pre_ping`). The
        server also reports with its answers that it has begun to refuse writes.
        """
        if not _is_alive(connection, record.info):
            raise InvalidatePoolError

    @event.listens_for(engine, "begin")
    def begin_transaction(connection: Connection) -> None:
        driver: Any = connection.connection.driver_connection
        if limits := connection.info.get(_LIMITS_OF_TRANSACTION):
            begin = "BEGIN; " if driver.autocommit else ""  # otherwise the driver sends it
            connection.exec_driver_sql(begin + limits, execution_options={"no_parameters": True})
        elif driver.autocommit:
            driver.autocommit = False

    @event.listens_for(engine, "handle_error")
    def note_loss(context: ExceptionContext) -> None:
        if is_lost(context.original_exception):
            context.is_disconnect = True

    @event.listens_for(engine, "invalidate")
    def empty_pool(_connection: object, _record: object, error: BaseException | None) -> None:
        """Drop all connections after a failover: they lead to a server that takes no writes."""
        if error is not None and is_lost(error):
            connecting.is_pooled |= is_of_pooler(error)
            engine.dispose()


class KeptSessions(KeptConnections):
    """Connections for the statements of one request, without the ORM.

    `store.prepared` reads without a transaction, until SQLAlchemy begins one. Behind a pooler it
    begins one at once: there, time limits hold only in a transaction. A transaction that only reads
    is not rolled back: psycopg would forget its prepared statements.
    """

    most = KEPT

    def begin(self, connection: Connection) -> None:
        """Read in autocommit, or behind a pooler in a transaction."""
        driver: Any = connection.connection.driver_connection
        if not driver.autocommit:
            driver.autocommit = True
        if connection.info.get(_LIMITS_OF_TRANSACTION):
            connection.begin()

    def is_usable(self, connection: Connection) -> bool:
        """Return whether the server has neither closed the connection nor begun to refuse writes.

        Where it has, the pool finds the same for its own connections.
        """
        driver: Any = connection.connection.driver_connection
        return _is_alive(driver, connection.info)

    def may_stay(self, connection: Connection) -> bool:
        """Leave it to the pool to recycle connections, and those of a pooler."""
        begun = connection.info.setdefault(_OUT_SINCE, time.monotonic())
        if _LIMITS_OF_TRANSACTION in connection.info or time.monotonic() - begun > KEPT_FOR:
            del connection.info[_OUT_SINCE]
            return False
        return True


def is_pooled(connection: Connection) -> bool:
    """Return whether each transaction on this connection may run in another of its sessions."""
    return _LIMITS_OF_TRANSACTION in connection.info


class _Connecting:
    """The way an engine connects, and whether it has met a pooler."""

    def __init__(self, url: URL) -> None:
        self.is_pooled = url.query.get("pgbouncer") == "true"
        self.threshold = url.query.get("prepare_threshold")
        self.last = ("", "")  # the host and port of the last connection

    def connect(
        self,
        dialect: Dialect,
        record: ConnectionPoolEntry,
        positional: list[Any],
        keywords: dict[str, Any],
    ) -> "psycopg.Connection[Any]":
        """Connect, and find out whether there is a pooler in between.

        A pooler refuses `options` or ignores them, or reports another process ID. The check costs a
        query for each new connection. It is safe to assume a pooler where there is none. For a
        pooler that cannot be detected, the URL has `pgbouncer=true`.
        """
        keywords = {
            name: value
            for name, value in keywords.items()
            if name not in ("pgbouncer", "prepare_threshold")
        }
        self._put_last_first(keywords)
        options = keywords.get("options")
        if self.is_pooled and options == _OPTIONS:
            del keywords["options"]
        try:
            connection: Any = dialect.connect(*positional, **keywords)
        except dialect.loaded_dbapi.OperationalError as error:
            if keywords.get("options") != _OPTIONS or not _REFUSES_OPTIONS.search(str(error)):
                raise
            del keywords["options"]
            connection = dialect.connect(*positional, **keywords)
        try:
            connection.autocommit = True
            pid, *in_force = connection.execute(_PROBE, prepare=False).fetchone() or (None,)
            connection.autocommit = False
        except dialect.loaded_dbapi.Error:
            connection.close()
            raise
        self.last = connection.info.host, str(connection.info.port)
        record.info[_TOOK_WRITES] = not _is_read_only(connection)
        has_options = options == keywords.get("options") and (
            options != _OPTIONS or in_force == [*LIMITS.values()]
        )
        if self.is_pooled or pid != connection.info.backend_pid or not has_options:
            self.is_pooled = True
            connection.prepare_threshold = None
            # Limits that hold without being sent are set for the role or the database, and so in
            # all sessions.
            is_enough = "options" not in keywords and "0" not in in_force
            record.info[_LIMITS_OF_TRANSACTION] = (
                _set_local(options) if options and not is_enough else ""
            )
        if self.threshold:
            connection.prepare_threshold = int(str(self.threshold))
        return cast("psycopg.Connection[Any]", connection)

    def _put_last_first(self, keywords: dict[str, Any]) -> None:
        """Try the host of the last connection first: a lost host costs its time limit."""
        hosts, ports = (str(keywords.get(name, "")).split(",") for name in ("host", "port"))
        if len(hosts) > 1 and len(hosts) == len(ports) and "hostaddr" not in keywords:
            pairs = sorted(zip(hosts, ports, strict=True), key=lambda pair: pair != self.last)
            keywords["host"] = ",".join(host for host, _ in pairs)
            keywords["port"] = ",".join(port for _, port in pairs)


def _set_local(options: str) -> str:
    limits = {**LIMITS, "jit": "off", **dict(_IN_OPTIONS.findall(options))}
    return "; ".join(f"SET LOCAL {name} = '{value}'" for name, value in limits.items())


def _is_read_only(connection: "psycopg.Connection[Any]") -> bool:
    return connection.pgconn.parameter_status(b"default_transaction_read_only") == b"on"


def _is_alive(connection: "psycopg.Connection[Any]", info: Mapping[Any, Any]) -> bool:
    if connection.closed or _has_input(connection.fileno()):
        return False
    return not (info.get(_TOOK_WRITES) and _is_read_only(connection))


def _has_input(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN | select.POLLPRI)
    return bool(poll.poll(0))
