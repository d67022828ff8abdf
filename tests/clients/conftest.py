"""Real servers for independent clients: gunicorn with two workers, on each database."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.support.processes import Server
from tests.support.servers import postgresql


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    environ: dict[str, Any] = {}
    with ExitStack() as stack:
        if request.param == "postgresql":
            environ["SSO_DATABASE_URL"] = stack.enter_context(postgresql())
        folder = tmp_path_factory.mktemp("server")
        yield stack.enter_context(Server(folder, **environ).running())
