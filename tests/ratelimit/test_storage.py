"""Counters in a Redis that is away, comes back, refuses writes, or fails over."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest
import redis

from sso.ratelimit import storage
from sso.ratelimit.storage import LimitStorage
from tests.support.processes import free_port, wait_for
from tests.support.servers import Redis, Sentinel

pytestmark = pytest.mark.slow

KEY, SECONDS = "failures/x", 600


@pytest.fixture(autouse=True)
def _asked_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "AWAY", 0.2)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    with ExitStack() as stack:

        def start(kind: type[Redis] = Redis, **more: Any) -> Any:
            made = kind(tmp_path / f"{time.monotonic_ns()}", **more)
            stack.callback(made.stop, SIGKILL)
            made.start()
            return made

        yield start


def client(server: Redis) -> "redis.Redis":
    return redis.Redis.from_url(server.url)


def counted(server: Redis) -> int:
    """What stands in the server itself; nothing while it changes its role."""
    try:
        return int(client(server).get(f"sso:{KEY}") or 0)
    except redis.ConnectionError:
        return 0


def increased(limits: LimitStorage) -> int:
    began = time.monotonic()
    count = limits.increase(KEY, SECONDS)
    assert time.monotonic() - began < 2
    return count


def test_it_comes_back(make: Callable[..., Any]) -> None:
    server = make()
    limits = LimitStorage(server.url)
    assert [increased(limits) for _ in range(3)] == [1, 2, 3]
    server.stop(SIGKILL)
    assert [increased(limits) for _ in range(2)] == [1, 2]  # by itself
    server.start()
    wait_for(lambda: increased(limits) > 0 and counted(server) > 0, "Redis", 5)


def test_what_is_forgotten_does_not_come_back_when_it_is_away(make: Callable[..., Any]) -> None:
    """A sign-in that works forgets what this process counted in an outage before."""
    server = make()
    limits = LimitStorage(server.url)
    server.stop(SIGKILL)
    assert [increased(limits) for _ in range(2)] == [1, 2]
    server.start()
    wait_for(lambda: limits.read(KEY) == 0, "Redis", 5)
    limits.forget(KEY)
    server.stop(SIGKILL)
    assert limits.read(KEY) == 0
    assert increased(limits) == 1


def test_it_refuses_writes(make: Callable[..., Any]) -> None:
    """It was the primary; its connections stay open."""
    server, other = make(), make()
    limits = LimitStorage(server.url)
    assert increased(limits) == 1
    client(server).replicaof("127.0.0.1", other.port)
    wait_for(lambda: counted(server) == 0, "the replica")
    assert increased(limits) == 1
    assert limits.read(KEY) == 1
    client(server).replicaof("NO", "ONE")
    wait_for(lambda: increased(limits) > 0 and counted(server) > 0, "Redis", 5)


@pytest.mark.parametrize("password", ["", "of-redis"])
def test_sentinel_promotes_a_replica(make: Callable[..., Any], password: str) -> None:
    primary = make(password=password)
    replica = make(password=password, primary=primary)
    sentinel = make(Sentinel, password=password, primary=primary)
    wait_for(lambda: replica.port in sentinel.replicas(), "the replica")
    gone = f"127.0.0.1:{free_port()}"
    limits = LimitStorage(f"redis+sentinel://:{password}@{gone},127.0.0.1:{sentinel.port}/limits")
    assert [increased(limits) for _ in range(3)] == [1, 2, 3]
    wait_for(lambda: counted(replica) == 3, "the replica")
    primary.stop(SIGKILL)
    assert increased(limits) == 1  # by itself
    wait_for(lambda: increased(limits) > 0 and counted(replica) > 3, "the new primary", 20)
