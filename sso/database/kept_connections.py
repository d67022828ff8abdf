"""Connections to SQLite that wait outside the pool: one for each concurrent request.

Taking one from the pool and giving it back costs more than the statement of userinfo: 13 % of the
CPU of that request, and 5 % of a code exchange. PostgreSQL restarts and fails over, and needs the
pool's care.
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
    """Those of one engine. When it is disposed of, they are closed."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._idle: deque[Connection] = deque()
        self._process = os.getpid()
        self._inherited: list[Connection] = []
        event.listen(engine, "engine_disposed", self._close)

    @contextmanager
    def take(self) -> Iterator[Connection]:
        """One of them, for the block. What is not committed is rolled back."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._engine.connect()
            self._process = os.getpid()
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        if connection.in_transaction():
            try:
                connection.rollback()
            except SQLAlchemyError:  # the answer stands
                logger.info("a connection was gone before the end of its transaction")
                connection.invalidate()
        if connection.invalidated or len(self._idle) >= concurrency.MAX_CONCURRENT:
            connection.close()
        else:
            self._idle.append(connection)

    def _close(self, _: Engine) -> None:
        if os.getpid() != self._process:  # forked: SQLite must not even close its parent's
            self._process = os.getpid()
            self._inherited += self._idle
            self._idle.clear()
        while self._idle:
            connection = self._idle.pop()
            connection.detach()
            connection.close()
