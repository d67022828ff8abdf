"""Transactions of requests on hot paths: a connection without the ORM.

The ORM's session would cost as much as two statements. Functions that run in such a transaction
take the connection.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from sqlalchemy import Connection

from sso import database
from sso.audit import writer

Result = TypeVar("Result")


class Transaction:
    """A transaction that is rolled back at the end of the block unless it was committed.

    It begins with the first statement that writes.
    """

    connection: Connection

    def __init__(self) -> None:
        self.is_committed = False
        self._lent = database.connection()

    def __enter__(self) -> Self:
        self.connection = self._lent.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        try:
            if not self.is_committed:
                writer.undone()
        finally:
            is_handled = self._lent.__exit__(kind, error, traceback)
        return is_handled

    def commit(self) -> None:
        writer.write(self.connection)
        self.connection.commit()
        writer.written()
        self.is_committed = True


def committed(act: Callable[[Connection], Result]) -> Result:
    """Run a function in a transaction of its own, and commit it; return the result."""
    with Transaction() as transaction:
        result = act(transaction.connection)
        transaction.commit()
    return result
