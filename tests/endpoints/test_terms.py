"""The terms of service: who is asked to accept which version, when, and what is kept of it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from flask import Flask

from sso.config.settings import load_settings
from sso.errors import SettingsError
from sso.extensions import db
from sso.models import Mail, User
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty
from tests.support.administration import sign_in_staff
from tests.support.devices import enter, make_device
from tests.support.events import events
from tests.support.factories import make_client, make_user
from tests.support.mailbox import Mailbox
from tests.support.proxied import Proxied, make_proxied

pytestmark = pytest.mark.slow

PAGE = f"{ORIGIN}{BASE}/terms"
NEW = "another long password"


def require(app: Flask, version: str | None = "2026-11") -> None:
    settings = app.extensions["sso.settings"]
    app.extensions["sso.settings"] = replace(
        settings, terms_version=version, terms_url="https://example.com/terms", sign_up="open"
    )


def accept(browser: Browser) -> None:
    assert browser.page.path.endswith("/terms")
    browser.submit(accept="1")


def accepted(app: Flask, user: User) -> tuple[str | None, bool]:
    with app.app_context():
        row = db.session.get_one(User, user.id)
        return row.terms_version, row.terms_accepted_at is not None


def test_before_an_application(app: Flask, client: RelyingParty, user: User) -> None:
    """After the sign-in and before the consent, once, with nothing else of the user changed."""
    require(app)
    with app.app_context():
        before = db.session.get_one(User, user.id)
        unchanged = (before.updated_at, before.version)
    browser = Browser(app)
    browser.authorize(client)
    page = browser.sign_in()
    assert page.path.endswith("/terms")
    assert "Books" in page.html
    assert 'href="https://example.com/terms"' in page.html
    assert "version <bdi>2026-11</bdi>" in page.html
    assert "Please accept the terms of service to go on." in page.html
    accept(browser)
    assert browser.page.path.endswith("/consent")
    tokens = client.exchange(browser.allow().code)
    assert tokens.status_code == 200
    assert accepted(app, user) == ("2026-11", True)
    (event,) = events(app, "terms_accepted")
    assert (event["user"], event["version"]) == (str(user.id), "2026-11")
    with app.app_context():
        after = db.session.get_one(User, user.id)
        assert (after.updated_at, after.version) == unchanged
    assert browser.authorize(client).code
    assert browser.open(PAGE).path.endswith("/account")


def test_nobody_is_asked_by_default(app: Flask, browser: Browser, client: RelyingParty) -> None:
    make_user(app)
    assert browser.approve(client).code
    assert browser.open(PAGE).path.endswith("/account")


def test_a_new_version(
    app: Flask, browser: Browser, client: RelyingParty, user: User, clock: Clock
) -> None:
    """It is asked about again; what applications hold goes on meanwhile."""
    require(app, "1")
    browser.authorize(client, scope="openid offline_access")
    browser.sign_in()
    accept(browser)
    tokens = client.exchange(browser.allow().code).get_json()
    require(app, "2")
    assert client.userinfo(tokens["access_token"]).status_code == 200
    assert client.refresh(tokens["refresh_token"]).status_code == 200
    silent = browser.authorize(client, prompt="none", scope="openid")
    assert (silent.error, silent.parameters["error_description"]) == (
        "interaction_required",
        "The user has to accept the terms of service, and prompt=none forbids it.",
    )
    page = browser.authorize(client, scope="openid")
    assert "The terms of service have changed." in page.html
    clock.move(minutes=5)
    accept(browser)
    assert browser.page.code
    assert accepted(app, user) == ("2", True)
    assert [event["version"] for event in events(app, "terms_accepted")] == ["1", "2"]


def test_without_the_tick(app: Flask, browser: Browser, client: RelyingParty, user: User) -> None:
    require(app)
    browser.authorize(client)
    browser.sign_in()
    for form in ({}, {"accept": ""}):
        assert "Tick the box to go on." in browser.submit(**form).html
    assert accepted(app, user) == (None, False)
    # The dispatcher cannot be reached around the page.
    assert browser.authorize(client).path.endswith("/terms")
    page = browser.open(browser.page.url.replace("/terms?", "/consent?"))
    assert page.path.endswith("/terms")


def test_cancelled(app: Flask, browser: Browser, client: RelyingParty, user: User) -> None:
    require(app)
    browser.authorize(client)
    browser.sign_in()
    assert browser.submit(decision="cancel").error == "access_denied"
    browser.open(PAGE)
    assert browser.submit(decision="cancel").path.endswith("/account")
    assert accepted(app, user) == (None, False)


def test_before_a_device(app: Flask, browser: Browser, user: User) -> None:
    require(app)
    device = make_device(app)
    assert device.ask().status_code == 200
    assert enter(browser, device.user_code).path.endswith("/terms")
    accept(browser)
    assert browser.page.path.endswith("/device")
    browser.allow()
    assert device.poll().status_code == 200


def test_before_an_application_behind_a_proxy(make_app: Callable[..., Flask]) -> None:
    """Once; a session there goes on when the version changes."""
    app = make_app(SSO_TRUSTED_PROXIES="1")
    make_user(app)
    require(app)
    wiki, browser = Proxied(app, make_proxied(app)), Browser(app)
    browser.open(wiki.ask("/page").headers["Location"])
    browser.sign_in()
    accept(browser)
    assert browser.page.url.startswith(f"{wiki.origin}/.sso/callback?")
    assert wiki.ask(browser.page.url.removeprefix(wiki.origin)).status_code == 303
    require(app, "2")
    assert wiki.ask("/page").status_code == 200


@pytest.mark.parametrize("version", ["1", "3", "", "x" * 5000, "\0"])
def test_another_version_than_the_page_had(
    app: Flask, browser: Browser, user: User, version: str
) -> None:
    """The version changed while the page was open, or somebody made one up."""
    require(app, "2")
    browser.sign_in()
    browser.open(PAGE)
    assert browser.submit(accept="1", version=version).path.endswith("/terms")
    assert accepted(app, user) == (None, False)
    accept(browser)
    assert accepted(app, user) == ("2", True)


def test_nobody_accepts_for_somebody_else(app: Flask, user: User) -> None:
    require(app)
    stranger = Browser(app)
    assert stranger.open(PAGE).path.endswith("/sign-in")
    form = {"accept": "1", "version": "2026-11"}
    assert stranger.open(PAGE, method="POST", data=form).path.endswith("/sign-in")
    browser = Browser(app)
    browser.sign_in()
    browser.open(PAGE, method="POST", data=form)  # without a CSRF token
    assert accepted(app, user) == (None, False)


def test_from_the_account(app: Flask, browser: Browser, user: User) -> None:
    require(app)
    page = browser.sign_in()
    assert "not accepted yet" in page.html
    browser.open(PAGE)
    page = browser.submit(accept="1")
    assert "version <bdi>2026-11</bdi>, accepted" in page.html
    assert "Read and accept" not in page.html
    assert "Terms of service accepted" in browser.open(f"{BASE}/account/activity").html


def test_a_sign_up(app: Flask, mailbox: Mailbox) -> None:
    require(app)
    browser = Browser(app)
    browser.open(f"{ORIGIN}{BASE}/sign-up")
    browser.submit(email="erin@example.com")
    browser.open(mailbox.link("erin@example.com"))
    page = browser.submit(name="Erin", new_password=NEW)
    assert "Tick the box to go on." in page.html
    require(app, "2026-12")  # meanwhile
    page = browser.submit(name="Erin", new_password=NEW, accept="1")
    assert "Tick the box to go on." in page.html
    assert browser.submit(name="Erin", new_password=NEW, accept="1").path.endswith("/account")
    with app.app_context():
        erin = db.session.query(User).one()
        assert erin.terms_version == "2026-12"
    assert len(events(app, "terms_accepted")) == 1
    assert browser.authorize(make_client(app, first_party=True)).code


def test_an_invitation_and_a_reset(app: Flask, mailbox: Mailbox) -> None:
    """An invitation has the box; a new password of somebody who has an account has not."""
    require(app)
    result = app.test_cli_runner().invoke(
        args=["user", "invite", "--email", "erin@example.com", "--name", "Erin"]
    )
    assert result.exit_code == 0
    browser = Browser(app)
    browser.open(mailbox.link("erin@example.com"))
    assert "Tick the box to go on." in browser.submit(new_password=NEW).html
    assert browser.submit(new_password=NEW, accept="1").path.endswith("/sign-in")
    assert len(events(app, "terms_accepted")) == 1
    require(app, "2")
    browser.open(f"{ORIGIN}{BASE}/forgotten-password")
    browser.submit(email="erin@example.com")
    browser.open(mailbox.link("erin@example.com"))
    assert "accept" not in browser.page.fields
    assert browser.submit(new_password=NEW + "2").path.endswith("/sign-in")
    with app.app_context():
        assert db.session.query(User).one().terms_version == "2026-11"
        assert db.session.query(Mail).count() >= 2


def test_where_operators_see_it(app: Flask, browser: Browser, user: User) -> None:
    require(app)
    browser.sign_in()
    browser.open(PAGE)
    accept(browser)
    shown = app.test_cli_runner().invoke(args=["user", "show", user.email, "--json"])
    values = json.loads(shown.output)
    assert values["terms_version"] == "2026-11"
    assert values["terms_accepted_at"]
    admin = sign_in_staff(app)
    page = admin.open(f"{ORIGIN}{BASE}/admin/person?id={user.id}")
    assert "version <bdi>2026-11</bdi>" in page.html
    table = admin.open(f"{ORIGIN}{BASE}/admin/people/export?kind=csv").html.splitlines()
    assert "terms_version,terms_accepted" in table[0]
    assert any(",2026-11,2" in line for line in table)


@pytest.mark.parametrize(
    ("version", "url", "error"),
    [
        ("2026-11", None, "set SSO_TERMS_URL, too"),
        ("x" * 61, "https://example.com/terms", "SSO_TERMS_VERSION: "),
        ("a\nb", "https://example.com/terms", "SSO_TERMS_VERSION: "),
        ("x" * 60, "https://example.com/terms", None),
    ],
)
def test_the_setting(tmp_path: Path, version: str, url: str | None, error: str | None) -> None:
    environ = {"SSO_TERMS_VERSION": version, **({"SSO_TERMS_URL": url} if url else {})}
    if error is None:
        assert load_settings(environ, tmp_path).terms_version == version
        return
    with pytest.raises(SettingsError) as raised:
        load_settings(environ, tmp_path)
    assert any(error in line for line in raised.value.errors)
