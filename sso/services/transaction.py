"""The transaction of a request on the hot paths: a connection, without the ORM.

The ORM's session would cost as much as two statements. What runs there takes the connection.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy import Connection

from sso import database
from sso.audit import writer

Result = TypeVar("Result")


class Transaction:
    """What has been done counts when it is committed; else it is undone at the end."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.is_committed = False

    def commit(self) -> None:
        writer.write(self.connection)
        self.connection.commit()
        writer.written()
        self.is_committed = True


@contextmanager
def begin() -> Iterator[Transaction]:
    """A transaction for the statements of the block. It begins when the first one writes."""
    with database.connection() as connection:
        transaction = Transaction(connection)
        try:
            yield transaction
        finally:
            if not transaction.is_committed:
                writer.undone()


def committed(act: Callable[[Connection], Result]) -> Result:
    """What is done in a transaction of its own, which counts whatever happens afterwards."""
    with begin() as transaction:
        result = act(transaction.connection)
        transaction.commit()
    return result
