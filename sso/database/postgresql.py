"""The connections to PostgreSQL: a pool per worker, time limits, and restarts of the server."""

import select
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Engine, event
from sqlalchemy.exc import InvalidatePoolError

from sso.process import concurrency

if TYPE_CHECKING:  # SQLAlchemy loads the driver when PostgreSQL is used
    from psycopg import Connection

# One for each concurrent request; `MORE` is for background threads. All workers of all nodes must
# together stay below PostgreSQL's max_connections, which is 100 by default.
POOL_SIZE = concurrency.MAX_CONCURRENT
MORE = 2
CONNECT_TIMEOUT = 3  # seconds
# Milliseconds. A request waits for a lock, then for a statement, before its caller gives up.
LIMITS = {
    "lock_timeout": 5_000,
    "statement_timeout": 15_000,
    "idle_in_transaction_session_timeout": 60_000,
}


def engine_options(url: URL) -> dict[str, Any]:
    """Arguments for `create_engine`. What the URL's own query says takes precedence."""
    options = " ".join(f"-c {name}={value}" for name, value in LIMITS.items())
    defaults = {
        "application_name": "sso",
        "connect_timeout": CONNECT_TIMEOUT,
        # A machine that vanished silently is noticed after some 20 seconds.
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 2,
        "tcp_user_timeout": 20_000,
        "options": f"{options} -c jit=off",
    }
    return {
        "pool_size": POOL_SIZE,
        "max_overflow": MORE,
        "pool_timeout": 5,
        "pool_recycle": 1800,
        "pool_use_lifo": True,  # what is not needed stays idle, and is closed when recycled
        "connect_args": {name: v for name, v in defaults.items() if name not in url.query},
    }


def prepare(engine: Engine) -> None:
    """Discard connections that the server closed while they were idle.

    The socket shows it: an idle connection receives nothing but its end. So a restart of the
    database fails no request, and checking costs no round trip (unlike `pool_pre_ping`).
    """

    @event.listens_for(engine, "checkout")
    def is_alive(connection: "Connection[Any]", _record: object, _proxy: object) -> None:
        if connection.closed or _has_input(connection.fileno()):
            raise InvalidatePoolError


def _has_input(descriptor: int) -> bool:
    watched = select.poll()
    watched.register(descriptor, select.POLLIN | select.POLLPRI)
    return bool(watched.poll(0))
