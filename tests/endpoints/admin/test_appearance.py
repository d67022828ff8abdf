"""Name, logo, color and links of pages, from the environment or set in the browser."""

import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from flask import Flask

from sso import context
from sso.audit import Actor
from sso.crypto import password_strength
from sso.extensions import db
from sso.jobs import mail as mail_jobs
from sso.mfa import passkeys, totp
from sso.models import Mail
from sso.services import branding
from sso.store import branding as stored
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, Page
from tests.support.administration import ADMIN, HELPDESK, StaffBrowser, sign_in_staff
from tests.support.events import events
from tests.support.factories import make_user
from tests.support.logos import JPEG, PNG, SVG, png

pytestmark = pytest.mark.slow

PAGE, PREVIEW = f"{ADMIN}/appearance", f"{ADMIN}/appearance/preview"
OLGA = Actor("olga")
SIGN_IN = f"{ORIGIN}{BASE}/sign-in"
URLS = {
    "support_url": "mailto:help@acme.example",
    "privacy_url": "https://acme.example/privacy",
    "terms_url": "https://acme.example/terms",
}
ALL: dict[str, Any] = {"name": "Acme <b>", "accent_color": "#C8102E", **URLS}
NESTED = (
    b'<svg xmlns="http://www.w3.org/2000/svg"><g id="a"><path d="M0 0"/></g>'
    + b"".join(
        b'<g id="%c">%s</g>' % (after, b'<use href="#%c"/>' % before * 10)
        for before, after in zip(b"abcdefgh", b"bcdefghi", strict=True)
    )
    + b"</svg>"
)


@pytest.fixture
def ada(app: Flask) -> StaffBrowser:
    browser = sign_in_staff(app)
    browser.open(PAGE)
    return browser


def save(browser: StaffBrowser, logo: bytes | None = None, to: str = PAGE, **values: Any) -> Page:
    """Send the form of the page with these values, and with a file if there is one."""
    page = browser.page
    hidden = {name: page.fields[name] for name in ("csrf_token", "seen")}
    fields: dict[str, Any] = {**shown(page), **hidden, **values}
    if logo is not None:
        fields["logo"] = (io.BytesIO(logo), "logo")
    return browser.open(to, "POST", data=fields, content_type="multipart/form-data")


def shown(page: Page) -> dict[str, str]:
    return {name: page.fields[name] for name in ALL if name in page.fields}


def row(app: Flask) -> dict[str, Any]:
    with app.app_context():
        return branding.described(stored.find())


NOTHING = dict.fromkeys((*ALL, "logo"))


def test_it_is_everywhere_at_once(app: Flask, ada: StaffBrowser) -> None:
    page = save(ada, SVG, **ALL)
    assert page.status == 200
    assert "The changes were saved." in page.html
    assert shown(page) == {**ALL, "accent_color": "#c8102e"}
    html = Browser(app).open(SIGN_IN).html
    assert "Sign in to <bdi>Acme &lt;b&gt;</bdi>" in html
    assert "Acme &lt;b&gt;</title>" in html
    (logo,) = re.findall(r'<img class="logo plate" src="([^"]+)"', html)
    assert app.test_client().get(logo).data == SVG
    assert re.findall(r'href="([^"]+)">([^<]+)<', html.partition("<footer>")[2]) == [
        (URLS["support_url"], "Help"),
        (URLS["privacy_url"], "Privacy policy"),
        (URLS["terms_url"], "Terms of service"),
    ]
    (style,) = re.findall(r'href="([^"]+sso.css[^"]+)"', html)
    answer = app.test_client().get(style)
    assert "#c8102e" in answer.text
    assert "immutable" in answer.headers["Cache-Control"]
    user = make_user(app)
    with app.app_context(), app.test_request_context():
        uri = totp.provisioning_uri("A" * 32, user)
        assert parse_qs(urlsplit(uri).query)["issuer"] == [ALL["name"]]
        assert '"name": "Acme <b>"' in passkeys.ask_to_enrol(user, []).options
        assert "acme" in password_strength._service_words()
        written = mail_jobs.write(Mail(kind="sign_up", address="e@example.com", details={}))
        assert written
        assert written.message["From"].addresses[0].display_name == ALL["name"]
        html_part = written.message.get_body(("html",))
        assert html_part
        assert "background:#c8102e" in html_part.get_content()
        assert URLS["terms_url"] in written.text


def test_the_audit_trail_has_each_field_before_and_after(app: Flask, ada: StaffBrowser) -> None:
    save(ada, PNG, name="Acme")
    save(ada, name="Acme Corp")
    first, second = events(app, "branding_changed")
    assert first["what"] == "name logo"
    assert first["operator"] == "ada@example.com"
    assert second["changes"] == {"name": {"before": "Acme", "after": "Acme Corp"}}
    save(ada)
    assert len(events(app, "branding_changed")) == 2  # nothing was changed


def test_a_logo_is_replaced_kept_and_removed(app: Flask, ada: StaffBrowser) -> None:
    page = save(ada, PNG)
    first = row(app)["logo"]
    assert "Remove the logo" in page.html
    save(ada, name="Acme")
    assert row(app)["logo"] == first
    save(ada, JPEG)
    assert row(app)["logo"] not in (first, None)
    page = save(ada, remove_logo="y")
    assert row(app) == {**NOTHING, "name": "Acme"}
    assert "Remove the logo" not in page.html
    assert 'class="logo' not in Browser(app).open(SIGN_IN).html
    assert app.test_client().get(f"{BASE}/static/logo").status_code == 404


def test_empty_fields_are_removed(app: Flask, ada: StaffBrowser) -> None:
    save(ada, **ALL)
    blank: dict[str, Any] = dict.fromkeys(ALL, " ")
    save(ada, **blank)
    assert row(app) == NOTHING
    assert "· sso</title>" in Browser(app).open(SIGN_IN).html


REFUSED = [
    ({"name": "x" * 61}, "longer than"),
    ({"name": "a\u202eb"}, "invisible characters"),
    ({"accent_color": "red"}, "six hexadecimal digits"),
    ({"accent_color": "#777777"}, "contrast is"),
    ({"support_url": "http://acme.example"}, "https URL, or mailto:"),
    ({"support_url": "javascript:alert(1)"}, "https URL, or mailto:"),
    ({"privacy_url": "mailto:help@acme.example"}, "not https"),
    ({"terms_url": "https://u:p@acme.example/"}, "user name"),
]


@pytest.mark.parametrize(("values", "reason"), REFUSED)
def test_what_the_environment_refuses_is_refused(
    app: Flask, ada: StaffBrowser, values: dict[str, Any], reason: str
) -> None:
    save(ada, name="Acme")
    before = row(app)
    page = save(ada, **values)
    assert page.status == 200
    (fault,) = re.findall(r'<p class="fault"[^>]*>(.*?)</p>', page.html)
    assert reason in re.sub(r"<[^>]+>|[\u2068\u2069]", "", fault)
    assert row(app) == before


@pytest.mark.parametrize(
    "logo",
    [
        PNG + bytes(64 * 1024),
        b"<svg xmlns='http://www.w3.org/2000/svg'><script/></svg>",
        b"<!doctype html>",
        NESTED,
        png(5000, 10),
    ],
    ids=["too long", "script", "HTML", "nested use", "too wide"],
)
def test_a_logo_that_is_refused(app: Flask, ada: StaffBrowser, logo: bytes) -> None:
    page = save(ada, logo, name="Acme")
    assert 'id="logo-error"' in page.html
    assert row(app) == NOTHING
    preview = save(ada, logo, PREVIEW, name="Acme")
    assert "The preview leaves out what is not valid." in preview.html
    assert "Sign in to <bdi>Acme</bdi>" in preview.html


def test_a_preview_stores_nothing(app: Flask, ada: StaffBrowser) -> None:
    save(ada, name="Before")
    ada.open(PAGE)
    page = save(ada, SVG, PREVIEW, name="Acme <b>", accent_color="#f00")
    assert page.status == 200
    assert "Sign in to <bdi>Acme &lt;b&gt;</bdi>" in page.html
    assert 'src="data:image/svg+xml;base64,' in page.html
    assert "<script" not in page.html
    assert page.headers["X-Frame-Options"] == "SAMEORIGIN"
    assert "frame-ancestors 'self'" in page.headers["Content-Security-Policy"]
    assert "script-src" not in page.headers["Content-Security-Policy"]
    assert "six hexadecimal digits" in page.html
    assert row(app) == {**NOTHING, "name": "Before"}
    assert "Sign in to <bdi>Before</bdi>" in ada.open(PREVIEW).html
    assert len(events(app, "branding_changed")) == 1
    other = ada.open(PAGE)
    assert other.headers["X-Frame-Options"] == "DENY"
    assert "frame-src 'self'" in other.headers["Content-Security-Policy"]


def test_what_the_environment_sets_is_read_only(
    make_app: Callable[..., Flask], tmp_path: Path
) -> None:
    (tmp_path / "logo.svg").write_bytes(SVG)
    environ = {"SSO_NAME": "Acme <b>", "SSO_LOGO_FILE": str(tmp_path / "logo.svg")}
    app = make_app(**environ)
    ada = sign_in_staff(app)
    page = ada.open(PAGE)
    text = re.sub(r"<[^>]+>", "", page.html)
    assert "Acme &lt;b&gt; from SSO_NAME" in text
    assert "logo.svg from SSO_LOGO_FILE" in text
    assert "name" not in page.fields
    assert "logo" not in page.fields
    page = save(ada, PNG, name="Other", remove_logo="y", accent_color="#c8102e")
    assert "The changes were saved." in page.html
    assert row(app) == {**NOTHING, "accent_color": "#c8102e"}
    assert "Sign in to <bdi>Acme &lt;b&gt;</bdi>" in Browser(app).open(SIGN_IN).html
    everything = {**environ, "SSO_ACCENT_COLOR": "#2f5bea"} | {
        f"SSO_{name.upper()}": url for name, url in URLS.items()
    }
    page = sign_in_staff(make_app(**everything), "eve@example.com").open(PAGE)
    assert "#2f5bea from SSO_ACCENT_COLOR" in re.sub(r"<[^>]+>", "", page.html)
    assert "<form" not in page.html
    assert "appearance.js" not in page.html


def test_others_see_it_within_seconds(
    app: Flask, ada: StaffBrowser, make_app: Callable[..., Flask], clock: Clock
) -> None:
    other = make_app(SSO_SESSION_LIFETIME="4000")  # another process with the same database
    ada.open(PAGE)
    for second, name in ((4, "sso"), (5, "Acme")):
        with app.app_context():
            branding.change(OLGA, {"name": None})
            db.session.commit()
            context.forget_branding()
        with other.app_context():
            context.forget_branding()
        assert "· sso</title>" in Browser(other).open(SIGN_IN).html
        with app.app_context():
            branding.change(OLGA, {"name": "Acme", "accent_color": "#c8102e"})
            db.session.commit()
        clock.move(seconds=second)
        assert f"· {name}</title>" in Browser(other).open(SIGN_IN).html


def test_a_new_style_sheet_is_never_an_old_one(
    app: Flask, ada: StaffBrowser, make_app: Callable[..., Flask]
) -> None:
    """The page is from one process, its files from another one, which has not looked since."""
    other = make_app(SSO_SESSION_LIFETIME="4000")
    assert "sso.css" in Browser(other).open(SIGN_IN).html
    save(ada, PNG, accent_color="#c8102e")
    html = Browser(app).open(SIGN_IN).html
    for url in re.findall(r'(?:href|src)="([^"]+/static/(?:sso\.css|logo)\?[^"]+)"', html):
        answer = other.test_client().get(url)
        assert answer.status_code == 200, url
        assert "immutable" in answer.headers["Cache-Control"]
        assert answer.data == app.test_client().get(url).data


def test_a_database_that_fails_leaves_the_branding_as_it_was(
    app: Flask, ada: StaffBrowser, clock: Clock
) -> None:
    save(ada, name="Acme")
    with app.app_context():
        assert context.branding().name == "Acme"
        db.session.execute(db.text("ALTER TABLE branding RENAME TO gone"))
        db.session.commit()
        clock.move(seconds=60)
        assert context.branding().name == "Acme"
        db.session.execute(db.text("ALTER TABLE gone RENAME TO branding"))
        db.session.commit()


def test_someone_else_has_changed_it(app: Flask, ada: StaffBrowser) -> None:
    save(ada, name="Acme")
    with app.app_context():
        branding.change(OLGA, {"name": "Acme Corp", "privacy_url": URLS["privacy_url"]})
        db.session.commit()
    page = save(ada, name="Mine")
    assert page.status == 409
    assert "Acme Corp" in page.html
    assert shown(page)["name"] == "Mine"
    assert shown(page)["privacy_url"] == URLS["privacy_url"]
    save(ada)
    assert row(app)["name"] == "Mine"


def test_who_may_open_it(app: Flask, ada: StaffBrowser) -> None:
    before = app.extensions["sso.settings"]
    roles = "designers=branding, watchers=server"
    app.extensions["sso.settings"] = replace(before, admin_roles=roles)
    for group, status in ((HELPDESK, 404), ("watchers", 404), ("designers", 200)):
        browser = sign_in_staff(app, f"{group}@example.com", group)
        for url in (PAGE, PREVIEW):
            assert browser.open(url).status == status, (group, url)
    page = browser.open(PAGE)
    assert "Settings" not in page.html  # designers see their section alone
    assert save(browser, name="Acme").status == 200
    app.extensions["sso.settings"] = before
    assert Browser(app).open(PAGE).path.endswith("/sign-in")


def test_the_settings_say_where_it_comes_from(app: Flask, ada: StaffBrowser) -> None:
    save(ada, PNG, name="Acme <b>")
    html = ada.open(f"{ADMIN}/settings").html
    for name, value in (("SSO_NAME", "Acme &lt;b&gt;"), ("SSO_LOGO_FILE", "image/png")):
        (line,) = re.findall(rf"<tr>\s*<th[^>]*><code[^>]*>{name}<.*?</tr>", html, re.DOTALL)
        assert value in line
        assert ">database</a>" in line
