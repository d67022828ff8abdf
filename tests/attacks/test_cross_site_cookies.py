"""The attacker's page sends requests from the victim's browser, to change its cookies.

SameSite=Lax keeps the cookies of a signed-in browser out of such requests: what a request does not
bring may well be there, and an answer that sets or deletes it would sign the browser out while its
session lives on. A request that brings no session cookie changes no cookie.
"""

from urllib.parse import urlencode

import pytest
from flask import Flask

from sso.endpoints.routes import ROUTES
from sso.models import User
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty
from tests.support.factories import PASSWORD, make_client

pytestmark = pytest.mark.slow


PATHS = {one.path.removeprefix("{base}"): one.methods for one in ROUTES if "{base}/" in one.path}
POSTED = [path for path, methods in PATHS.items() if "POST" in methods]
READ = [path for path, methods in PATHS.items() if "GET" in methods]
FORM = {
    "decision": "sign_out",
    "action": "end_all_sessions",
    "email": "dana@example.com",
    "password": PASSWORD,
    "code": "123456",
    "remember": "y",
}
BYE = "https://books.example/bye"
SUBRESOURCES = {
    "an image": {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
    "fetch": {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "empty"},
    "a frame": {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
    "an object": {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "object"},
}


def set_by(app: Flask, path: str, method: str = "POST", **more: object) -> list[str]:
    """The cookies that the answer to a request without any changes."""
    stranger = app.test_client(use_cookies=False)
    answer = stranger.open(f"{BASE}{path}", method=method, base_url=ORIGIN, **more)  # type: ignore[arg-type]
    assert answer.status_code < 500
    assert answer.status_code != 429
    return answer.headers.getlist("Set-Cookie")


@pytest.mark.parametrize("token", [None, "wrong"])
def test_a_form_of_another_site(app: Flask, user: User, token: str | None) -> None:
    form = {**FORM, "csrf_token": token} if token else FORM
    for path in POSTED:
        assert set_by(app, path, data=form) == [], path


@pytest.mark.parametrize("path", ["/sign-in", "/consent", "/second-factor", "/account/factors"])
def test_a_form_of_another_site_with_a_waiting_request(
    browser: Browser, client: RelyingParty, path: str
) -> None:
    resume = browser.authorize(client).parameters["resume"]
    assert set_by(client.app, f"{path}?{urlencode({'resume': resume})}", data=FORM) == []


def test_the_token_of_the_attackers_own_browser(app: Flask, user: User) -> None:
    token = Browser(app).open(f"{ORIGIN}{BASE}/sign-in").fields["csrf_token"]
    for path in POSTED:
        assert set_by(app, path, data={**FORM, "csrf_token": token}) == []


@pytest.mark.parametrize("kind", SUBRESOURCES)
def test_what_a_page_of_another_site_embeds(app: Flask, kind: str) -> None:
    for path in READ:
        assert set_by(app, path, "GET", headers=SUBRESOURCES[kind]) == [], path


@pytest.mark.parametrize(
    "headers", [{}, {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}]
)
def test_a_first_visit_gets_its_cookie(app: Flask, headers: dict[str, str]) -> None:
    (cookie,) = set_by(app, "/sign-in", "GET", headers=headers)
    assert cookie.startswith("sso_browser=")


def test_who_brings_a_cookie_gets_the_next(app: Flask, user: User) -> None:
    browser = Browser(app)
    browser.sign_in()
    (posted,) = [r for r in browser.history if r.request.method == "POST"]
    names = {one.split("=")[0] for one in posted.headers.getlist("Set-Cookie")}
    assert names == {"sso_browser", "sso_known"}


@pytest.mark.parametrize("decision", ["sign_out", "stay", ""])
def test_the_reported_sign_out(app: Flask, browser: Browser, user: User, decision: str) -> None:
    client = make_client(app, post_logout_redirect_uris=[BYE])
    browser.approve(client)
    form = {
        "decision": decision,
        "client_id": client.client_id,
        "post_logout_redirect_uri": BYE,
    }
    assert set_by(app, "/oauth2/end-session", data=form) == []
    # The browser goes on by GET, with its cookies, and the person is asked.
    answer = app.test_client(use_cookies=False).post(
        f"{BASE}/oauth2/end-session", data=form, base_url=ORIGIN
    )
    assert answer.status_code == 303
    page = browser.open(answer.headers["Location"])
    assert ("decision", "sign_out") in page.buttons
    assert browser.open(f"{ORIGIN}{BASE}/account").path.endswith("/account")


@pytest.mark.parametrize("path", ["/oauth2/end-session", "/sign-out"])
def test_signing_out_nobody_changes_no_cookie(browser: Browser, user: User, path: str) -> None:
    """A link of another site brings the cookies: it must not throw a sign-in page's away."""
    form = browser.open(f"{ORIGIN}{BASE}/sign-in")
    seen = len(browser.history)
    browser.open(f"{ORIGIN}{BASE}{path}")
    assert browser.history[seen:]
    assert not any(r.headers.getlist("Set-Cookie") for r in browser.history[seen:])
    browser.page = form
    assert browser.sign_in().path.endswith("/account")
