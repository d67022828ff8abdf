"""Connections that stay open between requests, outside the pool."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, create_engine, text

from sso import database
from sso.database import postgresql
from sso.database.kept_connections import KeptConnections
from sso.database.postgresql import KEPT, KEPT_FOR, KeptSessions
from tests.support import servers

pytestmark = pytest.mark.slow


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = database.open_engine(f"sqlite:///{tmp_path / 'a.db'}")
    yield engine
    engine.dispose()


@pytest.fixture
def cluster() -> Iterator[Engine]:
    """PostgreSQL, with no connection yet."""
    with servers.postgresql() as url:
        engine = database.open_engine(url, pool_size=2, max_overflow=1, pool_timeout=0)
        yield engine
        engine.dispose()


def write(engine: Engine, statement: str) -> None:
    with engine.begin() as connection:
        connection.execute(text(statement))


def count(connection: Connection) -> int:
    return int(connection.scalar(text("SELECT count(*) FROM numbers")) or 0)


def test_a_connection_stays_open_and_sees_what_is_committed(engine: Engine) -> None:
    kept = KeptConnections(engine)
    write(engine, "CREATE TABLE numbers (n INTEGER)")
    with kept.take() as first, kept.take() as second:
        assert first is not second
        assert count(first) == count(second) == 0
    write(engine, "INSERT INTO numbers VALUES (1)")
    with kept.take() as again:
        assert again in (first, second)
        assert not again.in_transaction()
        assert count(again) == 1


def test_a_connection_that_failed_is_closed(engine: Engine) -> None:
    kept = KeptConnections(engine)
    with pytest.raises(ZeroDivisionError), kept.take() as failed:
        raise ZeroDivisionError
    assert failed.closed
    with kept.take() as other:
        assert other is not failed


def test_a_connection_that_is_gone_is_not_kept(engine: Engine) -> None:
    kept = KeptConnections(engine)
    with kept.take() as gone:
        gone.invalidate()
    with kept.take() as other:
        assert other is not gone


def test_what_is_not_committed_is_undone(engine: Engine) -> None:
    write(engine, "CREATE TABLE numbers (n INTEGER)")
    kept = KeptConnections(engine)
    with kept.take() as connection:
        connection.execute(text("INSERT INTO numbers VALUES (1)"))
    with kept.take() as again:
        assert again is connection
        assert count(again) == 0


def test_connections_are_closed_with_their_engine(engine: Engine) -> None:
    kept = KeptConnections(engine)
    with kept.take() as before:
        pass
    engine.dispose()
    assert before.closed
    with kept.take() as after:
        assert after is not before


def backend(connection: Connection) -> int:
    return int(connection.scalar(text("SELECT pg_backend_pid()")) or 0)


def terminate(engine: Engine, pid: int) -> None:
    with engine.connect() as connection:
        assert connection.scalar(text(f"SELECT pg_terminate_backend({pid})"))


def test_a_session_of_postgresql_stays_and_reads_in_autocommit(cluster: Engine) -> None:
    kept = KeptSessions(cluster)
    with kept.take() as before:
        pid = backend(before)
        assert before.in_transaction()  # SQLAlchemy's own execution begins one
    with kept.take() as again:
        assert again is before
        assert not again.in_transaction()
        assert again.connection.driver_connection.autocommit  # type: ignore[union-attr]  # psycopg's
        assert backend(again) == pid


def test_what_is_not_committed_is_undone_on_postgresql(cluster: Engine) -> None:
    write(cluster, "CREATE TABLE numbers (n INTEGER)")
    kept = KeptSessions(cluster)
    with kept.take() as connection:
        connection.execute(text("INSERT INTO numbers VALUES (1)"))
    with kept.take() as again:
        assert again is connection
        assert count(again) == 0
        again.execute(text("INSERT INTO numbers VALUES (2)"))
        again.commit()
    with kept.take() as later:
        assert later is connection
        assert count(later) == 1


def test_a_session_that_the_server_ended_is_replaced(cluster: Engine) -> None:
    kept = KeptSessions(cluster)
    with kept.take() as before:
        pid = backend(before)
    terminate(cluster, pid)
    with kept.take() as after:
        assert after is not before
        assert backend(after) != pid
    assert before.closed


def test_a_session_that_is_lost_within_a_block_is_not_kept(cluster: Engine) -> None:
    kept = KeptSessions(cluster)
    with kept.take() as before:
        terminate(cluster, backend(before))
    with kept.take() as after:
        assert after is not before
        assert backend(after)


def test_a_session_whose_server_takes_no_writes_by_now_is_replaced(cluster: Engine) -> None:
    kept = KeptSessions(cluster)
    with kept.take() as before:
        pass
    with kept.take() as again:
        assert again is before
        again.exec_driver_sql("SET default_transaction_read_only = on")
        again.commit()
    with kept.take() as after:
        assert after is not before
        assert after.scalar(text("SHOW default_transaction_read_only")) == "off"


@pytest.mark.parametrize(("seconds", "stays"), [(-1, True), (0, True), (1, False)])
def test_the_pool_recycles_sessions(
    cluster: Engine, monkeypatch: pytest.MonkeyPatch, seconds: int, stays: bool
) -> None:
    kept = KeptSessions(cluster)
    start = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: start)
    with kept.take() as before:
        pass
    monkeypatch.setattr(time, "monotonic", lambda: start + KEPT_FOR + seconds)
    with kept.take() as again:
        assert again is before
    assert again.closed is not stays
    with kept.take() as later:  # after the pool has looked at it, it may stay for as long again
        pass
    assert not later.closed


def test_sessions_that_wait_leave_room_in_the_pool(cluster: Engine) -> None:
    """Only `KEPT` stay out; all others are the pool's, for pages and background work."""
    kept = KeptSessions(cluster)
    with kept.take(), kept.take(), kept.take():
        assert cluster.pool.checkedout() == 3  # type: ignore[attr-defined]  # QueuePool's
    assert cluster.pool.checkedout() == KEPT  # type: ignore[attr-defined]  # QueuePool's


def test_sessions_are_not_kept_behind_a_pooler(cluster: Engine) -> None:
    url = cluster.url.update_query_dict({"pgbouncer": "true"})
    engine = create_engine(url, **postgresql.engine_options(url))
    postgresql.prepare(engine)
    with KeptSessions(engine).take() as connection:
        assert connection.in_transaction()
        assert connection.scalar(text("SELECT 1")) == 1
    assert connection.closed
    engine.dispose()


def test_a_forked_process_uses_no_session_of_its_parent(cluster: Engine) -> None:
    kept = KeptSessions(cluster)
    with kept.take() as before:
        pid = backend(before)

    def own() -> bool:
        cluster.dispose(close=False)  # as in each forked process, for the application's engine
        with kept.take() as connection:
            return backend(connection) != pid

    assert in_a_child(own)
    with kept.take() as again:
        assert backend(again) == pid


def in_a_child(check: Callable[[], bool]) -> bool:
    if (child := os.fork()) == 0:
        try:
            os._exit(0 if check() else 1)
        except BaseException:
            os._exit(2)
    return os.waitpid(child, 0)[1] == 0
