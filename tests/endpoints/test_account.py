"""The account page: what is open in the user's name, and ending it."""

import re

import pytest
from flask import Flask
from sqlalchemy import update

from sso.extensions import db
from sso.models import User
from sso.store import grants
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, Page, RelyingParty
from tests.support.events import events
from tests.support.factories import PASSWORD, make_client, make_user

ACCOUNT = f"{ORIGIN}{BASE}/account"
NEW = "another long password"


@pytest.fixture
def page(browser: Browser, client: RelyingParty, user: User) -> Page:
    browser.approve(client)
    return browser.open(ACCOUNT)


def act(browser: Browser, **values: str) -> Page:
    browser.open(ACCOUNT)
    return browser.submit(**values)


def signed_in(browser: Browser) -> bool:
    return browser.open(ACCOUNT).path.endswith("/account")


def elsewhere(app: Flask) -> Browser:
    """The same person on another browser."""
    other = Browser(app)
    other.sign_in()
    return other


def test_it_shows_everything(app: Flask, browser: Browser, page: Page, user: User) -> None:
    assert user.email in page.html
    assert "Books" in page.html
    assert "this browser" in page.html
    assert len(re.findall("End this session", page.html)) == 0
    elsewhere(app)
    assert len(re.findall("End this session", browser.open(ACCOUNT).html)) == 1


def test_it_says_that_this_browser_was_seen_now(
    browser: Browser, client: RelyingParty, user: User, clock: Clock
) -> None:
    browser.approve(client)
    clock.move(minutes=20)
    seen = [re.findall("last seen (.*?)</small>", browser.open(ACCOUNT).html) for _ in range(2)]
    assert len(seen[0]) == 1
    assert seen[0] == seen[1]


def test_since_when_an_application_has_access(
    app: Flask, browser: Browser, client: RelyingParty, user: User, clock: Clock
) -> None:
    """Since the consent, although what was granted then has ended."""
    browser.approve(client)
    allowed = clock.time
    clock.move(days=1)
    browser.open(f"{ORIGIN}{BASE}/sign-out")
    browser.submit(decision="sign_out")
    browser.approve(client)
    with app.app_context():
        (access,) = grants.accesses_of(user.id)
    assert access.since <= allowed


def test_one_sign_in_is_ended(app: Flask, browser: Browser, page: Page) -> None:
    other = elsewhere(app)
    page = browser.open(ACCOUNT)
    session = page.fields["session"]
    page = act(browser, action="end_session", session=session)
    assert 'role="status"' in page.html
    assert not signed_in(other)
    assert signed_in(browser)


def test_all_others_are_ended(app: Flask, browser: Browser, page: Page) -> None:
    others = [elsewhere(app), elsewhere(app)]
    act(browser, action="end_other_sessions")
    assert [signed_in(other) for other in others] == [False, False]
    assert signed_in(browser)


def test_nobody_ends_a_strangers_sign_in(app: Flask, browser: Browser, page: Page) -> None:
    make_user(app, "erin@example.com", name="Erin")
    first, second = Browser(app), Browser(app)
    first.sign_in("erin@example.com")
    second.sign_in("erin@example.com")
    session = second.open(ACCOUNT).fields["session"]
    act(browser, action="end_session", session=session)
    assert signed_in(first)
    assert signed_in(second)


def test_access_is_withdrawn(
    app: Flask, browser: Browser, client: RelyingParty, page: Page
) -> None:
    other = make_client(app, name="Other")
    kept = other.exchange(browser.approve(other).code).get_json()
    tokens = client.exchange(browser.approve(client).code).get_json()
    page = act(browser, action="withdraw", client=client.client_id)
    assert "Books" not in page.html
    assert client.userinfo(tokens["access_token"]).status_code == 401
    assert client.refresh(tokens["refresh_token"]).get_json()["error"] == "invalid_grant"
    assert other.userinfo(kept["access_token"]).status_code == 200
    assert ("decision", "allow") in browser.authorize(client).buttons


def test_a_new_password_ends_all_other_sign_ins(
    app: Flask, browser: Browser, client: RelyingParty, page: Page
) -> None:
    other = elsewhere(app)
    theirs = client.exchange(other.authorize(client).code).get_json()
    mine = client.exchange(browser.authorize(client).code).get_json()
    form = {"action": "change_password", "old_password": PASSWORD, "new_password": NEW}
    page = act(browser, **form)
    assert 'role="status"' in page.html
    assert not signed_in(other)
    assert signed_in(browser)
    assert client.userinfo(theirs["access_token"]).status_code == 401
    assert client.userinfo(mine["access_token"]).status_code == 200
    assert Browser(app).sign_in(password=PASSWORD).path.endswith("/sign-in")
    assert Browser(app).sign_in(password=NEW).path.endswith("/account")


@pytest.mark.parametrize(
    ("old", "new"), [("wrong", NEW), (PASSWORD, "short"), ("", ""), (PASSWORD, "x" * 257)]
)
def test_a_password_that_does_not_do(
    app: Flask, browser: Browser, page: Page, old: str, new: str
) -> None:
    browser.open(f"{BASE}/account?done=name")
    assert "Your name was changed." in browser.page.html
    page = browser.submit(action="change_password", old_password=old, new_password=new)
    assert 'aria-invalid="true"' in page.html
    assert "Your name was changed." not in page.html
    assert Browser(app).sign_in(password=PASSWORD).path.endswith("/account")


def test_the_own_name_is_changed(
    app: Flask, browser: Browser, client: RelyingParty, page: Page, user: User, clock: Clock
) -> None:
    tokens = client.exchange(browser.approve(client).code).get_json()
    clock.move(minutes=1)
    page = act(browser, action="change_name", name="  Dana <Else> ")
    assert 'role="status"' in page.html
    assert "Dana &lt;Else&gt;" in page.html
    profile = client.userinfo(tokens["access_token"]).get_json()
    assert profile["name"] == "Dana <Else>"
    assert profile["updated_at"] == int(clock.time.timestamp())
    (event,) = events(app, "name_changed")
    assert event["user"] == str(user.id)
    assert event["changes"]["name"]["before"] == "Dana Demo"
    clock.move(minutes=1)
    act(browser, action="change_name", name="Dana <Else>")  # no change
    assert len(events(app, "name_changed")) == 1
    assert client.userinfo(tokens["access_token"]).get_json() == profile


def test_the_language_of_the_account_is_changed(
    app: Flask, browser: Browser, page: Page, user: User
) -> None:
    for locale, change in (("de", (None, "de")), ("de", None), ("xx", ("de", None)), ("", None)):
        recorded = len(events(app, "language_changed"))
        act(browser, action="choose_language", locale=locale)
        new = events(app, "language_changed")[recorded:]
        seen = [(each["before"], each["after"]) for one in new for each in one["changes"].values()]
        assert seen == ([change] if change else [])
        assert all(one["user"] == str(user.id) and "operator" not in one for one in new)
    assert "Language changed" in browser.open(f"{ACCOUNT}/activity").html


@pytest.mark.parametrize("name", ["", "   ", "a\nb", "x" * 201, "a\u202eb", "\x00"])
def test_a_name_that_does_not_do(app: Flask, browser: Browser, page: Page, name: str) -> None:
    page = act(browser, action="change_name", name=name)
    assert 'aria-invalid="true"' in page.html
    assert events(app, "name_changed") == []
    assert "Dana Demo" in browser.open(ACCOUNT).html


def test_who_has_no_password_is_shown_how_to_set_one(
    app: Flask, browser: Browser, page: Page, user: User
) -> None:
    assert "/forgotten-password" not in page.html
    with app.app_context():
        db.session.execute(update(User).values(password_hash=None))
        db.session.commit()
    html = browser.open(ACCOUNT).html
    assert f'href="{BASE}/forgotten-password"' in html
    assert "old_password" not in html


def test_every_action_needs_the_csrf_token(browser: Browser, page: Page, user: User) -> None:
    for action in ("withdraw", "end_other_sessions", "change_password", "end_session"):
        answer = browser.http.post(f"{BASE}/account", data={"action": action}, base_url=ORIGIN)
        assert answer.status_code == 303
        assert answer.headers["Location"] == f"{BASE}/account"
