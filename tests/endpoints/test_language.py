"""The language that a person chooses on a page, before or after the sign-in."""

import pytest
from flask import Flask
from itsdangerous import base64_encode
from werkzeug.test import TestResponse

from sso.endpoints import language
from sso.i18n.languages import LANGUAGES
from sso.models import User
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty

SIGN_IN = f"{ORIGIN}{BASE}/sign-in"
FORM = 'action="/api/auth/language"'


@pytest.fixture(autouse=True)
def _spanish(browser: Browser) -> None:
    browser.http.environ_base["HTTP_ACCEPT_LANGUAGE"] = "es"


def choose(browser: Browser, tag: str, back: str | None = None, **more: str) -> TestResponse:
    """Press the button of a language on the page."""
    if back is None:
        back = browser.page.html.partition('name="back" value="')[2].partition('"')[0]
    token = browser.page.html.partition('name="csrf_token" value="')[2].partition('"')[0]
    form = {"csrf_token": token, "back": back.replace("&amp;", "&"), "language": tag, **more}
    return browser.http.post(f"{BASE}/language", data=form, base_url=ORIGIN)


def is_in(browser: Browser, tag: str) -> bool:
    return f'<html lang="{tag}"' in browser.page.html


def test_the_request_waits_and_goes_on(browser: Browser, client: RelyingParty, user: User) -> None:
    page = browser.authorize(client, ui_locales="fr")
    assert is_in(browser, "fr")
    answer = choose(browser, "de")
    assert answer.status_code == 303
    assert ORIGIN + answer.headers["Location"] == page.url
    browser.open(page.url)
    assert is_in(browser, "de")
    browser.sign_in()
    assert is_in(browser, "de")
    assert browser.allow().code


def test_a_first_visit_is_as_before_and_sets_no_cookie(
    browser: Browser, client: RelyingParty
) -> None:
    browser.authorize(client)
    assert is_in(browser, "es")
    browser.open(f"{SIGN_IN}?language=de&ui_locales=de&locale=de")
    assert is_in(browser, "es")
    cookies = [one for answer in browser.history for one in answer.headers.getlist("Set-Cookie")]
    assert not any("language" in one for one in cookies)


def test_the_cookie(browser: Browser) -> None:
    browser.open(SIGN_IN)
    (cookie,) = choose(browser, "ja").headers.getlist("Set-Cookie")
    assert cookie.startswith("sso_language=ja; ")
    for part in ("HttpOnly", "SameSite=Lax", f"Path={BASE}", "Max-Age=31536000"):
        assert part in cookie


@pytest.mark.parametrize(
    "path", ["/nowhere", "/sign-up", "/sign-in?resume=x", "/new-password?x=%FF", "/no?x=\xff"]
)
def test_error_pages_offer_it(browser: Browser, path: str) -> None:
    browser.open(f"{ORIGIN}{BASE}{path}")
    assert browser.page.status >= 400
    assert FORM in browser.page.html
    assert choose(browser, "de").status_code == 303
    browser.open(f"{ORIGIN}{BASE}{path}")
    assert is_in(browser, "de")


def test_the_account_decides_after_the_sign_in(browser: Browser, user: User) -> None:
    browser.open(SIGN_IN)
    choose(browser, "fr")
    browser.sign_in()
    assert is_in(browser, "fr")
    assert FORM in browser.page.html
    browser.submit(action="choose_language", locale="ja")
    assert is_in(browser, "ja")
    assert FORM not in browser.page.html
    browser.submit(action="choose_language", locale="")
    assert is_in(browser, "es")  # the same as the browser's


@pytest.mark.parametrize("more", [{"csrf_token": ""}, {"csrf_token": "x"}, {"language": "xx"}])
def test_without_a_token_or_a_known_language_nothing_changes(
    browser: Browser, more: dict[str, str]
) -> None:
    page = browser.open(SIGN_IN)
    answer = choose(browser, "de", **more)
    assert ORIGIN + answer.headers["Location"].rstrip("?") == page.url
    assert "language" not in str(answer.headers.getlist("Set-Cookie"))


@pytest.mark.parametrize(
    "back",
    [
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example",
        "/api/auth/../evil",
        "javascript:alert(1)",
        f"{BASE}/sign-in@evil.example",
        f"{BASE}/oauth2/token",
        f"{BASE}/sign-in?x\r\nSet-Cookie: a=b",
        f"{BASE}/sign-in?ü",
        "",
    ],
)
def test_it_leads_to_pages_of_this_server_only(browser: Browser, back: str) -> None:
    browser.open(SIGN_IN)
    with browser.http.application.app_context():
        signed = language._signer().sign(base64_encode(back)).decode()
    for one in (back, signed):  # as if someone could sign it
        answer = choose(browser, "de", one)
        assert answer.headers["Location"] == f"{BASE}/"
        assert "evil" not in str(answer.headers)


def test_what_cannot_be_shown_again_offers_none(
    app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    browser.approve(client)
    assert FORM not in browser.authorize(client, response_mode="form_post").html


@pytest.mark.parametrize("cookie", ["", "xx", "zz_" * 500, "../../etc", '"', "_", "de\x7f"])
def test_a_cookie_that_is_no_language(browser: Browser, cookie: str) -> None:
    browser.http.set_cookie("sso_language", cookie, path=BASE, domain="127.0.0.1")
    assert browser.open(SIGN_IN).status == 200
    assert is_in(browser, "es")


@pytest.mark.parametrize("tag", LANGUAGES)
def test_each_is_offered_by_its_own_name(browser: Browser, tag: str) -> None:
    assert f'value="{tag}" lang="{tag}"' in browser.open(SIGN_IN).html
    assert LANGUAGES[tag] in browser.page.html


def test_opened_by_itself_it_leads_home(browser: Browser) -> None:
    assert browser.open(f"{ORIGIN}{BASE}/language").path.endswith("/sign-in")
