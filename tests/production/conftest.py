"""Machines of a test file, all stopped in the end."""

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from tests.support.servers import Node, Postgresql


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("machines")


@pytest.fixture(scope="module")
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module")
def cluster(stack: ExitStack) -> Postgresql:
    """A running PostgreSQL. A test that stops it starts it again."""
    made = Postgresql(fsync="off")
    stack.callback(made.remove)
    made.start()
    return made


@pytest.fixture(scope="module")
def make_node(folder: Path, stack: ExitStack) -> Callable[..., Node]:
    """A node with a folder of its own, not yet started."""
    numbers = count(1)

    def make(workers: int = 2, kind: type[Node] = Node, **environ: str) -> Node:
        home = folder / f"node_{next(numbers)}"
        home.mkdir()
        made = kind(home, workers, **environ)
        stack.callback(made.stop, signal.SIGKILL)
        return made

    return make
