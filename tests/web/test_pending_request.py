"""The authorization request that waits while a person signs in: for a day, and for this server."""

import secrets
from collections.abc import Callable
from urllib.parse import urlencode

import pytest
from flask import Flask

from sso.models import User
from sso.store import approvals
from sso.web.pending_request import MAX_LENGTH
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty
from tests.support.factories import make_client, make_user

STEPS = ("consent", "second-factor", "account/factors", "account/factors/totp")


def resumed(browser: Browser, client: RelyingParty) -> str:
    return browser.authorize(client).url.partition("?")[2]


@pytest.mark.parametrize("path", ["oauth2/authorize", "sign-in", "consent"])
@pytest.mark.parametrize(("hours", "goes_on"), [(23.9, True), (24.1, False), (24 * 30, False)])
def test_it_grows_old(
    clock: Clock, browser: Browser, client: RelyingParty, user: User,
    path: str, hours: float, goes_on: bool,
) -> None:  # fmt: skip
    query = resumed(browser, client)
    clock.move(hours=hours)
    page = browser.open(f"{ORIGIN}{BASE}/{path}?{query}")
    if goes_on:
        assert page.path.endswith("/sign-in")
        assert "password" in page.fields
    else:
        assert page.status == 400
        assert "start again" in page.html
        assert 'href="https://books.example/"' in page.html  # the way back


@pytest.mark.parametrize("path", STEPS)
def test_no_step_takes_an_old_one(
    clock: Clock, browser: Browser, client: RelyingParty, user: User, path: str
) -> None:
    query = resumed(browser, client)
    clock.move(hours=25)
    browser.open(f"{ORIGIN}{BASE}/sign-in")
    browser.sign_in()
    page = browser.open(f"{ORIGIN}{BASE}/{path}?{query}")
    assert page.is_at_server
    assert page.status == 400 or path == "second-factor"
    assert "code" not in page.parameters


def test_an_old_form_gives_no_code(
    clock: Clock, browser: Browser, client: RelyingParty, user: User
) -> None:
    """The page was open for longer than a day, and is sent then."""
    browser.authorize(client)
    form = browser.page
    clock.move(hours=25)
    browser.page = form
    assert browser.sign_in().status == 400


@pytest.mark.parametrize("change", ["signature", "time", "content", "another key"])
def test_one_that_is_not_ours(
    make_app: Callable[..., Flask], browser: Browser, client: RelyingParty, user: User, change: str
) -> None:
    text = resumed(browser, client).removeprefix("resume=")
    content, time, signature = text.rsplit(".", 2)
    if change == "another key":
        elsewhere = make_app(SSO_SECRET_KEY="another secret key of another server")
        text = resumed(Browser(elsewhere), RelyingParty(elsewhere, *_of(client)))
        text = text.removeprefix("resume=")
    else:
        parts = {"content": content, "time": time, "signature": signature}
        wrong = parts[change]
        parts[change] = ("A" if wrong[0] != "A" else "B") + wrong[1:]
        text = ".".join(parts.values())
    for path in ("oauth2/authorize", "sign-in", "consent"):
        page = browser.open(f"{ORIGIN}{BASE}/{path}?{urlencode({'resume': text})}")
        assert page.status == 400
        assert "books.example" not in page.html


def _of(client: RelyingParty) -> tuple[str, str, str]:
    return client.client_id, client.client_secret, client.redirect_uri


def test_the_way_back_of_an_old_one_is_proven_again(
    clock: Clock, app: Flask, browser: Browser, client: RelyingParty
) -> None:
    """The client was disabled, or its address taken away, while it waited."""
    query = resumed(browser, client)
    clock.move(hours=25)
    run = app.test_cli_runner().invoke
    moved = [
        "client",
        "update",
        client.client_id,
        "--set-redirect-uris",
        "https://elsewhere.example/",
    ]
    assert run(args=moved).exit_code == 0
    assert "books.example" not in browser.open(f"{ORIGIN}{BASE}/sign-in?{query}").html


def test_the_client_is_judged_again_when_it_goes_on(
    app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    query = resumed(browser, client)
    assert app.test_cli_runner().invoke(args=["client", "disable", client.client_id]).exit_code == 0
    page = browser.open(f"{ORIGIN}{BASE}/sign-in?{query}")
    assert page.status == 400
    assert page.is_at_server


def test_it_is_one_persons_choice(app: Flask, browser: Browser, user: User) -> None:
    """Chosen by one person, it is not the choice of another."""
    make_user(app, "erin@example.com", name="Erin")
    client, other = make_client(app, first_party=True), Browser(app)
    other.sign_in("erin@example.com")
    browser.sign_in()
    browser.authorize(client, prompt="select_account")
    chosen = browser.submit(decision="continue")
    assert chosen.code
    link = next(
        one.headers["Location"]
        for one in reversed(browser.history)
        if "/oauth2/authorize?resume=" in one.headers.get("Location", "")
    )
    page = other.open(link)
    assert page.is_at_server, "somebody else's choice gave a code"


@pytest.mark.parametrize(("length", "good"), [(3000, True), (7000, False)])
def test_one_that_fits_into_no_address(
    browser: Browser, client: RelyingParty, length: int, good: bool
) -> None:
    """What is random does not become shorter."""
    state = secrets.token_urlsafe(length)[:length]
    page = browser.authorize(client, state=state)
    assert page.path.endswith("/sign-in") is good
    if not good:
        assert page.error == "invalid_request"
        assert page.parameters["state"] == state


# A request of the greatest length: what our steps add to it still fits.

NOISE = secrets.token_urlsafe(8000)  # does not get shorter when it is compressed


def longest(browser: Browser, client: RelyingParty, **more: str) -> str:
    """The last address of a step before requests become too long for one."""
    fits, found = 3000, ""
    for step in (1000, 100, 10, 1):
        while True:
            values = client.parameters(state=NOISE[: fits + step], **more)
            place = browser.http.get(
                f"{BASE}/oauth2/authorize?{urlencode(values)}", base_url=ORIGIN
            ).headers["Location"]
            if "resume=" not in place:
                break
            fits, found = fits + step, place
    assert MAX_LENGTH - 10 < len(found.partition("resume=")[2]) <= MAX_LENGTH
    return found


@pytest.fixture
def signed_in(browser: Browser, user: User) -> Browser:
    browser.open(f"{ORIGIN}{BASE}/sign-in")
    browser.sign_in()
    return browser


def test_all_steps(app: Flask, signed_in: Browser) -> None:
    client = make_client(app)
    signed_in.open(longest(signed_in, client, prompt="login select_account consent"))
    signed_in.sign_in()
    assert signed_in.allow().code


def test_a_choice(app: Flask, signed_in: Browser) -> None:
    client = make_client(app, first_party=True)
    signed_in.open(longest(signed_in, client, prompt="select_account"))
    assert signed_in.submit(decision="continue").code


def test_no_member(app: Flask, signed_in: Browser) -> None:
    client = make_client(app, first_party=True, groups=["staff"])
    assert signed_in.open(longest(signed_in, client)).status == 403


def test_overtaken(app: Flask, signed_in: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is sealed for the first time, because it has to be decided again."""
    client = make_client(app, first_party=True)
    monkeypatch.setattr(approvals, "add", lambda *_, **__: False)
    values = client.parameters(state=NOISE[:6800])
    page = signed_in.open(f"{ORIGIN}{BASE}/oauth2/authorize?{urlencode(values)}")
    assert page.error == "invalid_request"
