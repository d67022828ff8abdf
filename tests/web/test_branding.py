"""Pages with the name, logo, accent color and links of the operator."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from flask import Flask

from sso import context
from sso.mfa import passkeys, totp
from sso.web import headers
from sso.web.static_files import FOLDER, IMAGE_POLICY
from tests.support.actors import BASE, Browser, RelyingParty
from tests.support.factories import make_client, make_user
from tests.support.logos import EVERY, SVG

MARKUP = '<b onclick="x">Acme</b> & Co'
ESCAPED = "&lt;b onclick=&#34;x&#34;&gt;Acme&lt;/b&gt; &amp; Co"


@pytest.fixture
def logo(tmp_path: Path) -> Path:
    path = tmp_path / "logo.html"
    path.write_bytes(SVG)
    return path


@pytest.fixture
def branded(make_app: Callable[..., Flask], logo: Path) -> Flask:
    return make_app(
        SSO_NAME=MARKUP,
        SSO_LOGO_FILE=str(logo),
        SSO_ACCENT_COLOR="#c8102e",
        SSO_SUPPORT_URL="mailto:help@acme.example",
        SSO_PRIVACY_URL="https://acme.example/privacy?a=1&b=2",
        SSO_TERMS_URL="https://acme.example/terms",
        SSO_SIGN_UP="open",
    )


def logo_url(app: Flask) -> str:
    html = Browser(app).open(f"{BASE}/sign-in").html
    (found,) = re.findall(r'<img class="logo[^"]*" src="([^"]+)"', html)
    return str(found)


@pytest.mark.parametrize(
    "path", ["/sign-in", "/forgotten-password", "/sign-up", "/nowhere", "/oauth2/authorize"]
)
def test_every_page_has_them(branded: Flask, path: str) -> None:
    page = Browser(branded).open(f"{BASE}{path}")
    assert f"· {ESCAPED}</title>" in page.html
    assert f'alt="{ESCAPED}"' in page.html
    assert "<b onclick" not in page.html
    footer = page.html.partition("<footer>")[2]
    assert re.findall(r'href="([^"]+)">([^<]+)<', footer) == [
        ("mailto:help@acme.example", "Help"),
        ("https://acme.example/privacy?a=1&amp;b=2", "Privacy policy"),
        ("https://acme.example/terms", "Terms of service"),
    ]
    assert page.headers["Content-Security-Policy"] == headers.PAGE_POLICY or path == "/sign-in"
    assert "style=" not in page.html
    assert "<style" not in page.html


def test_headings(branded: Flask) -> None:
    browser = Browser(branded)
    make_user(branded)
    assert f"<h1>Sign in to <bdi>{ESCAPED}</bdi></h1>" in browser.open(f"{BASE}/sign-in").html
    assert (
        f"<h1>Create your <bdi>{ESCAPED}</bdi> account</h1>" in browser.open(f"{BASE}/sign-up").html
    )
    browser.sign_in()
    assert f"<h1>Your {ESCAPED} account</h1>" in browser.open(f"{BASE}/account").html
    assert f"<h1>Sign out of <bdi>{ESCAPED}</bdi>?</h1>" in browser.open(f"{BASE}/sign-out").html


def test_without_the_settings(app: Flask, browser: Browser) -> None:
    html = browser.open(f"{BASE}/sign-in").html
    assert "· sso</title>" in html
    assert "<h1>Sign in</h1>" in html
    assert "<span>sso</span>" in html
    assert "<footer>" in html
    assert "<ul>" not in html.partition("<footer>")[2]


@pytest.mark.parametrize("name", EVERY)
def test_the_logo_is_an_image_and_nothing_else(
    make_app: Callable[..., Flask], logo: Path, name: str
) -> None:
    data, media_type = EVERY[name]
    logo.write_bytes(data)
    app = make_app(SSO_LOGO_FILE=str(logo))
    answer = app.test_client().get(logo_url(app))
    assert answer.data == data
    assert answer.mimetype == media_type
    assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Security-Policy"] == IMAGE_POLICY
    assert "Set-Cookie" not in answer.headers


def test_another_logo_has_another_url(make_app: Callable[..., Flask], logo: Path) -> None:
    before = make_app(SSO_LOGO_FILE=str(logo))
    old = logo_url(before)
    logo.write_bytes(SVG + b"\n")
    assert logo_url(before) == old  # until the next start
    assert before.test_client().get(old).data == SVG
    after = make_app(SSO_LOGO_FILE=str(logo))
    assert logo_url(after) != old
    assert after.test_client().get(logo_url(after)).data == SVG + b"\n"


def test_a_logo_with_a_dark_variant_stands_on_no_plate(
    make_app: Callable[..., Flask], logo: Path
) -> None:
    assert 'class="logo plate"' in Browser(make_app(SSO_LOGO_FILE=str(logo))).open(BASE).html
    style = b"<style>@media (prefers-color-scheme: dark) { rect { fill: #fff } }</style>"
    logo.write_bytes(SVG.replace(b"<rect", style + b"<rect"))
    assert 'class="logo"' in Browser(make_app(SSO_LOGO_FILE=str(logo))).open(BASE).html


def test_the_accent_color_is_in_the_style_sheet(branded: Flask, app: Flask) -> None:
    pages = [Browser(one).open(f"{BASE}/sign-in").html for one in (app, branded)]
    urls = [re.findall(r'href="([^"]+sso.css[^"]+)"', html)[0] for html in pages]
    assert urls[0] != urls[1]
    plain, colored = (
        one.test_client().get(url) for one, url in zip((app, branded), urls, strict=True)
    )
    assert plain.data == (FOLDER / "sso.css").read_bytes()
    assert colored.data.startswith(plain.data)
    assert colored.text.count("#c8102e") == 1  # light mode
    assert colored.text.count("--accent:") == 4
    assert "immutable" in colored.headers["Cache-Control"]


def test_names_in_other_programs(branded: Flask, app: Flask) -> None:
    for one, name in ((app, "127.0.0.1"), (branded, MARKUP)):
        user = make_user(one, email=f"{len(name)}@example.com")
        with one.app_context(), one.test_request_context():
            uri = totp.provisioning_uri("A" * 32, user)
            assert parse_qs(urlsplit(uri).query)["issuer"] == [name]
            assert f'"rp": {{"name": "{name}"'.replace('"x"', '\\"x\\"') in (
                passkeys.ask_to_enrol(user, []).options
            )


def test_a_colon_in_the_name_is_not_one_of_the_uri(make_app: Callable[..., Flask]) -> None:
    app = make_app(SSO_NAME="Acme: login")
    user = make_user(app)
    with app.app_context():
        assert context.settings().name == "Acme: login"
        path = urlsplit(totp.provisioning_uri("A" * 32, user)).path
        assert path == "/Acme%20%20login:dana%40example.com"


def test_the_way_to_an_application(branded: Flask) -> None:
    client: RelyingParty = make_client(branded, name="<i>Wiki</i>")
    make_user(branded)
    browser = Browser(branded)
    assert "to continue to <strong><bdi>&lt;i&gt;Wiki" in browser.authorize(client).html
    assert browser.sign_in().path.endswith("/consent")
    assert 'class="logo plate"' in browser.page.html
    assert browser.allow().code


def test_requests_of_applications_do_not_read_it(
    app: Flask, browser: Browser, statements: Any
) -> None:
    make_user(app)
    client = make_client(app, first_party=True)
    browser.authorize(client)
    code = browser.sign_in().code
    tokens: Any = client.exchange(code).json
    with app.app_context():
        context.forget_branding()
    with statements() as seen:
        code = browser.authorize(client).code
        assert code
        assert client.exchange(code).status_code == 200
        assert client.userinfo(tokens["access_token"]).status_code == 200
    assert not [text for text in seen if "branding" in text]
    with statements() as seen:
        browser.open(f"{BASE}/account")
        browser.open(f"{BASE}/account")
    assert len([text for text in seen if "branding" in text]) == 1
