"""Connections that stay out of the pool between requests.

Taking one from the pool and returning it costs more than the statement of userinfo: 13 % of the CPU
time of that request with SQLite, and 5 % of a code exchange.
"""

import logging
import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import SQLAlchemyError

from sso.process import concurrency

logger = logging.getLogger("sso.database")


class KeptConnections:
    """The idle connections of one engine. They are closed when the engine is disposed of."""

    most = concurrency.MAX_CONCURRENT

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._idle: deque[Connection] = deque()
        self._process = os.getpid()
        self._inherited: list[Connection] = []
        event.listen(engine, "engine_disposed", self._close_idle)

    @property
    def idle(self) -> int:
        """How many connections wait. The pool counts them among those that it has lent."""
        return len(self._idle)

    @contextmanager
    def take(self) -> Iterator[Connection]:
        """Lend a connection to the block. Changes that are not committed are rolled back.

        If the connection is lost at the end, the answer is valid anyway.
        """
        connection = self._connection()
        try:
            self.begin(connection)
            yield connection
        except BaseException:
            _close(connection)
            raise
        if connection.in_transaction():
            try:
                connection.rollback()
            except SQLAlchemyError:
                logger.info("a connection was gone before the end of its transaction")
                connection.invalidate()
        if connection.invalidated or len(self._idle) >= self.most or not self.may_stay(connection):
            _close(connection)
        else:
            self._idle.append(connection)

    def _connection(self) -> Connection:
        while connection := self._pop():
            if self.is_usable(connection):
                return connection
            connection.invalidate()
            connection.close()
        self._process = os.getpid()
        return self._engine.connect()

    def begin(self, connection: Connection) -> None:
        """Prepare a connection for a block."""

    def is_usable(self, connection: Connection) -> bool:
        """Return whether an idle connection can still be used."""
        return True

    def may_stay(self, connection: Connection) -> bool:
        """Return whether a connection may stay out of the pool."""
        return True

    def _close_idle(self, _: Engine) -> None:
        if os.getpid() != self._process:  # forked: nobody must even close those of the parent
            self._process = os.getpid()
            self._inherited += self._idle
            self._idle.clear()
        while connection := self._pop():
            connection.detach()
            connection.close()

    def _pop(self) -> Connection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None


def _close(connection: Connection) -> None:
    """Give a connection back to the pool, or discard it if it is lost."""
    try:
        connection.close()
    except SQLAlchemyError:
        logger.info("a connection was gone before the end of its transaction")
        if not connection.closed:
            connection.invalidate()
