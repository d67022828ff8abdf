"""Key sets at a URL: read when needed, at a bounded rate, and never a danger to others."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from flask import Flask

from sso.crypto import client_jwt
from sso.oauth import key_sets
from sso.oauth.key_sets import KeySets, KeySetUnavailable
from sso.process import addresses, concurrency
from sso.upstream import remote_cache
from tests.conftest import Clock
from tests.support import connections
from tests.support.factories import make_client
from tests.support.signing import EC, OTHER_EC, make_keyed_client, public, sign

URL = "https://bank.example/jwks"


class Remote:
    """Stands for what a URL gives."""

    def __init__(self, *kids: str) -> None:
        self.kids = list(kids)
        self.fails = ""
        self.reads: list[str] = []
        self.gate = threading.Event()
        self.gate.set()

    def read(self, url: str) -> key_sets.Keys:
        self.reads.append(url)
        assert self.gate.wait(10)
        if self.fails:
            raise KeySetUnavailable(self.fails)
        return client_jwt.usable_keys({"keys": [public(EC, kid) for kid in self.kids]})


def kids(sets: KeySets, kid: str | None, url: str = URL) -> list[str | None]:
    return [key.kid for key in sets.keys(url, kid)]


def settle(remote: Remote, count: int) -> None:
    """A reading in the background has begun, and has had time to end."""
    deadline = time.monotonic() + 5
    while len(remote.reads) < count and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(0.02)


def test_it_is_read_once(clock: Clock) -> None:
    remote = Remote("a")
    sets = KeySets(remote.read)
    assert [kids(sets, one) for one in ("a", "a", None)] == [["a"]] * 3
    assert len(remote.reads) == 1


def test_it_is_read_once_for_each_of_its_keys(clock: Clock) -> None:
    remote = Remote("a", "b")
    sets = KeySets(remote.read)
    for kid in ("b", "a", None):
        clock.move(seconds=31)
        assert kids(sets, kid) == ["a", "b"]
    assert len(remote.reads) == 1


def test_a_new_key_is_found_at_once_but_not_more_often_than_allowed(clock: Clock) -> None:
    remote = Remote("a")
    sets = KeySets(remote.read)
    kids(sets, "a")
    remote.kids = ["a", "b"]
    assert kids(sets, "b") == ["a"]  # within the pause
    clock.move(seconds=31)
    assert kids(sets, "b") == ["a", "b"]
    for number in range(50):  # names that anyone makes up
        assert kids(sets, f"x{number}") == ["a", "b"]
    assert len(remote.reads) == 2


def test_an_old_set_is_read_again_while_nobody_waits(clock: Clock) -> None:
    remote = Remote("a")
    sets = KeySets(remote.read)
    kids(sets, "a")
    clock.move(minutes=6)
    remote.kids = ["a", "b"]
    remote.gate.clear()
    assert kids(sets, "a") == ["a"]
    remote.gate.set()
    settle(remote, 2)
    assert kids(sets, "b") == ["a", "b"]


def test_a_url_that_fails(clock: Clock) -> None:
    remote = Remote("a")
    sets = KeySets(remote.read)
    kids(sets, "a")
    remote.fails = "it answered 500, not 200"
    clock.move(minutes=59)
    assert kids(sets, "a") == ["a"]
    settle(remote, 2)
    clock.move(minutes=2)
    with pytest.raises(KeySetUnavailable, match="500"):
        kids(sets, "a")  # a key that was withdrawn must not live on
    with pytest.raises(KeySetUnavailable, match="500"):
        kids(sets, "a")
    assert len(remote.reads) == 3
    remote.fails = ""
    clock.move(seconds=31)
    assert kids(sets, "a") == ["a"]


def test_many_requests_read_it_once() -> None:
    remote = Remote("a")
    remote.gate.clear()
    sets = KeySets(remote.read)
    found: list[list[str | None]] = []
    threads = [threading.Thread(target=lambda: found.append(kids(sets, "a"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    settle(remote, 1)
    remote.gate.set()
    for thread in threads:
        thread.join(5)
    assert found == [["a"]] * 8
    assert len(remote.reads) == 1


def test_a_slow_url_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_cache, "SECONDS", 0.05)
    slow, fast = Remote("a"), Remote("a")
    slow.gate.clear()
    sets = KeySets(lambda url: (slow if "slow" in url else fast).read(url))
    for _ in range(3):
        with pytest.raises(KeySetUnavailable) as caught:
            kids(sets, "a", "https://slow.example/")
        assert caught.value.is_passing
    assert kids(sets, "a") == ["a"]
    assert len(slow.reads) == 1
    slow.gate.set()


def test_few_requests_wait_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_cache, "MAX_WAITING", 1)
    monkeypatch.setattr(remote_cache, "MAX_READING", 1)
    remote = Remote("a")
    remote.gate.clear()
    sets = KeySets(remote.read)
    waiting = threading.Thread(target=lambda: kids(sets, "a"))
    waiting.start()
    settle(remote, 1)
    began = time.monotonic()
    for url in (URL, "https://another.example/"):
        with pytest.raises(KeySetUnavailable) as caught:
            kids(sets, "a", url)
        assert caught.value.is_passing
    assert time.monotonic() - began < 1
    remote.gate.set()
    waiting.join(5)


def test_a_request_that_waits_has_no_slot_and_no_connection(
    make_app: Callable[..., Flask], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one slot, an ordinary client is served while another one's key set is slow."""
    monkeypatch.setattr(concurrency, "MAX_CONCURRENT", 1)
    app = make_app()
    client, bank = make_client(app), make_keyed_client(app, jwks_uri=URL)
    remote = Remote("k1")
    remote.gate.clear()
    app.extensions["sso.key_sets"] = KeySets(remote.read)
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(bank.introspect("t").status_code))
    thread.start()
    settle(remote, 1)
    assert connections.held(app) == 0
    assert client.introspect("t").status_code == 200
    assert answers == []
    remote.gate.set()
    thread.join(5)
    assert answers == [200]


def test_what_a_client_is_told(app: Flask, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    monkeypatch.setattr(remote_cache, "SECONDS", 0.05)
    bank = make_keyed_client(app, jwks_uri=URL)
    remote = Remote("k1")
    remote.fails = "it answered 404, not 200"
    app.extensions["sso.key_sets"] = KeySets(remote.read)
    answer = bank.introspect("t")
    assert (answer.status_code, answer.get_json()["error"]) == (401, "invalid_client")
    assert f"The key set at {URL} could not be read: it answered 404, not 200." in answer.text
    clock.move(seconds=31)
    remote.fails = ""
    remote.gate.clear()
    answer = bank.introspect("t")
    assert (answer.status_code, answer.get_json()["error"]) == (503, "temporarily_unavailable")
    remote.gate.set()
    settle(remote, 2)
    assert bank.introspect("t").status_code == 200
    remote.kids = ["k2"]
    other = sign(bank.claims(), EC, kid="k2")
    clock.move(seconds=31)
    form = {**bank.credentials(), "client_assertion": other}
    assert bank.post("/oauth2/introspect", {"token": "t", **form}).status_code == 200
    assert bank.introspect("t").status_code == 401  # k1 is gone


Reply = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def serving(reply: Reply) -> Iterator[tuple[str, list[str]]]:
    """A server on this machine, and which paths it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            reply(self)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/jwks", asked
        finally:
            server.shutdown()
            thread.join()


def body(content: bytes, status: int = 200, **headers: str) -> Reply:
    def reply(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        with suppress(OSError):
            handler.wfile.write(content)

    return reply


def trickle(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    with suppress(OSError):
        for _ in range(40):
            handler.wfile.write(b" ")
            time.sleep(0.02)


SET = json.dumps({"keys": [public(EC), public(OTHER_EC, "k2", use="enc"), {"kty": "oct"}]}).encode()
PRIVATE = json.dumps({"keys": [EC.as_dict(private=True)]}).encode()


@pytest.fixture
def loopback_is_public(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "forbidden", lambda *_: None)


@pytest.mark.usefixtures("loopback_is_public")
def test_a_set_over_http() -> None:
    with serving(body(SET)) as (url, _):
        assert [key.kid for key in key_sets.read(url)] == ["k1"]
    with serving(body(SET.ljust(key_sets.MAX_LENGTH))) as (url, _):  # as long as one may be
        assert [key.kid for key in key_sets.read(url)] == ["k1"]


@pytest.mark.usefixtures("loopback_is_public")
@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (body(SET, 404), "it answered 404"),
        (body(b"", 302, Location="/elsewhere"), "it answered 302"),
        (body(b"", 307, Location="http://169.254.169.254/"), "it answered 307"),
        (body(b" " * (key_sets.MAX_LENGTH + 1)), "it is longer than"),
        (body(SET + b" " * 10_000_000), "it is longer than"),
        (body(b"<html>"), "it is not JSON"),
        (body(b"\xff"), "it is not JSON"),
        (body(b"[" * 60_000), "it is not JSON"),
        (body(b"[]"), "it has no key"),
        (body(b'{"keys": {}}'), "it has no key"),
        (body(b'{"keys": [null, [], 7, {"kty": 7}]}'), "it has no key"),
        (body(PRIVATE), "it has no key"),
        (trickle, "it did not answer in time .TimeoutError"),
    ],
)
def test_answers_that_are_no_key_set(
    reply: Reply, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_sets, "SECONDS", 0.3)
    with serving(reply) as (url, asked):
        with pytest.raises(KeySetUnavailable, match=words):
            key_sets.read(url)
        assert asked == ["/jwks"]


def test_addresses_that_are_not_public() -> None:
    with serving(body(SET)) as (url, asked):
        port = url.split(":")[2]
        hosts = ("127.0.0.1", "localhost", "[::1]", "127.1", "2130706433", "[::ffff:127.0.0.1]")
        for host in (*hosts, "169.254.169.254", "10.0.0.1", "[fe80::1]"):
            with pytest.raises(KeySetUnavailable, match=r"leads to|be reached"):
                key_sets.read(f"http://{host}:{port}")
        assert asked == []


NEVER = "its host is an address that is never called"


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("10.0.0.1", "its host is a private address"),
        ("127.1", "its host is a private address"),
        ("[::1]:8443", "its host is a private address"),
        ("[fd00::1]", "its host is a private address"),
        ("169.254.169.254", NEVER),
        ("192.0.0.192", NEVER),
        ("168.63.129.16", NEVER),
        ("[::ffff:169.254.169.254]", NEVER),
    ],
)
def test_a_client_cannot_be_registered_for_an_address_that_is_not_public(
    app: Flask, host: str, reason: str
) -> None:
    """A back-channel logout URI may be private, but is never a metadata service."""
    with pytest.raises(ValueError, match=f"the JWKS URL is refused: {reason}"):
        make_client(app, auth_method="private_key_jwt", jwks_uri=f"https://{host}/jwks")
    for scheme in ("https", "http"):
        url = f"{scheme}://{host}/out"
        if reason == NEVER:
            with pytest.raises(ValueError, match=f"back-channel logout address .* {reason}"):
                make_client(app, backchannel_logout_uri=url)
        else:
            assert make_client(app, backchannel_logout_uri=url)


def test_a_client_cannot_be_registered_for_http(app: Flask) -> None:
    with pytest.raises(ValueError, match="it is not https"):
        make_client(app, auth_method="private_key_jwt", jwks_uri="http://bank.example/jwks")
