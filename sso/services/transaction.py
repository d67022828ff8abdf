"""Transactions of requests on hot paths: a connection without the ORM.

The ORM's session would cost as much as two statements. Functions that run in such a transaction
take the connection.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy import Connection

from sso import database
from sso.audit import writer

Result = TypeVar("Result")


class Transaction:
    """A transaction that is rolled back at the end unless it was committed."""

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
    """Run the block in a transaction. It begins with the first statement that writes."""
    with database.connection() as connection:
        transaction = Transaction(connection)
        try:
            yield transaction
        finally:
            if not transaction.is_committed:
                writer.undone()


def committed(act: Callable[[Connection], Result]) -> Result:
    """Run a function in a transaction of its own, and commit it; return the result."""
    with begin() as transaction:
        result = act(transaction.connection)
        transaction.commit()
    return result
