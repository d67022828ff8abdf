"""Logos of applications, and the account page as the place to start them."""

import hashlib
import re
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from flask import Flask

from sso import audit
from sso.config import images
from sso.extensions import db
from sso.services import clients
from sso.services.checks import Invalid
from sso.store import clients as stored_clients
from sso.web.static_files import IMAGE_POLICY
from tests.conftest import ON_POSTGRESQL, Statements
from tests.support.actors import BASE, Browser, RelyingParty
from tests.support.factories import make_client, make_user
from tests.support.logos import EVERY, PNG, SVG

HOME = "https://wiki.example/"


def url_of(data: bytes) -> str:
    return f"{BASE}/client-logo?v={hashlib.sha256(data).hexdigest()}"


def with_logo(app: Flask, data: bytes = PNG, **more: object) -> RelyingParty:
    return make_client(app, logo=images.parse(data, 10_000), **more)


@pytest.mark.parametrize("name", EVERY)
def test_a_logo_is_an_image_and_nothing_else(app: Flask, name: str) -> None:
    data, media_type = EVERY[name]
    with_logo(app, data)
    answer = app.test_client().get(url_of(data))
    assert (answer.status_code, answer.data, answer.mimetype) == (200, data, media_type)
    assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Security-Policy"] == IMAGE_POLICY
    assert "Set-Cookie" not in answer.headers
    again = app.test_client().get(url_of(data), headers={"If-None-Match": answer.headers["ETag"]})
    assert (again.status_code, again.data) == (304, b"")


@pytest.mark.parametrize(
    "query", ["", "?v=", "?v=0", "?v=%00", "?v=%ff", "?v=%25", "?v=" + "0" * 64]
)
def test_no_logo(app: Flask, query: str) -> None:
    with_logo(app)
    answer = app.test_client().get(f"{BASE}/client-logo{query}")
    assert (answer.status_code, answer.mimetype) == (404, "application/json")
    assert answer.headers["Cache-Control"] == "no-store"


def test_it_is_shown_on_the_way_to_the_application(app: Flask, browser: Browser) -> None:
    make_user(app)
    shown = f'src="{url_of(SVG)}"'
    client = with_logo(app, SVG)
    assert shown in browser.authorize(client).html
    assert shown in browser.sign_in().html
    browser.allow()
    assert shown in browser.authorize(client, prompt="select_account").html
    assert "client-logo" not in browser.authorize(make_client(app), prompt="login").html


def test_a_changed_logo_and_none(app: Flask) -> None:
    client_id = with_logo(app).client_id
    for logo, expected in ((SVG, [404, 200]), (b"", [404, 404])):
        with app.app_context():
            image = images.parse(logo, 10_000) if logo else images.NO_IMAGE
            clients.change(audit.SYSTEM, client_id, {"logo": image})
            db.session.commit()
        found = [app.test_client().get(url_of(one)).status_code for one in (PNG, SVG)]
        assert found == expected


def test_it_goes_with_the_client(app: Flask) -> None:
    first, second = with_logo(app), with_logo(app)
    for client, status in ((first, 200), (second, 404)):
        with app.app_context():
            clients.delete(audit.SYSTEM, client.client_id)
            db.session.commit()
        assert app.test_client().get(url_of(PNG)).status_code == status


def test_nothing_about_logos_is_read_for_tokens(
    app: Flask, browser: Browser, statements: Callable[[], AbstractContextManager[Statements]]
) -> None:
    make_user(app)
    client = with_logo(app, home_url=HOME)
    browser.approve(client)
    with statements() as seen:
        page = browser.authorize(client)
        tokens = client.exchange(page.code).get_json()
        client.refresh(tokens["refresh_token"])
        client.userinfo(tokens["access_token"])
    # PostgreSQL needs one statement to write (see `test_statements`).
    assert len(seen) == 3 * (2 if ON_POSTGRESQL else 3) + 1
    assert not [one for one in seen if "logo" in one]


def launched(html: str) -> list[tuple[str, str]]:
    """The applications of the account page: name and URL."""
    tiles = re.findall(r'<ul class="launcher">.*?</ul>', html, re.DOTALL)
    return re.findall(r'<a href="([^"]+)">.*?<span dir="auto">([^<]+)<', "".join(tiles))


def test_the_account_page_starts_applications(app: Flask, browser: Browser) -> None:
    make_user(app, groups=["staff"])
    urls = [f"https://{name}.example/" for name in "abcdefg"]
    make_client(app, name="zebra", home_url=urls[0])
    with_logo(app, name="Wiki", home_url=urls[1], groups=["staff", "hr"])
    make_client(app, name="Payroll", home_url=urls[2], groups=["hr"])
    make_client(app, name="No home")
    make_client(app, name="Off", home_url=urls[3], disabled=True)
    make_client(app, name='<b>"home_url"', home_url=f"{urls[4]}?a=1&b=2")
    make_client(app, name="Public", home_url=urls[5], public=True)
    browser.sign_in()
    html = browser.open(f"{BASE}/account").html
    assert launched(html) == [
        (f"{urls[4]}?a=1&amp;b=2", "&lt;b&gt;&#34;home_url&#34;"),
        (urls[5], "Public"),
        (urls[1], "Wiki"),
        (urls[0], "zebra"),
    ]
    assert html.count(url_of(PNG)) == 1
    assert html.index("launcher") < html.index("Your profile")


def test_an_account_without_applications(app: Flask, browser: Browser) -> None:
    make_user(app)
    make_client(app, name='Says "home_url"')
    browser.sign_in()
    html = browser.open(f"{BASE}/account").html
    assert "launcher" not in html
    assert "Your applications" not in html


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "data:text/html,x",
        "http://wiki.example/",
        "//wiki.example/",
        "wiki.example",
        "https://",
        "https://user@wiki.example/",
        "https://wiki.example/ x",
        "com.example.wiki:/start",
        "https://wiki.example/" + "x" * 2000,
    ],
)
def test_home_urls_that_are_refused(app: Flask, url: str) -> None:
    with pytest.raises(Invalid, match=r"the home URL .* is refused: it"):
        make_client(app, home_url=url)


@pytest.mark.parametrize("url", [HOME, "http://localhost:3000/", "https://wiki.example/#/home"])
def test_home_urls(app: Flask, browser: Browser, url: str) -> None:
    make_user(app)
    make_client(app, name="Wiki", home_url=url)
    browser.sign_in()
    assert launched(browser.open(f"{BASE}/account").html) == [(url, "Wiki")]


def test_the_digest_of_a_client(app: Flask) -> None:
    client_id = with_logo(app).client_id
    with app.app_context():
        assert stored_clients.logo_digest(client_id) == hashlib.sha256(PNG).hexdigest()
        assert stored_clients.logo_digest("nobody") is None
