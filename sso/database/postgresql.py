"""How PostgreSQL is reached: a pool for each worker, time limits, and a server that comes back."""

import select
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Engine, event
from sqlalchemy.exc import InvalidatePoolError

from sso.process import concurrency

if TYPE_CHECKING:  # SQLAlchemy loads the driver when PostgreSQL is used
    from psycopg import Connection

# One for each request whose turn it is, and what else runs in the process. All workers of all nodes
# together need fewer than PostgreSQL's max_connections, which is 100 by default.
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
        # A machine that vanished without a word is noticed after some 20 seconds.
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
    """Leave out connections that the server closed while they were idle.

    A look at the socket tells: nothing is sent to an idle connection but its end. So a restart of
    the database costs no request an error, and no request a round trip (`pool_pre_ping` would).
    """

    @event.listens_for(engine, "checkout")
    def is_alive(connection: "Connection[Any]", _record: object, _proxy: object) -> None:
        if connection.closed or _has_news(connection.fileno()):
            raise InvalidatePoolError


def _has_news(descriptor: int) -> bool:
    watched = select.poll()
    watched.register(descriptor, select.POLLIN | select.POLLPRI)
    return bool(watched.poll(0))
