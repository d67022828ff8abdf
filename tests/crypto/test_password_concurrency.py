"""Checking passwords under load: a bounded number at once, the rest is told to come again."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from threading import Event, Semaphore
from typing import Any

import pytest
from argon2 import PasswordHasher
from flask import Flask

from sso.crypto import passwords
from sso.models import User
from tests.conftest import Statements
from tests.support.actors import BASE, Browser
from tests.support.processes import wait_for


class Slow:
    """A hasher that waits until it is let go, and tells how many have come so far."""

    def __init__(self) -> None:
        self.go = Event()
        self.begun = Semaphore(0)
        self.cheap = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)

    def hash(self, password: Any) -> str:
        return self.cheap.hash(password)

    def verify(self, stored: str, password: Any) -> bool:
        self.begun.release()
        assert self.go.wait(30)
        return self.cheap.verify(stored, password)


@pytest.fixture
def crowd(monkeypatch: pytest.MonkeyPatch) -> Any:
    """As many checks as there may be at once; they end with the test."""
    slow = Slow()
    stored = slow.hash(b"right")
    monkeypatch.setattr(passwords, "hasher", slow)
    with ThreadPoolExecutor(passwords.AT_ONCE) as pool:
        checks = [pool.submit(passwords.verify, "right", stored) for _ in range(passwords.AT_ONCE)]
        wait_for(lambda: passwords._under_way == passwords.AT_ONCE, "the crowd")
        assert slow.begun.acquire(timeout=30)
        yield checks
        slow.go.set()
        assert [check.result(30) for check in checks] == [True] * passwords.AT_ONCE


def test_one_is_checked_and_the_others_wait(crowd: Any) -> None:
    assert len(crowd) == passwords.AT_ONCE
    slow: Any = passwords.hasher
    assert slow.begun.acquire(blocking=False) is False


def test_one_more_is_told_to_come_again(
    app: Flask, browser: Browser, user: User, crowd: Any
) -> None:
    with pytest.raises(passwords.Busy):
        passwords.verify("right", None)
    page = browser.sign_in()
    assert (page.status, page.headers["Retry-After"]) == (503, "5")
    assert "try again" in page.html


def test_who_is_refused_costs_no_statement(
    browser: Browser,
    user: User,
    crowd: Any,
    statements: Callable[[], AbstractContextManager[Statements]],
) -> None:
    page = browser.open(f"{BASE}/sign-in")
    with statements() as seen:
        browser.submit(email=user.email, password="correct horse battery")
    assert page.status == 200
    assert browser.page.status == 503
    assert not seen


def test_afterwards_everything_is_as_before(browser: Browser, user: User) -> None:
    assert browser.sign_in().path.endswith("/account")
