"""Few requests run at once; waiting requests release their slot."""

import io
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from threading import BoundedSemaphore, Event, Semaphore
from typing import Literal

import pytest
from argon2 import PasswordHasher
from flask import Flask
from werkzeug.test import EnvironBuilder
from werkzeug.wrappers import Response

from sso.crypto import passwords
from sso.models import User
from sso.process import concurrency
from sso.web import access_log
from tests.support import connections
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.factories import PASSWORD, make_user
from tests.support.mailbox import Mailbox
from tests.support.second_factors import enrol_totp

JWKS = f"{BASE}/oauth2/jwks"
NEW = "another long password"


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, make_app: Callable[..., Flask]) -> Flask:
    """An application in which one request runs at once."""
    monkeypatch.setattr(concurrency, "MAX_CONCURRENT", 1)
    app = make_app()
    make_user(app)
    return app


@pytest.fixture
def others() -> Iterator[Callable[[Flask], int]]:
    """Somebody else's request: its status. It fails if its turn does not come."""
    with ThreadPoolExecutor(1) as pool:
        yield lambda app: pool.submit(lambda: app.test_client().get(JWKS).status_code).result(10)


@pytest.fixture
def seen(
    monkeypatch: pytest.MonkeyPatch, others: Callable[[Flask], int], alone: Flask
) -> list[int]:
    """What others were answered while somebody was told to wait."""
    answers: list[int] = []

    def sleep(_: float) -> None:
        assert connections.held(alone) == 0
        answers.append(others(alone))

    monkeypatch.setattr(concurrency, "sleep", sleep)
    return answers


def test_no_more_run_at_once(
    monkeypatch: pytest.MonkeyPatch, make_app: Callable[..., Flask]
) -> None:
    monkeypatch.setattr(concurrency, "MAX_CONCURRENT", 2)
    app, go, running = make_app(new=True), Event(), Semaphore(0)

    @app.before_request
    def stay() -> None:
        running.release()
        assert go.wait(30)

    with ThreadPoolExecutor(3) as pool:
        requests = [pool.submit(app.test_client().get, JWKS) for _ in range(3)]
        try:
            assert running.acquire(timeout=30)
            assert running.acquire(timeout=30)
            assert not running.acquire(timeout=0.3)
        finally:
            go.set()
        assert [request.result(30).status_code for request in requests] == [200] * 3


def test_a_check_of_a_password_lets_others_run(
    monkeypatch: pytest.MonkeyPatch, alone: Flask, others: Callable[[Flask], int]
) -> None:
    answers = []

    class Slow(PasswordHasher):
        def verify(self, hash: str | bytes, password: str | bytes) -> Literal[True]:
            answers.append(others(alone))
            return super().verify(hash, password)

    monkeypatch.setattr(passwords, "hasher", Slow(time_cost=1, memory_cost=8, parallelism=1))
    assert Browser(alone).sign_in().path.endswith("/account")
    assert answers == [200]


def test_the_turn_comes_back_when_a_check_fails(alone: Flask) -> None:
    browser = Browser(alone)
    for _ in range(3):
        assert browser.sign_in(password="not the password").status == 200
    assert alone.test_client().get(JWKS).status_code == 200


def test_who_is_limited_waits_and_lets_others_run(alone: Flask, seen: list[int]) -> None:
    browser = Browser(alone)
    statuses = [browser.sign_in(password="not the password").status for _ in range(7)]
    assert statuses[-1] == 429
    assert seen == [200] * statuses.count(429)


def test_a_delayed_refusal_lets_others_run(
    alone: Flask, seen: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passwords, "AT_ONCE", 0)
    assert Browser(alone).sign_in().status == 503
    assert seen == [200]


def test_without_a_delay_slot_the_refusal_comes_at_once(
    alone: Flask, seen: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = BoundedSemaphore(1)
    taken.acquire()
    monkeypatch.setattr(concurrency, "_delay_slots", taken)
    monkeypatch.setattr(passwords, "AT_ONCE", 0)
    assert Browser(alone).sign_in().status == 503
    assert seen == []


def test_the_delay_is_not_counted_as_slowness(
    alone: Flask, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Clock:
        now = 0.0

        def sleep(self, seconds: float) -> None:
            self.now += seconds

    clock = Clock()
    monkeypatch.setattr(concurrency, "REFUSAL_DELAY", 1.0)
    monkeypatch.setattr(concurrency, "sleep", clock.sleep)
    for module in (concurrency, access_log):
        monkeypatch.setattr(module, "perf_counter", lambda: clock.now)
    monkeypatch.setattr(passwords, "AT_ONCE", 0)
    assert Browser(alone).sign_in().status == 503
    lines = [vars(record) for record in caplog.records if record.name == "sso.access"]
    assert clock.now == 1
    assert {line["duration_ms"] for line in lines} == {0}


def test_a_second_factor_that_is_limited_waits(alone: Flask, seen: list[int]) -> None:
    dana = Browser(alone)
    dana.sign_in()
    enrol_totp(dana)
    browser = Browser(alone)
    browser.sign_in()
    statuses = [browser.submit(code="000000").status for _ in range(7)]
    assert statuses[-1] == 429
    assert seen == [200] * statuses.count(429)


class NeverEnding(io.RawIOBase):
    """A body that begins, and of which no more comes until it is let go."""

    def __init__(self) -> None:
        self.asked, self.go = Event(), Event()

    def read(self, size: int | None = -1) -> bytes:
        self.asked.set()
        assert self.go.wait(30)
        return b""


@pytest.mark.parametrize(
    "more",
    [
        {"CONTENT_LENGTH": "20"},
        {"CONTENT_LENGTH": "0000000020"},
        {"HTTP_TRANSFER_ENCODING": "chunked"},
    ],
)
def test_a_slow_body_lets_others_run(
    alone: Flask, others: Callable[[Flask], int], more: dict[str, str]
) -> None:
    body = NeverEnding()
    environ = EnvironBuilder(path=f"{BASE}/oauth2/token", method="POST").get_environ()
    environ.update({"wsgi.input": body, "wsgi.input_terminated": True, **more})
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(Response.from_app, alone, environ)
        try:
            assert body.asked.wait(30)
            assert others(alone) == 200
        finally:
            body.go.set()
        assert slow.result(30).status_code == 400


@pytest.mark.parametrize(
    ("length", "status"),
    [
        *[("0", 400), ("", 400), ("-1", 400), ("x", 400), ("9" * 5000, 400)],
        *[("262144", 400), ("262145", 413)],
    ],
)
def test_a_length_beyond_the_bound_is_refused(alone: Flask, length: str, status: int) -> None:
    environ = EnvironBuilder(path=f"{BASE}/oauth2/token", method="POST").get_environ()
    environ.update(
        {
            "CONTENT_TYPE": "application/x-www-form-urlencoded",
            "CONTENT_LENGTH": length,
            "wsgi.input": io.BytesIO(b"x" * 300_000),
        }
    )
    assert Response.from_app(alone, environ).status_code == status


def test_a_chunked_body_is_read_up_to_the_bound(alone: Flask) -> None:
    for size, status in ((concurrency.MAX_BODY + 1, 413), (20, 400)):
        environ = EnvironBuilder(path=f"{BASE}/oauth2/token", method="POST").get_environ()
        environ.update(
            {
                "CONTENT_TYPE": "application/x-www-form-urlencoded",
                "HTTP_TRANSFER_ENCODING": "chunked",
                "wsgi.input": io.BytesIO(b"a=" + b"x" * size),
                "wsgi.input_terminated": True,
            }
        )
        assert Response.from_app(alone, environ).status_code == status


def _signed_in(app: Flask, path: str) -> Browser:
    browser = Browser(app)
    browser.sign_in()
    browser.open(f"{ORIGIN}{BASE}{path}")
    return browser


def _sign_in(app: Flask, _: Mailbox) -> str:
    return Browser(app).sign_in().path


def _change_password(app: Flask, _: Mailbox) -> str:
    browser = _signed_in(app, "/account")
    form = {"action": "change_password", "old_password": PASSWORD, "new_password": NEW}
    return browser.submit(**form).url


def _change_email(app: Flask, _: Mailbox) -> str:
    return _signed_in(app, "/account/email").submit(email="new@example.com", password=PASSWORD).url


def _reset_password(app: Flask, mailbox: Mailbox) -> str:
    browser = Browser(app)
    browser.open(f"{ORIGIN}{BASE}/forgotten-password")
    browser.submit(email="dana@example.com")
    browser.open(mailbox.link("dana@example.com"))
    return browser.submit(new_password=NEW).url


def _sign_up(app: Flask, mailbox: Mailbox) -> str:
    browser = Browser(app)
    browser.open(f"{ORIGIN}{BASE}/sign-up")
    browser.submit(email="new@example.com")
    browser.open(mailbox.link("new@example.com"))
    return browser.submit(name="Nia New", new_password=NEW).url


@pytest.mark.parametrize(
    ("act", "end"),
    [
        (_sign_in, "/account"),
        (_change_password, "done=password"),
        (_change_email, "done=asked"),
        (_reset_password, "notice=password"),
        (_sign_up, "/account"),
    ],
)
def test_no_transaction_waits_for_a_check(
    act: Callable[[Flask, Mailbox], str],
    end: str,
    app: Flask,
    user: User,
    mailbox: Mailbox,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = app.extensions["sso.settings"]
    app.extensions["sso.settings"] = replace(settings, sign_up="open")
    held, slot_released = [], concurrency.slot_released

    @contextmanager
    def watched() -> Iterator[None]:
        held.append(connections.held(app))
        with slot_released():
            yield

    monkeypatch.setattr(concurrency, "slot_released", watched)
    assert act(app, mailbox).endswith(end)
    assert held
    assert not any(held)


def test_what_answers_to_a_head_is_kept_by_no_cache(alone: Flask) -> None:
    """Else it would be given to others, who ask for the same file."""
    answer = alone.test_client().get("/healthz", headers={concurrency.HEAD_ONLY: "x"})
    assert (answer.status_code, answer.headers["Cache-Control"]) == (204, "no-store")
