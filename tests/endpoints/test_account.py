"""The account page: what is open in the user's name, and ending it."""

import re
from html import unescape

import pytest
from flask import Flask
from sqlalchemy import update

from sso import audit
from sso.audit import writer
from sso.config import images
from sso.config.upstream.file import Upstreams
from sso.extensions import db
from sso.models import Grant, Identity, User
from sso.services import group_owners
from sso.store import grants, identities, named_groups
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, Page, RelyingParty
from tests.support.devices import make_device
from tests.support.events import events
from tests.support.exchanges import DOCS, MAIL, MAPS, Chain, exchange
from tests.support.factories import PASSWORD, make_attribute, make_client, make_user
from tests.support.logos import PNG
from tests.support.second_factors import FACTORS, codes_of, enrol_totp, is_signed_in
from tests.support.statements import watched
from tests.support.upstreams import provider

LOGO = images.parse(PNG, 1000)
ACCOUNT = f"{ORIGIN}{BASE}/account"
NEW = "another long password"


def plain(page: Page) -> str:
    """The page's text without the marks around names."""
    return re.sub(r"</?bdi>", "", page.html)


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


@pytest.mark.parametrize("database", ["sqlite", "postgresql"], indirect=True)
def test_it_takes_four_statements(app_on_each: Flask) -> None:
    """For somebody who has something in each of its lists."""
    app = app_on_each
    make_attribute(app, "desk", title="Desk", readers=["person"], writers=["person"])
    make_attribute(app, "tags", "list", title="Tags", readers=["person"])
    user = make_user(app, groups=["staff"], attributes={"desk": "B12", "tags": ["one", "two"]})
    app.extensions["sso.upstreams"] = Upstreams([provider()])
    browser = Browser(app)
    browser.sign_in()
    chain = Chain(app, browser)
    chain.exchanged()
    make_device(app).approve(browser)
    make_client(app, name="Wiki", home_url="https://wiki.example/", groups=["staff"], logo=LOGO)
    make_client(app, name="Secret", home_url="https://secret.example/", groups=["board"])
    enrol_totp(browser)
    with app.app_context():
        group = named_groups.find_by_name("staff")
        assert group
        group_owners.change(audit.SYSTEM, group.id, added=[user.id])
        of_corp = {"provider": "corp", "issuer": "https://corp.example", "subject": "1"}
        identities.add(Identity(user_id=user.id, **of_corp))
        db.session.commit()
        engine = db.engine
    seen: list[str] = []
    browser.open(ACCOUNT)
    with watched(engine, lambda statement, _: seen.append(statement)):
        page = browser.open(ACCOUNT)
    text = plain(page)
    for fact in (
        "dana@example.com", "Your groups", "Corp", "Passkeys: 0", "Authenticator app: on",
        "Recovery codes left: 10", "this browser", "Books", "Documents: Read",
        "Backend of https://docs.example acts for you there", "Television", "on a device since",
        "okhttp", "https://wiki.example/", LOGO.digest, "B12", "one, two", "staff",
    ):  # fmt: skip
        assert fact in text, fact
    assert "secret.example" not in text
    assert len(seen) <= 4, "\n".join(seen)


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
    own = elsewhere(app).open(ACCOUNT).fields["session"]
    page = act(browser, action="end_session", session=own)
    assert 'role="status"' not in page.html
    assert signed_in(browser)  # to sign out is another button


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
    ("old", "new"), [("wrong", NEW), (PASSWORD, "short"), ("", ""), (PASSWORD, "x" * 257),
     (PASSWORD, "dana@example.com"), (PASSWORD, "Dana Demo 2026")],
)  # fmt: skip
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


@pytest.mark.slow
def test_a_new_password_needs_a_recent_second_factor(
    app: Flask, browser: Browser, clock: Clock, user: User
) -> None:
    """Who finds the browser open, and has seen the password being typed, keeps nobody out."""
    browser.sign_in()
    enrol_totp(browser)
    clock.move(minutes=15, seconds=1)
    page = act(browser, action="change_password", old_password=PASSWORD, new_password=NEW)
    assert page.path.endswith("/second-factor")
    assert Browser(app).sign_in(password=NEW).path.endswith("/sign-in")
    assert Browser(app).sign_in(password=PASSWORD).path.endswith("/second-factor")


# The page of one's own recent security events.

ACTIVITY = f"{ORIGIN}{BASE}/account/activity"


def test_people_see_what_happened_in_their_name(
    app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    make_user(app, "erin@example.com")
    Browser(app).sign_in("erin@example.com", "wrong wrong wrong")
    assert Browser(app).sign_in(password="wrong wrong wrong").status == 200
    browser.approve(client)
    app.test_cli_runner().invoke(args=["user", "update", user.email, "--name", "Dana"])
    writer.flush(app)
    assert 'href="/api/auth/account/activity"' in browser.open(f"{BASE}/account").html
    page = browser.open(ACTIVITY)
    words = (
        "Sign-in failed: wrong password",
        "Signed in",
        "Access allowed",
        "Account changed by an operator",
    )
    assert [page.html.count(one) for one in words] == [1] * len(words)
    assert "Books" in page.html
    assert "127.0.0.1" in page.html
    assert page.html.index("Account changed") < page.html.index("Signed in")  # newest first


def test_it_asks_to_sign_in(app: Flask) -> None:
    assert Browser(app).open(ACTIVITY).path.endswith("/sign-in")


def test_somebody_elses_events_are_not_there(app: Flask, browser: Browser, user: User) -> None:
    make_user(app, "erin@example.com")
    Browser(app).sign_in("erin@example.com", PASSWORD)
    browser.sign_in()
    assert browser.open(ACTIVITY).html.count("Signed in") == 1


# The question before something ends, and that it says the truth.

CONFIRM = f"{ORIGIN}{BASE}/account/confirm"


@pytest.fixture
def signed_in_browser(browser: Browser, user: User) -> Browser:
    browser.sign_in()
    return browser


@pytest.mark.slow
def test_it_asks_before_everywhere(app: Flask, signed_in_browser: Browser) -> None:
    other = Browser(app)
    other.sign_in()
    offline = make_client(app, name="Sync & Co", scope="openid offline_access")
    offline.exchange(signed_in_browser.approve(offline, scope="openid offline_access").code)
    page = signed_in_browser.open(f"{CONFIRM}?action=end_all_sessions")
    assert "Sessions that end: 2, including this one." in page.html
    assert "stays until you withdraw it: Sync &amp; Co." in page.html
    assert is_signed_in(other)
    signed_in_browser.open(f"{CONFIRM}?action=end_all_sessions")
    signed_in_browser.submit(action="end_all_sessions")
    assert not is_signed_in(other)
    assert not is_signed_in(signed_in_browser)


@pytest.mark.slow
def test_it_asks_before_all_others(app: Flask, signed_in_browser: Browser) -> None:
    other = Browser(app)
    other.sign_in()
    page = signed_in_browser.open(f"{CONFIRM}?action=end_other_sessions")
    assert "Sessions that end: 1. This one stays." in page.html
    assert "until you withdraw it" not in page.html
    assert signed_in_browser.submit(action="end_other_sessions").path.endswith("/account")
    assert not is_signed_in(other)


@pytest.mark.slow
def test_it_asks_before_access_is_withdrawn(
    app: Flask, signed_in_browser: Browser, client: RelyingParty
) -> None:
    tokens = client.exchange(signed_in_browser.approve(client).code).get_json()
    page = signed_in_browser.open(f"{CONFIRM}?action=withdraw&client={client.client_id}")
    assert "<h1>Withdraw access of Books?</h1>" in page.html
    assert client.userinfo(tokens["access_token"]).status_code == 200
    signed_in_browser.submit(action="withdraw")
    assert client.userinfo(tokens["access_token"]).status_code == 401


@pytest.mark.slow
def test_it_asks_before_factors_and_codes_end(signed_in_browser: Browser) -> None:
    _, codes = enrol_totp(signed_in_browser)
    page = signed_in_browser.open(f"{CONFIRM}?action=new_codes")
    assert "stop working: 10." in page.html
    fresh = codes_of(signed_in_browser.submit(action="new_codes"))
    assert len(fresh) == 10
    assert not set(fresh) & set(codes)
    page = signed_in_browser.open(f"{CONFIRM}?action=remove_totp")
    assert "your only second factor" in page.html
    page = signed_in_browser.submit(action="remove_totp")
    assert page.url.startswith(f"{FACTORS}?done=")


@pytest.mark.slow
@pytest.mark.parametrize(
    "query",
    ["", "action=", "action=delete_all", "action=withdraw", "action=withdraw&client=%00",
     "action=remove_passkey&passkey=1", "action=remove_totp", "action=new_codes",
     "action=end_all_sessions'%22%3E&client=x"],
)  # fmt: skip
def test_there_is_nothing_to_ask(signed_in_browser: Browser, query: str) -> None:
    assert signed_in_browser.open(f"{CONFIRM}?{query}").path == f"{BASE}/account"


@pytest.mark.slow
def test_it_needs_a_sign_in_and_changes_nothing(app: Flask, user: User) -> None:
    assert Browser(app).open(f"{CONFIRM}?action=end_all_sessions").path.endswith("/sign-in")
    assert app.test_client().post(f"{BASE}/account/confirm").status_code in (303, 405)


@pytest.mark.slow
def test_the_pending_request_goes_on(app: Flask, signed_in_browser: Browser) -> None:
    """From the page of factors that a client requires, to the question and back."""
    client = make_client(app, require_mfa=True)
    signed_in_browser.authorize(client)
    resume = signed_in_browser.page.parameters["resume"]
    enrol_totp(signed_in_browser, signed_in_browser.page.url.replace("/factors", "/factors/totp"))
    page = signed_in_browser.open(f"{CONFIRM}?action=remove_totp&resume={resume}")
    assert f"resume={resume}" in unescape(page.action or "")


def test_it_shows_which_services_act_for_the_person(app: Flask, browser: Browser) -> None:
    make_user(app)
    chain = Chain(app, browser)
    assert "acts for you there" not in plain(browser.open(ACCOUNT))
    maps = chain.exchanged()
    assert exchange(chain.maps, maps, resource=MAIL).status_code == 200
    other = Browser(app)
    make_user(app, "erin@example.com")
    other.sign_in("erin@example.com")
    text = plain(browser.open(ACCOUNT))
    for api in (DOCS, MAPS):
        assert f"Backend of {api} acts for you there, last" in text
    assert f"Backend of {MAIL}" not in text
    assert "acts for you there" not in plain(other.open(ACCOUNT))
    with app.app_context():
        grants.end(db.session, "test", Grant.client_id == chain.books.client_id)
        db.session.commit()
    assert "acts for you there" not in plain(browser.open(ACCOUNT))
