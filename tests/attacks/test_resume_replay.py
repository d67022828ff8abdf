"""The attacker finds a browser signed in, and the URL of a request that its person has answered.

`prompt=login`, `max_age=0`, `prompt=consent` and `prompt=select_account` demand a decision for one
request. It ends at the decision: it counts once, soon, and for what was asked before it.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from flask import Flask

from sso.models import User
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, Page, RelyingParty
from tests.support.factories import make_client
from tests.support.second_factors import code_of, enrol_totp

pytestmark = pytest.mark.slow

DEMANDS = {
    "prompt=login": {"prompt": "login"},
    "max_age=0": {"max_age": "0"},
    "both": {"prompt": "login", "max_age": "0"},
    "prompt=consent": {"prompt": "consent"},
    "prompt=login consent": {"prompt": "login consent"},
    "prompt=select_account": {"prompt": "select_account"},
}


def answer(browser: Browser) -> Page:
    """Do what is asked until there is an answer; no more than one page of a kind."""
    seen = []
    while browser.page.is_at_server:
        page = browser.page
        assert page.path not in seen, "asked twice"
        seen.append(page.path)
        if "password" in page.fields:
            browser.sign_in()
        elif ("decision", "continue") in page.buttons:
            browser.submit(decision="continue")
        else:
            browser.allow()
    return browser.page


def resumed(browser: Browser) -> str:
    """The URL from which the browser came to the client."""
    return ORIGIN + browser.history[-1].request.full_path


@pytest.fixture
def signed_in(browser: Browser, client: RelyingParty, user: User) -> Browser:
    browser.approve(client)
    return browser


@pytest.mark.parametrize("demand", DEMANDS)
def test_a_decision_counts_once(signed_in: Browser, client: RelyingParty, demand: str) -> None:
    signed_in.authorize(client, **DEMANDS[demand])
    assert signed_in.page.is_at_server
    assert answer(signed_in).code
    url = resumed(signed_in)
    assert "/oauth2/authorize?resume=" in url
    for _ in range(2):
        page = signed_in.open(url)
        assert page.is_at_server
        assert page.status == 200
    # The person decides again, and is not asked twice.
    assert answer(signed_in).code


@pytest.mark.parametrize("more", [{}, {"max_age": "600"}])
def test_what_demands_nothing_is_answered_again(
    signed_in: Browser, client: RelyingParty, more: dict[str, str]
) -> None:
    """The back button: no more than the client's own request would give."""
    waiting = Browser(client.app)
    waiting.authorize(client, **more)
    waiting.sign_in()
    assert waiting.page.code
    assert waiting.open(resumed(waiting)).code


@pytest.mark.parametrize("demand", ["prompt=login", "max_age=0"])
def test_a_sign_in_for_another_request(
    signed_in: Browser, client: RelyingParty, demand: str
) -> None:
    """Two tabs wait; one password opens one of them."""
    first = signed_in.authorize(client, **DEMANDS[demand], state="first")
    second = signed_in.authorize(client, **DEMANDS[demand], state="second")
    signed_in.page = first
    assert signed_in.sign_in().parameters["state"] == "first"
    assert "password" in signed_in.open(second.url).fields
    assert signed_in.sign_in().parameters["state"] == "second"


def test_a_sign_in_that_is_long_past(
    clock: Clock, signed_in: Browser, client: RelyingParty
) -> None:
    url = signed_in.authorize(client, prompt="login").url
    signed_in.open(f"{ORIGIN}{BASE}/sign-in")
    signed_in.sign_in()
    clock.move(minutes=11)
    assert "password" in signed_in.open(url).fields
    assert signed_in.sign_in().code


@pytest.mark.parametrize("demand", DEMANDS)
def test_a_request_that_a_stranger_left_waiting(
    app: Flask, clock: Clock, user: User, demand: str
) -> None:
    """What the person did for other requests a moment ago is not for this one."""
    client = make_client(app)
    stranger = Browser(app)
    stranger.authorize(client, **DEMANDS[demand])
    query = stranger.page.url.partition("?")[2]
    clock.move(hours=20)
    browser = Browser(app)
    browser.open(f"{ORIGIN}{BASE}/sign-in")
    browser.sign_in()
    clock.move(minutes=1)
    assert browser.approve(client).code
    clock.move(minutes=1)
    for step in ("oauth2/authorize", "sign-in", "consent"):
        page = browser.open(f"{ORIGIN}{BASE}/{step}?{query}")
        assert page.is_at_server
        assert page.status == 200
    assert answer(browser).code


def test_max_age_counts_from_the_one_sign_in(
    clock: Clock, browser: Browser, client: RelyingParty, user: User
) -> None:
    """Its sign-in counts once, also when it was answered before it was too old."""
    browser.authorize(client, max_age="60")
    assert answer(browser).code
    url = resumed(browser)
    clock.move(minutes=9)
    assert "password" in browser.open(url).fields
    assert answer(browser).code


def test_a_sign_in_of_two_steps_for_another_request(
    clock: Clock, app: Flask, browser: Browser, user: User
) -> None:
    """Neither of the steps is for the one that waits, until both are."""
    client = make_client(app, first_party=True)
    waiting = Browser(app)
    waiting.authorize(client, prompt="login", acr_values="2")
    query = waiting.page.url.partition("?")[2]
    browser.open(f"{ORIGIN}{BASE}/sign-in")
    browser.sign_in()
    secret, _ = enrol_totp(browser)
    browser.open(f"{ORIGIN}{BASE}/sign-out")
    browser.submit(decision="sign_out")
    clock.move(minutes=1)
    browser.open(f"{ORIGIN}{BASE}/sign-in")
    browser.sign_in()
    browser.submit(code=code_of(secret))
    assert "password" in browser.open(f"{ORIGIN}{BASE}/oauth2/authorize?{query}").fields
    browser.sign_in()
    clock.move(minutes=1)
    assert browser.submit(code=code_of(secret)).code


def test_a_slow_consent_asks_once_more_and_ends(
    clock: Clock, browser: Browser, client: RelyingParty, user: User
) -> None:
    browser.authorize(client, prompt="login")
    browser.sign_in()
    clock.move(minutes=30)
    page = browser.allow()
    assert "password" in page.fields
    browser.sign_in()
    assert browser.allow().code


def test_a_request_does_not_live_as_long_as_it_is_used(
    clock: Clock, browser: Browser, client: RelyingParty, user: User
) -> None:
    """Each step seals it again; what counts is when the client asked."""
    url = browser.authorize(client).url
    for _ in range(2):
        clock.move(hours=11)
        page = browser.open(url.replace("/sign-in", "/consent"))
        assert page.status == 200
        url = page.url
    clock.move(hours=3)
    assert "Please start again" in browser.open(url).html


@pytest.mark.parametrize(("minutes", "asks_again"), [(9, False), (11, True)])
def test_a_choice_of_long_ago(
    app: Flask, clock: Clock, browser: Browser, user: User, minutes: int, asks_again: bool
) -> None:
    client = make_client(app, scope="openid profile email groups")
    browser.approve(client)
    browser.authorize(client, prompt="select_account", scope="openid groups")
    page = browser.submit(decision="continue")  # the consent page, with the choice in its URL
    assert ("decision", "allow") in page.buttons
    clock.move(minutes=minutes)
    page = browser.open(page.url)
    assert (("decision", "continue") in page.buttons) is asks_again
    assert (("decision", "allow") in page.buttons) is not asks_again


@pytest.mark.parametrize("demand", ["prompt=login", "prompt=consent"])
def test_the_same_request_many_times_at_once(
    make_app: Callable[..., Flask], signed_in: Browser, client: RelyingParty, demand: str
) -> None:
    """One decision, one code, in whatever order the requests are served."""
    for _ in range(5):
        signed_in.authorize(client, **DEMANDS[demand])
        # The step is taken without going on from it.
        step = signed_in.page
        fields = {**step.fields, "decision": "allow"}
        if "password" in fields:
            fields |= {"email": "dana@example.com", "password": "correct horse battery"}
        posted = signed_in.http.post(step.url.removeprefix(ORIGIN), data=fields, base_url=ORIGIN)
        url = posted.headers["Location"]
        cookie = signed_in.http.get_cookie("sso_browser", "127.0.0.1", BASE)
        assert cookie
        barrier = Barrier(6)

        def ask(url: str = url, value: str = cookie.value, barrier: Barrier = barrier) -> str:
            tab = client.app.test_client(use_cookies=False)
            barrier.wait(10)
            sent = {"Cookie": f"sso_browser={value}"}
            return tab.get(url, base_url=ORIGIN, headers=sent).headers["Location"]

        with ThreadPoolExecutor(6) as pool:
            places = [one.result() for one in [pool.submit(ask) for _ in range(6)]]
        assert sum("code=" in place for place in places) == 1, places
