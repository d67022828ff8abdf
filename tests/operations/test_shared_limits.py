"""Limits that two processes share through a real Redis or Valkey, which goes away."""

import re
import socket
import time
from collections.abc import Iterator
from html.parser import HTMLParser

import pytest
import requests

from tests.support.processes import Server, free_port, redis_server, wait_for

WRONG = "wrong wrong wrong"
FREE = 6  # five failures, and the try that begins the first pause


class _Token(HTMLParser):
    value = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if found.get("name") == "csrf_token":
            self.value = found["value"] or ""


def guess(server: Server, email: str, session: requests.Session | None = None) -> requests.Response:
    """One wrong password, on a connection of its own, so that any worker may get it."""
    with session or requests.Session() as http:
        page, token = f"{server.base_url}/sign-in", _Token()
        token.feed(http.get(page, timeout=10).text)
        form = {"email": email, "password": WRONG, "csrf_token": token.value}
        return http.post(page, data=form, timeout=10, allow_redirects=False)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server, int]]:
    """Two nodes with one worker each on one database and one Redis, whose port comes third."""
    folder, port = tmp_path_factory.mktemp("nodes"), free_port()
    other = folder / "other"
    other.mkdir()
    environ = {
        "SSO_DATABASE_URL": f"sqlite:///{folder / 'sso.db'}",
        "SSO_REDIS_URL": f"redis://127.0.0.1:{port}/0",
        "SSO_BASE_URL": "http://127.0.0.1/api/auth",
    }
    one = Server(folder, workers=1, **environ)
    two = Server(other, workers=1, **environ)
    with one.running(), two.running():
        yield one, two, port


@pytest.mark.parametrize("kind", ["redis", pytest.param("valkey", marks=pytest.mark.exhaustive)])
def test_two_nodes_count_together(servers: tuple[Server, Server, int], kind: str) -> None:
    one, two, port = servers
    with redis_server(port, kind=kind):
        answers = [guess(node, f"{kind}@example.com") for node in (one, two) * FREE]
    statuses = [answer.status_code for answer in answers]
    assert statuses[:FREE] == [200] * FREE
    assert 429 in statuses
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert int(refused.headers["Retry-After"]) >= 1
    assert "Please wait" in refused.text


def test_it_is_killed_in_the_middle(servers: tuple[Server, Server, int]) -> None:
    one, _, port = servers
    with redis_server(port):
        assert guess(one, "erin@example.com").status_code == 200
    begun = time.monotonic()
    answers = [guess(one, "erin@example.com") for _ in range(FREE + 6)]
    assert time.monotonic() - begun < 20
    statuses = [answer.status_code for answer in answers]
    # Sign-in goes on, and so does the counting, in each process.
    assert set(statuses) == {200, 429}
    assert statuses[0] == 200
    said = re.findall(r"redis does not answer \(\w+\)", one.log)
    assert 1 <= len(said) <= 2  # once a minute


def test_redis_that_hangs(servers: tuple[Server, Server, int]) -> None:
    _, two, port = servers
    wait_for(lambda: _takes(port), "the port of Redis")
    with socket.socket() as silent:
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        silent.bind(("127.0.0.1", port))
        silent.listen()
        begun = time.monotonic()
        assert guess(two, "frank@example.com").status_code == 200
        assert time.monotonic() - begun < 5


def _takes(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
