"""The outbox of logout tokens: what is sent, to whom, how often, and how it ends."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import pytest
from flask import Flask
from sqlalchemy import select, update

from sso import audit, clock
from sso.audit.events import Event
from sso.extensions import db
from sso.jobs import logout_delivery
from sso.models import Client, Grant, LogoutDelivery, User
from sso.process import http_call
from sso.store import outbox
from tests.conftest import Clock
from tests.support.actors import BASE, ISSUER, ORIGIN, Browser, claims_of, header_of
from tests.support.factories import make_client
from tests.support.processes import free_port

pytestmark = pytest.mark.slow


class Receiver:
    """A relying party's back-channel address, answering as a test wants."""

    def __init__(self, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.status, self.headers = status, headers or {}
        self.tokens: list[str] = []
        self.paths: list[str] = []

    @contextmanager
    def listening(self, port: int = 0) -> Iterator[str]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver.paths.append(self.path)
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                receiver.tokens += parse_qs(body).get("logout_token", [])
                self.send_response(receiver.status)
                for name, value in receiver.headers.items():
                    self.send_header(name, value)
                self.end_headers()

            def do_GET(self) -> None:
                receiver.paths.append(f"GET {self.path}")
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/out?tenant=1"
        finally:
            server.shutdown()
            server.server_close()
            thread.join(10)


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    seen: list[str] = []
    before = audit.event

    def note(name: Event, **fields: object) -> None:
        seen.append(name)
        before(name, **fields)

    monkeypatch.setattr(audit, "event", note)
    return seen


def owe(app: Flask, url: str, **more: object) -> str:
    """Sign in at a client with this address, and out again; gives the `sid`."""
    client = make_client(app, backchannel_logout_uri=url, **more)
    browser = Browser(app)
    tokens = client.exchange(browser.approve(client).code).get_json()
    browser.open(f"{ORIGIN}{BASE}/sign-out")
    browser.submit(decision="sign_out")
    sid: str = claims_of(tokens["id_token"])["sid"]
    return sid


def deliver(app: Flask) -> int:
    with app.app_context():
        return logout_delivery.deliver_due()


def rows(app: Flask) -> list[LogoutDelivery]:
    with app.app_context():
        return list(db.session.scalars(select(LogoutDelivery)))


@pytest.mark.parametrize("alg", ["RS256", "ES256", "EdDSA"])
def test_the_token_is_what_the_standard_says(app: Flask, user: User, alg: str) -> None:
    receiver = Receiver()
    with receiver.listening() as url:
        sid = owe(app, url, id_token_alg=alg)
        assert deliver(app) == 1
        assert deliver(app) == 0
    assert receiver.paths == ["/out?tenant=1"]
    (token,) = receiver.tokens
    assert header_of(token)["typ"] == "logout+jwt"
    assert header_of(token)["alg"] == alg
    claims = claims_of(token)
    assert claims.keys() == {"iss", "aud", "iat", "exp", "jti", "sub", "sid", "events"}
    assert (claims["iss"], claims["sub"], claims["sid"]) == (ISSUER, str(user.id), sid)
    assert claims["events"] == {"http://schemas.openid.net/event/backchannel-logout": {}}
    assert 0 < claims["exp"] - claims["iat"] <= 120
    with app.app_context():
        assert app.extensions["sso.keys"].verify(token, typ="logout+jwt")
        # Neither an identity token nor an access token can be made of it.
        assert app.extensions["sso.keys"].verify(token, typ="JWT") is None


def test_a_client_that_is_down_is_told_when_it_is_up(app: Flask, user: User, clock: Clock) -> None:
    port = free_port()
    sid = owe(app, f"http://127.0.0.1:{port}/out?tenant=1")
    assert deliver(app) == 1
    assert deliver(app) == 0  # not yet again
    clock.move(hours=1)
    receiver = Receiver()
    with receiver.listening(port):
        assert deliver(app) == 1
    assert claims_of(receiver.tokens[0])["sid"] == sid
    assert [row.next_attempt_at for row in rows(app)] == [None]
    assert rows(app)[0].delivered_at is not None


def test_it_is_given_up_after_a_day(
    app: Flask, user: User, clock: Clock, events: list[str]
) -> None:
    owe(app, f"http://127.0.0.1:{free_port()}/out")
    attempts = 0
    for _ in range(200):
        attempts += deliver(app)
        due = rows(app)[0].next_attempt_at
        if due is None:
            break
        clock.time = max(clock.time, due)
    assert 20 < attempts < 80
    (row,) = rows(app)
    assert row.next_attempt_at is None
    assert row.delivered_at is None
    assert events.count("logout_given_up") == 1


def test_pauses_grow(clock: Clock) -> None:
    begun = clock.now()
    pauses = [outbox.LOGOUTS.next_attempt(begun, n, begun) for n in range(1, 15)]
    assert all(pauses)
    assert pauses == sorted(pause for pause in pauses if pause is not None)
    assert pauses[0] == begun + timedelta(seconds=2)
    assert outbox.LOGOUTS.next_attempt(begun, 3, begun + timedelta(days=1)) is None


@pytest.mark.parametrize("status", [302, 307, 400, 401, 500, 501])
def test_nothing_but_success_is_success(app: Flask, user: User, status: int) -> None:
    receiver = Receiver(status, {"Location": "/elsewhere"})
    with receiver.listening() as url:
        owe(app, url)
        deliver(app)
    assert receiver.paths == ["/out?tenant=1"]  # redirects are not followed
    (row,) = rows(app)
    assert row.next_attempt_at is not None
    assert row.last_fault == f"it answered {status}"


def test_two_workers_never_deliver_the_same(app: Flask, user: User) -> None:
    receiver = Receiver()
    with receiver.listening() as url:
        for _ in range(5):
            owe(app, url)
        threads = [threading.Thread(target=deliver, args=[app]) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    sids = [claims_of(token)["sid"] for token in receiver.tokens]
    assert len(sids) == len(set(sids)) == 5


def test_a_worker_that_dies_leaves_its_delivery_to_others(
    app: Flask, user: User, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = Receiver()
    with receiver.listening() as url, monkeypatch.context() as patch:
        owe(app, url)
        patch.setattr(logout_delivery, "_try", lambda _: exit())
        with pytest.raises(SystemExit):
            deliver(app)
        patch.undo()
        assert deliver(app) == 0
        clock.move(seconds=30)
        assert deliver(app) == 1
    assert len(receiver.tokens) == 1


def test_an_answer_without_end_is_cut_off() -> None:
    """Headers that trickle for ever, and a huge answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def trickle() -> None:
            connection, _ = listener.accept()
            with connection:
                try:
                    connection.sendall(b"HTTP/1.1 200 OK\r\n")
                    for number in range(200):
                        connection.sendall(b"X-%d: x\r\n" % (number % 50))
                        stopped.wait(0.05)
                except OSError:
                    pass

        stopped = threading.Event()
        thread = threading.Thread(target=trickle, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        with pytest.raises(http_call.PostError):
            http_call.post_form(url, {"a": "b"}, seconds=0.5)
        stopped.set()
        thread.join(10)


def test_only_clients_that_were_used_and_ask_for_it_are_told(app: Flask, user: User) -> None:
    make_client(app, name="Never used", backchannel_logout_uri="http://127.0.0.1:9/")
    silent = make_client(app, name="No address")
    browser = Browser(app)
    browser.approve(silent)
    browser.open(f"{ORIGIN}{BASE}/sign-out")
    browser.submit(decision="sign_out")
    assert rows(app) == []


@pytest.mark.parametrize("is_disabled", [True, False])
def test_a_disabled_client_is_told_nothing(app: Flask, user: User, is_disabled: bool) -> None:
    client = make_client(app, backchannel_logout_uri="http://127.0.0.1:9/")
    browser = Browser(app)
    browser.approve(client)
    with app.app_context():
        moment = clock.now() if is_disabled else None
        db.session.execute(update(Client).values(disabled_at=moment))
        db.session.commit()
    browser.open(f"{ORIGIN}{BASE}/sign-out")
    browser.submit(decision="sign_out")
    assert len(rows(app)) == (0 if is_disabled else 1)


@pytest.mark.parametrize("change", ["disabled", "without an address", "as before"])
def test_a_client_that_changed_since_it_was_queued(app: Flask, user: User, change: str) -> None:
    """It is told nothing any more, and the token does not wait for it."""
    receiver = Receiver()
    with receiver.listening() as url:
        owe(app, url)
        with app.app_context():
            client = db.session.scalars(select(Client)).one()
            if change == "disabled":
                client.disabled_at = clock.now()
            elif change == "without an address":
                metadata = dict(client.client_metadata)
                del metadata["backchannel_logout_uri"]
                client.set_client_metadata(metadata)
            db.session.commit()
        assert deliver(app) == 1
    assert len(receiver.tokens) == (change == "as before")
    assert [row.next_attempt_at for row in rows(app)] == [None]


def test_one_that_waits_is_not_queued_twice(app: Flask, user: User) -> None:
    client = make_client(app, backchannel_logout_uri="http://127.0.0.1:9/")
    other = make_client(app, name="Other", backchannel_logout_uri="http://127.0.0.1:9/")
    browser = Browser(app)
    for each in (client, other):
        browser.approve(each)
    with app.app_context():
        for _ in range(2):
            outbox.enqueue_logouts(Grant.client_id == client.client_id)
            db.session.commit()
        outbox.enqueue_logouts(Grant.user_id == user.id)
        db.session.commit()
    assert sorted(row.client_id for row in rows(app)) == sorted([client.client_id, other.client_id])
    with app.app_context():  # once it was sent, or given up, another one is owed
        db.session.execute(update(LogoutDelivery).values(next_attempt_at=None))
        outbox.enqueue_logouts(Grant.client_id == client.client_id)
        db.session.commit()
    assert len(rows(app)) == 3
