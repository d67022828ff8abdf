"""On PostgreSQL, a transaction that only read ends by COMMIT instead of ROLLBACK.

At ROLLBACK psycopg forgets what it has prepared. The requests of applications that use a connection
after a page would have PostgreSQL parse and plan their statements again.
"""

from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.pool import PoolProxiedConnection

_IN_TRANSACTION = 2  # libpq's PQTRANS_INTRANS; a failed one has another status


def prepare(engine: Engine) -> None:
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
