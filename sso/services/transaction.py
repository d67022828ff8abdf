"""The transaction of a request at the places that are hit most: a connection, without the ORM.

The ORM's session would cost as much as two statements. It is not to be used within: what runs there
are the statements of `store.prepared`.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from sso.audit import writer
from sso.extensions import db
from sso.store import prepared

logger = logging.getLogger("sso.database")


class Transaction:
    """What has been done counts when it is committed; else it is undone at the end."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.is_committed = False

    def commit(self) -> None:
        writer.write(self._connection)
        self._connection.commit()
        writer.written()
        self.is_committed = True


@contextmanager
def begin() -> Iterator[Transaction]:
    """A transaction for the statements of the block."""
    connection = db.engine.connect()
    connection.begin()  # the statements of `store.prepared` do not
    transaction = Transaction(connection)
    try:
        with prepared.on(connection):
            yield transaction
    finally:
        if not transaction.is_committed:
            writer.undone()
        _close(connection)


def _close(connection: Connection) -> None:
    """Roll back what is not committed. The answer stands, even if the connection is gone."""
    try:
        connection.close()
    except SQLAlchemyError:
        logger.info("a connection was gone before the end of its transaction")
        if not connection.closed:
            connection.invalidate()
