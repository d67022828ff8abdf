"""A real server for independent clients."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("server")
    with Server(folder).running() as running:
        yield running
