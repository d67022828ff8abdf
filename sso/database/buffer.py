"""Buffer rows that belong to no transaction: a thread writes them soon after, in batches."""

import atexit
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DataError, SQLAlchemyError

logger = logging.getLogger("sso.database")

T = TypeVar("T")
MOST = 10_000  # rows of a kind that wait in a process; beyond that the oldest are only in the log
AT_ONCE = 500
PAUSE = 0.5  # seconds in which rows gather
PAUSE_AFTER_FAULT = 5.0
# Seconds without rows after which a burst is over, and its connection closed. A new connection to
# PostgreSQL takes 7 ms of CPU time, as much as three code exchanges.
BURST_ENDS = 5.0


class Buffer(Generic[T]):
    """The rows of one kind that wait in this process to be written."""

    def __init__(
        self, engine: Engine, write: Callable[[Connection, list[T]], None], name: str
    ) -> None:
        self._engine, self._write, self._name = engine, write, name
        self._waiting: deque[T] = deque(maxlen=MOST)
        self._lost = 0
        self._state, self._writing = threading.Lock(), threading.Lock()
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        _buffers.add(self)

    def put(self, rows: Sequence[T]) -> None:
        with self._state:
            self._lost += max(0, len(self._waiting) + len(rows) - MOST)
            self._waiting.extend(rows)
            # A thread runs for one burst: an idle process has none, and none survives a fork.
            if self._thread is None or self._process != os.getpid():
                self._process = os.getpid()
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def flush(self) -> bool:
        """Write the waiting rows; return False if the database does not take them, and keep them.

        A row that can never be written does not delay the others.
        """
        return self._write_waiting(None)

    def _write_waiting(self, open_connection: Connection | None) -> bool:
        """Do as `flush`, on this connection if there is one."""
        singly = 0  # how many rows of a failed batch are still to be tried one by one
        with self._writing:
            while batch := self._take(1 if singly > 0 else AT_ONCE):
                singly -= 1
                try:
                    with self._transaction(open_connection) as connection:
                        self._write(connection, batch)
                except Exception as error:
                    kind = type(error).__name__
                    if isinstance(error, SQLAlchemyError) and not isinstance(error, DataError):
                        self._give_back(batch)
                        logger.error("%s wait: the database does not take them (%s)",
                                     self._name, kind)  # fmt: skip
                        return False
                    if len(batch) > 1:
                        self._give_back(batch)
                        singly = len(batch)
                    else:
                        logger.error("1 of the %s cannot be written, and is on the log alone (%s)",
                                     self._name, kind)  # fmt: skip
            return True

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            pause.wait(PAUSE)
            if self._waiting and not self._write_burst(pause):
                pause.wait(PAUSE_AFTER_FAULT)
            with self._state:
                if not self._waiting:
                    self._thread = None
                    return

    def _write_burst(self, pause: threading.Event) -> bool:
        """Do as `flush`, for as long as more rows are put in."""
        with suppress(SQLAlchemyError), self._engine.connect() as connection:
            latest = monotonic()
            while True:
                if self._waiting:
                    connection.exec_driver_sql("SELECT 1")  # raises if the connection is lost
                    connection.rollback()
                    if not self._write_waiting(connection):
                        return False
                    latest = monotonic()
                if monotonic() - latest >= BURST_ENDS:
                    break
                pause.wait(PAUSE)
        return self.flush()

    @contextmanager
    def _transaction(self, open_connection: Connection | None) -> Iterator[Connection]:
        if open_connection is None:
            with self._engine.begin() as connection:
                yield connection
        else:
            with open_connection.begin():
                yield open_connection

    def _take(self, most: int) -> list[T]:
        with self._state:
            if self._lost:
                logger.error("%d %s are on the log alone", self._lost, self._name)
                self._lost = 0
            return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]

    def _give_back(self, batch: list[T]) -> None:
        with self._state:
            fits = max(0, MOST - len(self._waiting))
            self._lost += max(0, len(batch) - fits)
            self._waiting.extendleft(reversed(batch[-fits:] if fits else []))


_buffers: WeakSet[Buffer[Any]] = WeakSet()


@atexit.register
def flush_all() -> None:
    """Write the waiting rows of all buffers at the end of the process."""
    for buffer in list(_buffers):
        buffer.flush()
