"""What a person sees when something is wrong: the application, the cause, an id, where help is."""

import re
from collections.abc import Callable
from html import unescape
from typing import Any
from urllib.parse import unquote

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from sso.models import User
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty
from tests.support.explaining import Explain
from tests.support.factories import make_client
from tests.support.scene import Scene

UNREGISTERED = {
    "en": "Books wants to send you to an address that is not registered for it.",
    "de": "Books möchte Sie zu einer Adresse schicken",
    "fr": "Books veut vous renvoyer vers une adresse",
    "es": "Books quiere enviarle a una dirección",
    "ja": "Books が、登録されていないアドレス",
    "ar": "يريد Books إرسالك إلى عنوان",
}


@pytest.mark.parametrize("tag", UNREGISTERED)
def test_the_cause_in_the_persons_language(
    browser: Browser, client: RelyingParty, explain: Explain, tag: str
) -> None:
    browser.http.environ_base["HTTP_ACCEPT_LANGUAGE"] = tag
    page = browser.authorize(client, redirect_uri=client.redirect_uri + "/")
    assert UNREGISTERED[tag] in page.html
    assert "it has a trailing slash" in explain(page)  # in English, as all of it


def ids_of(app: Flask) -> dict[str, Callable[[Scene], Any]]:
    return {
        "unknown client": lambda s: s.browser.authorize(s.client, client_id="nobody"),
        "redirect_uri": lambda s: s.browser.authorize(s.client, redirect_uri="https://x.example/"),
        "stale": lambda s: s.browser.open(f"{ORIGIN}{BASE}/sign-in?resume=x"),
        "dead link": lambda s: s.browser.open(f"{ORIGIN}{BASE}/new-password?token=x"),
        "no such page": lambda s: s.browser.open(f"{ORIGIN}/nowhere"),
    }


@pytest.mark.parametrize("kind", ids_of(Flask("")))
def test_the_id_is_that_of_the_request(scene: Scene, kind: str) -> None:
    page = ids_of(scene.app)[kind](scene)
    (shown,) = re.findall(r'<code dir="ltr">([0-9a-z-]+)</code>', page.html)[:1]
    assert shown == page.headers["X-Request-ID"]


def test_nobody_is_shown_a_client_without_a_group_but_the_id(
    scene: Scene, explain: Explain
) -> None:
    scene.register(groups=["board"])
    scene.browser.authorize(scene.client)
    page = scene.browser.sign_in()
    assert page.status == 403
    assert f">{page.headers['X-Request-ID']}</code>" in page.html
    assert "none of the groups" in explain(page)


def test_at_sign_out(scene: Scene, explain: Explain) -> None:
    scene.browser.sign_in()
    wrong = {"client_id": scene.client.client_id, "post_logout_redirect_uri": "https://x.example/"}
    scene.end_session(**wrong)
    page = scene.browser.page
    assert "Books wants to send you to an address that is not registered for it." in page.html
    assert f">{page.headers['X-Request-ID']}</code>" in page.html
    assert "The post_logout_redirect_uri is not registered" in explain(page)


def error_page(app: Flask, language: str = "en") -> TestResponse:
    headers = {"Accept-Language": language}
    return app.test_client().get(f"{BASE}/oauth2/authorize", headers=headers, base_url=ORIGIN)


def test_where_help_is(make_app: Callable[..., Flask]) -> None:
    assert "Get help" not in error_page(make_app()).text
    url = "https://help.example/?from=sso&x='1"
    page = error_page(make_app(SSO_SUPPORT_URL=url))
    assert f'<a href="{url}">Get help</a>' in unescape(page.text)
    page = error_page(make_app(SSO_SUPPORT_URL="mailto:help@example.com"), "de")
    (link,) = re.findall(r'href="(mailto:[^"]+)">Hilfe erhalten<', page.text)
    request_id = page.headers["X-Request-ID"]
    assert unquote(link) == f"mailto:help@example.com?subject=Fehlernummer {request_id}"
    link = "mailto:help@example.com?subject=Sign-in"
    assert f'<a href="{link}">' in error_page(make_app(SSO_SUPPORT_URL=link)).text


def test_a_name_is_only_text(app: Flask, browser: Browser, user: User) -> None:
    client = make_client(app, name="<b>Books</b> & %(x)s")
    page = browser.authorize(client, redirect_uri="https://x.example/")
    assert "<b>Books" not in page.html
    assert "<b>Books</b> & %(x)s wants to send you" in unescape(page.html)


def test_programs_get_the_id_in_a_header(client: RelyingParty, explain: Explain) -> None:
    """The body has the members of RFC 6749 §5.2, and no more."""
    answer = client.exchange("x")
    assert set(answer.get_json()) == {"error", "error_description"}
    assert "No such code is stored here" in explain.run(answer.headers["X-Request-ID"])
