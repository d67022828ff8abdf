"""Attackers who want a device of theirs signed in as somebody else, or a device of somebody else.

Who has a user code approves a device, so codes must not be guessed, and nobody must approve one
without having been asked (RFC 8628 §5.4).
"""

from typing import Any

import pytest
from flask import Flask
from sqlalchemy import func, select, update

from sso import audit
from sso.extensions import db
from sso.jobs.upkeep import purge
from sso.models import DeviceCode, Grant, User
from sso.services import accounts, clients
from sso.services.changes import ListEdit
from sso.store import users
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, Page
from tests.support.devices import PAGE, Device, enter, make_device
from tests.support.events import events
from tests.support.factories import make_user

MALLORY = "mallory@example.com"


@pytest.fixture
def tv(app: Flask) -> Device:
    return make_device(app, groups=[])


def guess(browser: Browser, code: str = "BCDF-GHJK") -> Page:
    browser.open(PAGE)
    return browser.submit(user_code=code)


def grants(app: Flask) -> int:
    with app.app_context():
        return db.session.scalar(select(func.count()).select_from(Grant)) or 0


# ---- guessing codes ----


def test_guessing_by_somebody_who_is_signed_in(
    app: Flask, tv: Device, browser: Browser, user: User
) -> None:
    browser.sign_in()
    statuses = [guess(browser).status for _ in range(12)]
    assert statuses == [200] * 10 + [200, 429] or statuses == [200] * 10 + [429] * 2
    tv.ask()
    assert guess(browser, tv.user_code).status == 429  # the right one tells nothing now
    assert tv.error() == "authorization_pending"
    assert len(events(app, "device_code_failed")) >= 10
    assert events(app, "device_code_failed")[0]["user"] == str(user.id)
    assert len(events(app, "device_code_limited")) == 1


def test_a_new_browser_and_another_network_do_not_help(
    app: Flask, tv: Device, user: User, clock: Clock
) -> None:
    refused = 0
    for network in range(30):
        browser = Browser(app)
        browser.http.environ_base["REMOTE_ADDR"] = f"192.0.2.{network}"
        browser.sign_in()
        refused += guess(browser).status == 429
    assert refused >= 5


def test_guessing_without_an_account(app: Flask, tv: Device) -> None:
    statuses = [guess(Browser(app)).status for _ in range(32)]
    assert statuses[:30] == [200] * 30
    assert statuses[-1] == 429
    elsewhere = Browser(app)
    elsewhere.http.environ_base["REMOTE_ADDR"] = "198.51.100.7"
    assert guess(elsewhere).status == 200


def test_right_codes_of_ones_own_do_not_reset_the_count(
    app: Flask, tv: Device, browser: Browser, user: User
) -> None:
    browser.sign_in()
    statuses = []
    for _ in range(12):
        tv.ask()
        assert guess(browser, tv.user_code).status in (200, 429)
        statuses.append(guess(browser).status)
    assert statuses[-1] == 429


def test_the_answer_does_not_tell_why_a_code_is_wrong(
    app: Flask, tv: Device, browser: Browser, user: User, clock: Clock
) -> None:
    tv.ask()
    enter(browser, tv.user_code)
    browser.allow()
    used = guess(browser, tv.user_code)
    tv.ask()
    clock.move(minutes=11)
    expired, unknown = guess(browser, tv.user_code), guess(browser)
    texts = {"This code is wrong or has expired." in page.html for page in (used, expired, unknown)}
    assert texts == {True}
    reasons = [event["reason"] for event in events(app, "device_code_failed")]
    assert reasons == ["used before", "expired", "unknown"]


# ---- approval without being asked ----


def test_a_link_that_should_approve_by_itself(
    app: Flask, tv: Device, browser: Browser, user: User
) -> None:
    tv.ask()
    browser.sign_in()
    link = tv.codes["verification_uri_complete"]
    for more in ("", "&decision=allow", "&done=approved", "&offered=openid&decision=allow"):
        browser.open(link + more)
    waiting = enter(browser, tv.user_code)
    for more in ("&decision=allow", "&decision=allow&offered=openid%20profile"):
        browser.open(waiting.url + more)
    assert tv.error() == "authorization_pending"
    assert grants(app) == 0


def test_another_site_posts_the_form(app: Flask, tv: Device, browser: Browser, user: User) -> None:
    tv.ask()
    page = enter(browser, tv.user_code)
    forged = {"decision": "allow", "offered": "openid profile"}
    assert ("decision", "allow") in browser.open(page.url, method="POST", data=forged).buttons
    assert grants(app) == 0
    assert len(events(app, "csrf_refused")) == 1


def test_a_form_from_the_attackers_browser(
    app: Flask, tv: Device, browser: Browser, user: User
) -> None:
    """Neither the token of another session nor the waiting request of it approves anything."""
    make_user(app, MALLORY)
    mallory = Browser(app)
    tv.ask()
    mallory.open(PAGE)
    mallory.submit(user_code=tv.user_code)
    mallory.submit(email=MALLORY, password="correct horse battery")
    stolen = mallory.page
    browser.sign_in()
    answer = browser.open(stolen.url, method="POST", data={**stolen.fields, "decision": "allow"})
    assert ("decision", "allow") in answer.buttons  # shown again, and nothing was done
    assert grants(app) == 0
    # Opened there, it asks, and shows the code and the warning.
    page = browser.open(stolen.url)
    assert tv.user_code in page.html
    assert "asks for such a code" in page.html
    assert grants(app) == 0


def test_a_form_that_was_open_before_somebody_else_signed_in(
    app: Flask, tv: Device, browser: Browser, user: User
) -> None:
    make_user(app, MALLORY)
    tv.ask()
    page = enter(browser, tv.user_code)
    fields = {**page.fields, "decision": "allow"}
    browser.open(f"{ORIGIN}{BASE}/sign-in?another=1")
    browser.submit(email=MALLORY, password="correct horse battery")
    answer = browser.open(page.url, method="POST", data=fields)
    assert MALLORY in answer.html
    assert ("decision", "allow") in answer.buttons
    assert grants(app) == 0


def test_a_scope_that_is_added_while_the_page_is_open(
    app: Flask, browser: Browser, user: User
) -> None:
    """Nobody allows what the page did not show."""
    tv = make_device(app, scope="openid profile")
    tv.ask(scope="openid profile email")
    assert "scope_email" not in enter(browser, tv.user_code).html
    with app.app_context():
        clients.change(audit.SYSTEM, tv.client_id, {"scope": "openid profile email"})
        db.session.commit()
    page = browser.allow()
    assert "scope_email" in page.html
    assert tv.error() == "authorization_pending"
    assert grants(app) == 0
    browser.allow()
    assert tv.poll().get_json()["scope"] == "openid profile email"


def test_a_waiting_request_that_was_altered(
    app: Flask, tv: Device, browser: Browser, user: User
) -> None:
    tv.ask()
    page = enter(browser, tv.user_code)
    page = browser.open(page.url[:-3] + "xyz")
    assert page.status == 400
    assert "Please start again" in page.html


def test_another_clients_name_on_the_page(
    app: Flask, tv: Device, browser: Browser, user: User
) -> None:
    """The client that asked is shown, whatever the request says of itself."""
    make_device(app, name="Bank")
    tv.ask(client_name="Bank", logo_uri="https://evil.example/x.png")
    html = enter(browser, tv.user_code).html
    assert "Television" in html
    assert "Bank" not in html
    assert "evil.example" not in html


def test_the_code_becomes_that_of_another_client(
    app: Flask, tv: Device, browser: Browser, user: User
) -> None:
    """The page was shown for the one; the other device drew the same code after a purge."""
    bank = make_device(app, name="Bank")
    tv.ask()
    enter(browser, tv.user_code)
    with app.app_context():
        db.session.execute(update(DeviceCode).values(client_id=bank.client_id))
        db.session.commit()
    assert browser.allow().url.endswith("problem=code")
    assert grants(app) == 0


@pytest.mark.parametrize("name", ["www.evil.example/help", "x/evil.example", "x/1.evil.example"])
def test_a_link_in_the_name_of_a_program(
    app: Flask, tv: Device, browser: Browser, user: User, name: str
) -> None:
    """The mail about the device would have it, and mail programs make links of hosts."""
    assert tv.ask({"User-Agent": name}).status_code == 200
    assert "evil.example" not in enter(browser, tv.user_code).html
    browser.allow()
    (approved,) = events(app, "device_approved")
    assert "example" not in approved["program"]


# ---- approved twice, or by who may not ----


def test_approved_twice(app: Flask, tv: Device, browser: Browser, user: User) -> None:
    tv.ask()
    first = enter(browser, tv.user_code)
    fields = {**first.fields, "decision": "allow"}
    assert "signed in" in browser.open(first.url, method="POST", data=fields).html
    again = browser.open(first.url, method="POST", data=fields)
    assert "This code is wrong or has expired." in again.html
    assert grants(app) == 1
    assert tv.poll().status_code == 200


def test_approved_by_two_people(app: Flask, tv: Device, browser: Browser, user: User) -> None:
    other = make_user(app, MALLORY)
    tv.ask()
    page = enter(browser, tv.user_code)
    mallory = Browser(app)
    mallory.open(PAGE)
    mallory.submit(user_code=tv.user_code)
    mallory.submit(email=MALLORY, password="correct horse battery")
    assert "signed in" in mallory.allow().html
    late = browser.open(page.url, method="POST", data={**page.fields, "decision": "allow"})
    assert "This code is wrong or has expired." in late.html
    tokens = tv.poll().get_json()
    assert tv.userinfo(tokens["access_token"]).get_json()["sub"] == str(other.id)
    assert grants(app) == 1


def test_allowed_after_it_was_refused(app: Flask, tv: Device, browser: Browser, user: User) -> None:
    tv.ask()
    page = enter(browser, tv.user_code)
    browser.deny()
    browser.open(page.url, method="POST", data={**page.fields, "decision": "allow"})
    assert tv.error() == "access_denied"
    assert grants(app) == 0


def disable(app: Flask, user: User) -> None:
    with app.app_context():
        found = users.find(user.id)
        assert found
        accounts.disable(audit.SYSTEM, found)
        db.session.commit()


def leave(app: Flask, user: User) -> None:
    with app.app_context():
        accounts.update(audit.SYSTEM, user.id, memberships=ListEdit(removed=("staff",)))
        db.session.commit()


def test_somebody_disabled_meanwhile_approves(
    app: Flask, tv: Device, browser: Browser, user: User
) -> None:
    tv.ask()
    enter(browser, tv.user_code)
    disable(app, user)
    assert "password" in browser.allow().fields
    assert tv.error() == "authorization_pending"
    assert grants(app) == 0


def test_somebody_is_disabled_after_the_approval(
    app: Flask, tv: Device, browser: Browser, user: User
) -> None:
    tv.ask()
    enter(browser, tv.user_code)
    browser.allow()
    disable(app, user)
    assert tv.error() == "invalid_grant"
    (refused,) = events(app, "tokens_refused")
    assert refused["reason"] == "its grant has ended: user_disabled"


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_group_is_lost_meanwhile(app: Flask, browser: Browser, when: str) -> None:
    user = make_user(app, groups=["staff"])
    tv = make_device(app, groups=["staff"])
    tv.ask()
    enter(browser, tv.user_code)
    if when == "after":
        browser.allow()
    leave(app, user)
    if when == "before":
        assert browser.allow().status == 403
        assert tv.error() == "authorization_pending"
        assert grants(app) == 0
    else:
        assert tv.error() == "invalid_grant"


def test_a_client_that_needs_a_second_factor_meanwhile(
    app: Flask, tv: Device, browser: Browser, user: User
) -> None:
    tv.ask()
    enter(browser, tv.user_code)
    browser.allow()
    with app.app_context():
        clients.change(audit.SYSTEM, tv.client_id, {"require_mfa": True})
        db.session.commit()
    answer = tv.poll().get_json()
    assert answer["error"] == "invalid_grant"
    assert "two-step verification" in answer["error_description"]


def test_signed_out_before_the_device_has_its_tokens(
    app: Flask, tv: Device, browser: Browser, user: User
) -> None:
    tv.ask()
    enter(browser, tv.user_code)
    browser.allow()
    browser.open(f"{ORIGIN}{BASE}/sign-out")
    browser.submit(action="sign_out", decision="sign_out")
    assert tv.error() == "invalid_grant"


# ---- codes of others, floods, the last second ----


def test_a_device_code_that_another_client_has_seen(
    app: Flask, tv: Device, browser: Browser, user: User
) -> None:
    thief = make_device(app, name="Thief")
    tv.ask()
    enter(browser, tv.user_code)
    browser.allow()
    stolen = tv.codes["device_code"]
    assert thief.error(device_code=stolen) == "invalid_grant"
    assert thief.error(device_code=tv.user_code) == "invalid_grant"
    assert tv.poll().status_code == 200  # nothing was burnt
    assert thief.error(device_code=stolen) == "invalid_grant"
    assert events(app, "code_reused") == []


def test_a_device_code_is_no_code_and_no_refresh_token(
    app: Flask, tv: Device, browser: Browser, user: User
) -> None:
    tv.ask()
    device_code = tv.codes["device_code"]
    answer = tv.post(
        "/oauth2/token",
        {"grant_type": "refresh_token", "refresh_token": device_code, **tv.credentials()},
    )
    assert answer.get_json()["error"] == "invalid_grant"
    assert tv.error(grant_type="authorization_code", code=device_code, redirect_uri="x") == (
        "unauthorized_client"
    )


def test_a_flood_of_polls(app: Flask, tv: Device, browser: Browser, user: User) -> None:
    """It writes little, and the device gets its tokens nevertheless."""
    tv.ask()
    errors = {tv.error() for _ in range(200)}
    assert errors == {"authorization_pending", "slow_down"}
    assert len(events(app, "tokens_refused")) <= 11
    enter(browser, tv.user_code)
    browser.allow()
    assert tv.poll().status_code == 200


@pytest.mark.parametrize(("seconds", "is_late"), [(-1, False), (0, True), (1, True)])
def test_the_last_second(
    app: Flask, tv: Device, browser: Browser, user: User, clock: Clock, seconds: int, is_late: bool
) -> None:
    clock.stand_still()
    tv.ask()
    page = enter(browser, tv.user_code)
    fields = {**page.fields, "decision": "allow"}
    clock.move(seconds=600 + seconds)
    page = browser.open(page.url, method="POST", data=fields)
    assert ("has expired" in page.html) == is_late
    assert (tv.poll().status_code == 200) != is_late
    assert tv.error() == ("expired_token" if is_late else "invalid_grant")
    assert grants(app) == (0 if is_late else 1)


@pytest.mark.parametrize(("seconds", "is_late"), [(-1, False), (0, True), (1, True)])
def test_approved_in_time_and_fetched_too_late(
    app: Flask, tv: Device, browser: Browser, user: User, clock: Clock, seconds: int, is_late: bool
) -> None:
    clock.stand_still()
    tv.ask()
    enter(browser, tv.user_code)
    browser.allow()
    clock.move(seconds=600 + seconds)
    answer = tv.poll()
    assert (answer.status_code == 200) != is_late
    assert not is_late or answer.get_json()["error"] == "expired_token"


def test_a_purge_between_the_steps(
    app: Flask, tv: Device, browser: Browser, user: User, clock: Clock
) -> None:
    def purged() -> int:
        with app.app_context():
            purge()
            return db.session.scalar(select(func.count()).select_from(DeviceCode)) or 0

    tv.ask()
    assert purged() == 1
    page = enter(browser, tv.user_code)
    assert purged() == 1
    browser.allow()
    assert purged() == 1
    tokens = tv.poll().get_json()
    assert purged() == 1
    clock.move(days=2)
    assert purged() == 1
    assert tv.error() == "invalid_grant"  # its reuse is seen
    assert tv.userinfo(tokens["access_token"]).status_code == 401
    assert len(events(app, "code_reused")) == 1
    tv.ask()
    clock.move(hours=2)
    assert purged() == 1
    assert tv.error() == "invalid_grant"
    late: Any = browser.open(page.url, method="POST", data={**page.fields, "decision": "allow"})
    assert late.status in (200, 400)
    assert tv.error() == "invalid_grant"
