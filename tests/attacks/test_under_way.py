"""The owner sets a new password while a request of the thief is under way.

Whatever the thief was about to get with the old one ends with it: a session, a code, another
password, another address.
"""

from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest
from argon2 import PasswordHasher
from flask import Flask

from sso.crypto import passwords
from sso.endpoints import page
from sso.mfa import policy, totp
from sso.models import User
from sso.store import approvals, users
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.events import events
from tests.support.factories import PASSWORD, make_client
from tests.support.mailbox import Mailbox, link_in
from tests.support.second_factors import (
    ACCOUNT,
    FACTORS,
    ask_for_code,
    code_of,
    confirm_by_code,
    enrol_totp,
    is_signed_in,
    scan,
)

pytestmark = pytest.mark.slow

NEW = "another long password"
THIEFS = "the password of a thief"


def in_between(
    monkeypatch: pytest.MonkeyPatch,
    place: Any,
    name: str,
    act: Callable[[], object],
    after: bool,
    seconds: float = 2,
) -> Thread:
    """Let somebody else's request happen once, before or after this call returns.

    In a thread, for contexts and a connection of its own. Where a lock makes it wait for the
    request that is under way, it ends after that: join it. `seconds`: how long it is waited for.
    """
    real, other = getattr(place, name), Thread(target=act)

    def call(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(place, name, real)
        found = real(*given, **named) if after else None
        other.start()
        other.join(seconds)
        return found if after else real(*given, **named)

    monkeypatch.setattr(place, name, call)
    return other


def test_a_sign_in_under_way_does_not_survive_the_reset(
    app: Flask, owner: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    thief = Browser(app)
    thief.open(f"{ORIGIN}{BASE}/sign-in")
    reset = lambda: owner.submit(new_password=NEW)  # noqa: E731
    other = in_between(monkeypatch, passwords, "verify", reset, after=True)
    thief.sign_in()
    other.join()
    assert owner.page.path.endswith("/sign-in")  # the reset is done
    assert not is_signed_in(thief)


@pytest.mark.parametrize(("place", "name"), [(totp, "accept"), (page, "try_once")])
def test_half_way_under_way_does_not_survive_the_reset(
    app: Flask,
    owner: Browser,
    mailbox: Mailbox,
    monkeypatch: pytest.MonkeyPatch,
    place: Any,
    name: str,
) -> None:
    """When the code is compared, or before the account is locked."""
    dana = Browser(app)
    dana.sign_in()
    confirm_by_code(dana, mailbox)
    secret, _codes = enrol_totp(dana)
    thief = Browser(app)
    thief.sign_in()
    assert thief.page.path.endswith("/second-factor")
    reset = lambda: owner.submit(new_password=NEW)  # noqa: E731
    other = in_between(monkeypatch, place, name, reset, after=False)
    thief.submit(code=code_of(secret, 1))
    other.join()
    assert owner.page.path.endswith("/sign-in")  # the reset is done
    assert not is_signed_in(thief)


def test_a_rehash_does_not_bring_the_old_password_back(
    app: Flask, owner: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    stronger = PasswordHasher(time_cost=2, memory_cost=8, parallelism=1)
    monkeypatch.setattr(passwords, "hasher", stronger)
    thief = Browser(app)
    thief.open(f"{ORIGIN}{BASE}/sign-in")
    reset = lambda: owner.submit(new_password=NEW)  # noqa: E731
    other = in_between(monkeypatch, passwords, "hash_password", reset, after=True)
    thief.sign_in()
    other.join()
    assert Browser(app).sign_in(password=NEW).path.endswith("/account")
    assert not Browser(app).sign_in(password=PASSWORD).path.endswith("/account")


def test_a_change_of_password_under_way_does_not_overwrite_the_reset(
    app: Flask, owner: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    thief = Browser(app)
    thief.sign_in()
    page = thief.open(ACCOUNT)
    reset = lambda: owner.submit(new_password=NEW)  # noqa: E731
    other = in_between(monkeypatch, passwords, "verify", reset, after=True)
    fields = {**page.fields, "action": "change_password"}
    fields |= {"old_password": PASSWORD, "new_password": THIEFS}
    thief.open(ACCOUNT, method="POST", data=fields)
    other.join()
    assert not Browser(app).sign_in(password=THIEFS).path.endswith("/account")
    assert Browser(app).sign_in(password=NEW).path.endswith("/account")


def test_a_code_under_way_does_not_survive_the_reset(
    app: Flask, owner: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = make_client(app, scope="openid offline_access", first_party=True)
    thief = Browser(app)
    thief.sign_in()
    reset = lambda: owner.submit(new_password=NEW)  # noqa: E731
    other = in_between(monkeypatch, approvals, "add", reset, after=False)
    page = thief.authorize(client, scope="openid offline_access")
    other.join()
    assert not is_signed_in(thief)
    if "code" not in page.parameters:
        return
    answer = client.exchange(page.code)
    assert answer.status_code == 400, "a refresh token for 30 days and more"


def test_a_change_of_address_under_way_does_not_survive_the_reset(
    app: Flask,
    user: User,
    owner: Browser,
    mailbox: Mailbox,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thief = Browser(app)
    thief.sign_in()
    thief.open(f"{ORIGIN}{BASE}/account/email")
    fields = {**thief.page.fields, "email": "thief@evil.example", "password": PASSWORD}
    fields.pop("action", None)
    thief.open(f"{ORIGIN}{BASE}/account/email", method="POST", data=fields)
    found = [m for m in mailbox.read() if "thief@evil.example" in m["To"]]
    thief.open(link_in(found[0]))
    reset = lambda: owner.submit(new_password=NEW)  # noqa: E731
    other = in_between(monkeypatch, users, "lock", reset, after=False)
    # `lock` is called by both; the thief's call comes first and lets the owner's pass.
    thief.submit()
    other.join()
    assert not is_signed_in(thief)
    with app.app_context():
        row = users.find(user.id)
        assert row is not None
        assert row.email == user.email


Act = Callable[[], object]


def _first_factor_code(thief: Browser, mailbox: Mailbox) -> Act:
    code = ask_for_code(thief, mailbox)
    return lambda: thief.submit(code=code)


def _first_factor(thief: Browser, mailbox: Mailbox) -> Act:
    confirm_by_code(thief, mailbox)
    secret = scan(thief.open(f"{FACTORS}/totp"))
    return lambda: thief.submit(code=code_of(secret))


def _password(thief: Browser, _: Mailbox) -> Act:
    token = thief.open(ACCOUNT).fields["csrf_token"]
    form = {"action": "change_password", "old_password": PASSWORD, "new_password": THIEFS}
    return lambda: thief.open(ACCOUNT, method="POST", data={"csrf_token": token, **form})


def _email(thief: Browser, _: Mailbox) -> Act:
    url = f"{ACCOUNT}/email"
    fields = {**thief.open(url).fields, "email": "thief@evil.example", "password": PASSWORD}
    fields.pop("action", None)
    return lambda: thief.open(url, method="POST", data=fields)


STEPS = {
    "enrolment_allowed": _first_factor_code,
    "factor_added": _first_factor,
    "password_changed": _password,
    "email_change_asked": _email,
}


@pytest.mark.parametrize("event", STEPS)
def test_a_step_under_way_does_not_survive_the_end_of_its_session(
    app: Flask, user: User, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch, event: str
) -> None:
    """The owner ends the other sessions while the thief's click is on its way."""
    thief, owner = Browser(app), Browser(app)
    thief.sign_in()
    owner.sign_in()
    token = owner.open(ACCOUNT).fields["csrf_token"]
    form = {"csrf_token": token, "action": "end_other_sessions"}
    step = STEPS[event](thief, mailbox)
    before = len(events(app, event))
    end = lambda: owner.open(ACCOUNT, method="POST", data=form)  # noqa: E731
    other = in_between(monkeypatch, policy, "lock", end, after=False)
    step()
    other.join()
    assert thief.page.status == 200
    assert thief.page.path.endswith("/sign-in")
    assert not is_signed_in(thief)
    assert len(events(app, event)) == before


def test_a_second_factor_under_way_does_not_survive_the_end_of_its_session(
    app: Flask, user: User, mailbox: Mailbox, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session is looked at once more under the lock of its user."""
    thief, owner = Browser(app), Browser(app)
    owner.sign_in()
    confirm_by_code(owner, mailbox)
    secret, _codes = enrol_totp(owner)
    thief.sign_in()
    thief.submit(code=code_of(secret, 1))
    assert is_signed_in(thief)
    clock.move(minutes=20)
    form = {**owner.open(ACCOUNT).fields, "action": "end_other_sessions"}
    end = lambda: owner.open(ACCOUNT, method="POST", data=form)  # noqa: E731
    for ended in (False, True):
        clock.move(minutes=20)
        thief.open(f"{ORIGIN}{BASE}/second-factor?back=email")
        other = in_between(monkeypatch, page, "try_once", end, after=True) if ended else None
        before = len(events(app, "stepped_up"))
        thief.submit(code=code_of(secret))
        if other:
            other.join()
        assert len(events(app, "stepped_up")) == before + (not ended)
        assert is_signed_in(thief) is not ended


def test_a_permission_to_enrol_under_way_does_not_survive_another_address(
    app: Flask, user: User, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A code was sent to an address that the thief reads; an operator sets the owner's own."""
    thief = Browser(app)
    thief.sign_in()
    step = _first_factor(thief, mailbox)
    change = ["user", "update", user.email, "--email", "dana@example.org"]
    run = lambda: app.test_cli_runner().invoke(args=change)  # noqa: E731
    other = in_between(monkeypatch, policy, "lock", run, after=False)
    step()
    other.join()
    assert len(events(app, "user_changed")) == 1
    assert events(app, "factor_added") == []


@pytest.mark.parametrize(("form", "event"), [
    ("email", "email_change_asked"),
    ("password", "password_changed"),
])  # fmt: skip
@pytest.mark.parametrize("is_late", [False, True])
def test_a_factor_that_becomes_too_old_while_the_password_is_checked(
    app: Flask,
    user: User,
    mailbox: Mailbox,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    form: str,
    event: str,
    is_late: bool,
) -> None:
    """The check may wait for others; the factor counts when the change is made."""
    browser = Browser(app)
    browser.sign_in()
    confirm_by_code(browser, mailbox)
    clock.stand_still()
    enrol_totp(browser)
    clock.move(minutes=14, seconds=58)
    step = {"email": _email, "password": _password}[form](browser, mailbox)
    wait = lambda: clock.move(seconds=1 + is_late)  # noqa: E731
    in_between(monkeypatch, passwords, "verify", wait, after=True)
    step()
    assert len(events(app, event)) == (not is_late)
