"""Who has shown that an account is theirs has a place in the queue, however many others wait."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event
from typing import Literal

import pytest
from argon2 import PasswordHasher
from flask import Flask

from sso.crypto import passwords
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.factories import PASSWORD, make_user
from tests.support.mailbox import Mailbox
from tests.support.processes import wait_for

STORED = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAA"


class Gate(PasswordHasher):
    """Checks no password before it is opened; remembers the order."""

    def __init__(self) -> None:
        super().__init__(time_cost=1, memory_cost=8, parallelism=1)
        self.open, self.seen, self.began = Event(), list[bytes](), 0

    def verify(self, hash: str | bytes, password: str | bytes) -> Literal[True]:
        self.began += 1
        assert self.open.wait(60)
        assert isinstance(password, bytes)
        self.seen.append(password)
        return super().verify(hash, password)


class Crowd:
    """Checks that wait."""

    def __init__(self, gate: Gate, pool: ThreadPoolExecutor) -> None:
        self.gate, self.pool = gate, pool
        self.waiting: list[Future[bool]] = []

    def check(self, password: str, account: str | None = None) -> None:
        """One more, which is in the queue when this returns."""
        before = self.count
        self.waiting.append(self.pool.submit(passwords.verify, password, STORED, account))
        wait_for(lambda: self.queued == self.count == before + 1, "a place in the queue")

    @property
    def queued(self) -> int:
        queue = passwords._queue
        return len(queue._kept) + len(queue._others) + self.gate.began - len(self.gate.seen)

    @property
    def count(self) -> int:
        return passwords._under_way + len(passwords._kept)

    def fill(self) -> None:
        while passwords._under_way < passwords.AT_ONCE:
            self.check(f"other {passwords._under_way}")


@pytest.fixture
def crowd(monkeypatch: pytest.MonkeyPatch) -> Iterator[Crowd]:
    gate = Gate()
    monkeypatch.setattr(passwords, "hasher", gate)
    with ThreadPoolExecutor(40) as pool:
        made = Crowd(gate, pool)
        try:
            yield made
        finally:
            gate.open.set()
            for one in made.waiting:
                one.result(60)
    assert made.count == 0


def test_places_are_kept_for_accounts(crowd: Crowd) -> None:
    crowd.fill()
    with pytest.raises(passwords.Busy):
        passwords.verify("one too many", STORED)
    for number in range(passwords.KEPT):
        crowd.check("mine", f"account {number}")
    with pytest.raises(passwords.Busy):
        passwords.verify("one too many", STORED, "another account")


def test_one_account_has_one_place(crowd: Crowd) -> None:
    """Nobody takes all places with an account of their own, or with a cookie of somebody else."""
    crowd.fill()
    crowd.check("mine", "mallory")
    with pytest.raises(passwords.Busy):
        passwords.verify("mine", STORED, "mallory")
    with pytest.raises(passwords.Busy):
        passwords.look_for_room(lambda: "mallory")
    passwords.look_for_room(lambda: "dana")
    crowd.check("mine", "dana")


def test_whose_place_is_taken_waits_with_the_others(crowd: Crowd) -> None:
    crowd.check("first", "dana")
    crowd.check("second", "dana")
    assert (passwords._under_way, passwords._kept) == (1, {"dana"})


def test_kept_places_take_every_other_turn(crowd: Crowd) -> None:
    crowd.check("other 0")  # is being checked
    wait_for(lambda: crowd.gate.began == 1, "the first check")
    for number in range(1, 5):
        crowd.check(f"other {number}")
    for number in range(3):
        crowd.check(f"mine {number}", f"account {number}")
    crowd.gate.open.set()
    for one in crowd.waiting:
        one.result(60)
    assert [one.decode() for one in crowd.gate.seen] == [
        "other 0", "mine 0", "other 1", "mine 1", "other 2", "mine 2", "other 3", "other 4",
    ]  # fmt: skip


def test_nobody_is_looked_up_while_there_is_room(crowd: Crowd) -> None:
    def never() -> str:
        raise AssertionError("under a flood alone")

    passwords.look_for_room(never)
    crowd.fill()
    with pytest.raises(AssertionError):
        passwords.look_for_room(never)


def test_a_place_is_free_again_after_a_fault(crowd: Crowd) -> None:
    crowd.gate.open.set()
    for _ in range(passwords.AT_ONCE + 2):
        for account in (None, "dana"):
            with pytest.raises(TypeError):
                passwords.verify("x", 5, account)  # type: ignore[arg-type]
    assert crowd.count == 0


def _known(app: Flask) -> Browser:
    """A browser that the account has signed in from, and out of."""
    browser = Browser(app)
    browser.open(f"{ORIGIN}{BASE}/sign-in")
    browser.submit(email="dana@example.com", password=PASSWORD, remember="y")
    browser.open(f"{ORIGIN}{BASE}/sign-out")
    browser.submit(decision="sign_out")
    return browser


def _sign_in(app: Flask, _: Mailbox) -> Callable[[], str]:
    browser = _known(app)
    browser.open(f"{ORIGIN}{BASE}/sign-in")
    return lambda: browser.sign_in().url


def _change_password(app: Flask, _: Mailbox) -> Callable[[], str]:
    browser = Browser(app)
    browser.sign_in()
    browser.open(f"{ORIGIN}{BASE}/account")
    form = {
        "action": "change_password",
        "old_password": PASSWORD,
        "new_password": "a b c d e f g h i",
    }
    return lambda: browser.submit(**form).url


def _change_email(app: Flask, _: Mailbox) -> Callable[[], str]:
    browser = Browser(app)
    browser.sign_in()
    browser.open(f"{ORIGIN}{BASE}/account/email")
    return lambda: browser.submit(email="new@example.com", password=PASSWORD).url


def _reset(app: Flask, mailbox: Mailbox) -> Callable[[], str]:
    browser = Browser(app)
    browser.open(f"{ORIGIN}{BASE}/forgotten-password")
    browser.submit(email="dana@example.com")
    browser.open(mailbox.link("dana@example.com"))
    return lambda: browser.submit(new_password="another long password").url


@pytest.mark.slow
@pytest.mark.parametrize(
    ("begin", "end"),
    [
        (_sign_in, "/account"),
        (_change_password, "done=password"),
        (_change_email, "done=asked"),
        (_reset, "notice=password"),
    ],
)
def test_a_crowd_keeps_nobody_out_of_their_account(
    app: Flask,
    mailbox: Mailbox,
    monkeypatch: pytest.MonkeyPatch,
    begin: Callable[[Flask, Mailbox], Callable[[], str]],
    end: str,
) -> None:
    make_user(app)
    act = begin(app, mailbox)
    monkeypatch.setattr(passwords, "AT_ONCE", 0)
    assert act().endswith(end)


@pytest.mark.parametrize("email", ["erin@example.com", "", "\0", "x" * 5000])
def test_a_known_browser_has_no_place_for_another_account(
    app: Flask, monkeypatch: pytest.MonkeyPatch, email: str
) -> None:
    make_user(app)
    browser = _known(app)
    browser.open(f"{ORIGIN}{BASE}/sign-in")
    monkeypatch.setattr(passwords, "AT_ONCE", 0)
    assert browser.sign_in(email).status == 503


def test_a_stranger_has_none(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    make_user(app)
    browser = Browser(app)
    browser.open(f"{ORIGIN}{BASE}/sign-in")
    monkeypatch.setattr(passwords, "AT_ONCE", 0)
    assert browser.sign_in().status == 503


def test_where_no_priority_may_be_set_passwords_are_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forbidden(*_: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "setpriority", forbidden)
    passwords._worker.cache_clear()
    try:
        assert passwords.verify(PASSWORD, passwords.hash_password(PASSWORD))
    finally:
        passwords._worker.cache_clear()
