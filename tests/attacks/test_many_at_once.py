"""The attacker sends all guesses at once, before the first of them is counted.

Those that were under way when the free ones were used up tell nothing, in no way.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any, Literal

import pytest
from argon2 import PasswordHasher
from flask import Flask

from sso.audit import rows, writer
from sso.crypto import passwords
from sso.mfa import totp
from sso.models import User
from sso.ratelimit import limiting
from tests.attacks.conftest import Watch
from tests.support.actors import BASE, ORIGIN, Browser, Page, RelyingParty
from tests.support.factories import PASSWORD
from tests.support.processes import wait_for
from tests.support.second_factors import ACCOUNT, enrol_totp, is_signed_in

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("watch")]

WRONG, LAST = "wrong wrong wrong", "wrong as well"
FREE = limiting.SIGN_IN.pair.free


class Gate(PasswordHasher):
    """Checks no password before it is opened."""

    def __init__(self) -> None:
        super().__init__(time_cost=1, memory_cost=8, parallelism=1)
        self.open, self.open_to_the_last = Event(), Event()

    def verify(self, hash: str | bytes, password: str | bytes) -> Literal[True]:
        assert self.open.wait(30)
        if password in (PASSWORD.encode(), LAST.encode()):
            assert self.open_to_the_last.wait(30)
        return super().verify(hash, password)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[Callable[[], Page]]], list[Page]]:
    """Do all of it at once; the last is checked when the others are answered."""

    def run(acts: list[Callable[[], Page]]) -> list[Page]:
        gate, queue = Gate(), passwords._worker()._work_queue
        monkeypatch.setattr(passwords, "hasher", gate)
        with ThreadPoolExecutor(len(acts)) as pool:
            done = []
            for number, act in enumerate(acts):
                done.append(pool.submit(act))

                def queued(number: int = number) -> bool:
                    begun = passwords._under_way + len(passwords._kept)
                    return begun == number + 1 and queue.qsize() == number

                # One is being checked; the others must stand in the queue, in this order.
                wait_for(queued, "the queue")
            gate.open.set()
            pages = [one.result(30) for one in done[:-1]]
            gate.open_to_the_last.set()
            return [*pages, done[-1].result(30)]

    return run


def at(app: Flask, address: str) -> Browser:
    browser = Browser(app)
    browser.http.environ_base["REMOTE_ADDR"] = address
    return browser


def sign_ins(app: Flask, address: str, given: list[str]) -> list[Callable[[], Page]]:
    """Sign-ins that are ready to be sent."""
    browsers = [at(app, address) for _ in given]
    for browser in browsers:
        browser.open(f"{ORIGIN}{BASE}/sign-in")
    return [
        lambda browser=browser, password=password: browser.submit(  # type: ignore[misc]
            email="dana@example.com", password=password
        )
        for browser, password in zip(browsers, given, strict=True)
    ]


def test_they_learn_no_more_than_one_after_the_other(app: Flask, user: User, at_once: Any) -> None:
    given = [WRONG] * (passwords.AT_ONCE - 1) + [PASSWORD]
    pages = at_once(sign_ins(app, "203.0.113.1", given))
    assert [page.status for page in pages].count(200) == FREE
    assert pages[-1].status == 429


def test_the_pause_does_not_tell_which_guess_was_right(
    app: Flask, user: User, at_once: Any
) -> None:
    told = []
    for address, last in (("203.0.113.1", LAST), ("203.0.113.2", PASSWORD)):
        pages = at_once(sign_ins(app, address, [WRONG] * 9 + [last]))
        after = at(app, address).sign_in(password=WRONG)
        told.append([page.headers.get("Retry-After") for page in (pages[-1], after)])
    assert told[0] == told[1]


def test_they_use_up_no_more_of_the_account_elsewhere(app: Flask, user: User, at_once: Any) -> None:
    for address in ("203.0.113.1", "203.0.113.2", "203.0.113.3"):
        at_once(sign_ins(app, address, [WRONG] * passwords.AT_ONCE))
    assert at(app, "198.51.100.1").sign_in().path.endswith("/account")


def test_a_change_of_the_password_tells_no_more(app: Flask, user: User, at_once: Any) -> None:
    guesses = []
    for password in [WRONG] * 9 + [PASSWORD]:
        thief = Browser(app)
        thief.sign_in()
        thief.open(ACCOUNT)
        form = {"action": "change_password", "old_password": password, "new_password": "short"}
        guesses.append(lambda thief=thief, form=form: thief.submit(**form))
    pages = at_once(guesses)
    assert [page.status for page in pages].count(200) == FREE
    assert pages[-1].status == 429


def test_a_recovery_code_that_comes_late_is_not_used(
    app: Flask, user: User, monkeypatch: pytest.MonkeyPatch, watch: Watch
) -> None:
    dana = Browser(app)
    dana.sign_in()
    _, codes = enrol_totp(dana)
    browser, accept = Browser(app), totp.accept_recovery_code
    browser.sign_in()

    def beside_others(*given: Any) -> bool:
        attempts = [limiting.ask(limiting.SECOND_FACTOR, user.email)[0] for _ in range(FREE)]
        for attempt in attempts:
            attempt.failed()
        return accept(*given)

    monkeypatch.setattr(totp, "accept_recovery_code", beside_others)
    assert browser.submit(recovery_code=codes[0]).status == 429
    assert writer.flush(app)
    with app.app_context():
        assert not rows.newest(names=["recovery_code_used"], limit=9)
    monkeypatch.setattr(totp, "accept_recovery_code", accept)
    watch.now += 60
    browser.open(f"{ORIGIN}{BASE}/second-factor")
    browser.submit(recovery_code=codes[0])
    assert is_signed_in(browser)


def test_a_crowd_tells_nothing_of_a_password_to_be_hashed_anew(
    app: Flask, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: object) -> str:
        raise passwords.Busy

    monkeypatch.setattr(passwords, "needs_rehash", lambda _: True)
    monkeypatch.setattr(passwords, "hash_password", busy)
    assert Browser(app).sign_in().path.endswith("/account")


def test_a_crowd_refuses_nobody_who_gives_no_password(
    app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    # nginx asks the next node after a GET that got 503, and leaves this one out for a while.
    monkeypatch.setattr(passwords, "AT_ONCE", 0)
    answer = app.test_client().get(f"{BASE}/sign-in", data={"password": "x"})
    assert answer.status_code == 200


def test_a_limit_is_told_to_the_audit_trail(
    app: Flask, user: User, client: RelyingParty, watch: Watch
) -> None:
    browser = Browser(app)
    browser.authorize(client)
    statuses = [browser.submit(email=user.email, password=WRONG).status for _ in range(9)]
    assert 429 in statuses
    assert writer.flush(app)
    with app.app_context():
        assert rows.newest(names=["sign_in_limited"], limit=9)
