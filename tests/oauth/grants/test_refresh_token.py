"""The token endpoint with `refresh_token` (RFC 6749 §6, RFC 9700 §4.14.2)."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import update

from sso.config.settings import load_settings
from sso.errors import SettingsError
from sso.extensions import db
from sso.models import Grant, User
from sso.store import clients, users
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty
from tests.support.factories import make_client, make_user

OFFLINE = "openid profile email offline_access"


@pytest.fixture
def tokens(clock: Clock, browser: Browser, client: RelyingParty, user: User) -> dict[str, Any]:
    found: dict[str, Any] = client.exchange(browser.approve(client).code).get_json()
    return found


def refused(answer: Any) -> bool:
    return bool(answer.status_code == 400 and answer.get_json()["error"] == "invalid_grant")


def test_a_retry_gets_the_same_successor(
    clock: Clock, client: RelyingParty, tokens: dict[str, Any]
) -> None:
    first = client.refresh(tokens["refresh_token"]).get_json()
    clock.move(seconds=9)
    second = client.refresh(tokens["refresh_token"]).get_json()
    assert second["refresh_token"] == first["refresh_token"]
    assert second["access_token"] != first["access_token"]
    assert client.userinfo(second["access_token"]).status_code == 200
    assert client.refresh(first["refresh_token"]).status_code == 200


def test_after_the_leeway_reuse_ends_the_family(
    clock: Clock, client: RelyingParty, tokens: dict[str, Any]
) -> None:
    successor = client.refresh(tokens["refresh_token"]).get_json()
    clock.move(seconds=11)
    assert refused(client.refresh(tokens["refresh_token"]))
    assert refused(client.refresh(successor["refresh_token"]))
    assert client.userinfo(successor["access_token"]).status_code == 401
    assert client.userinfo(tokens["access_token"]).status_code == 401


def test_without_leeway_reuse_ends_it_at_once(clock: Clock, make_app: Callable[..., Flask]) -> None:
    app = make_app(SSO_REFRESH_TOKEN_LEEWAY="0")
    make_user(app)
    client = make_client(app)
    tokens = client.exchange(Browser(app).approve(client).code).get_json()
    successor = client.refresh(tokens["refresh_token"]).get_json()
    assert refused(client.refresh(tokens["refresh_token"]))
    assert client.userinfo(successor["access_token"]).status_code == 401


def test_narrowing_holds_for_one_access_token(client: RelyingParty, tokens: dict[str, Any]) -> None:
    narrow = client.refresh(tokens["refresh_token"], scope="openid email").get_json()
    assert narrow["scope"] == "openid email"
    assert "name" not in client.userinfo(narrow["access_token"]).get_json()
    whole = client.refresh(narrow["refresh_token"]).get_json()
    assert whole["scope"] == "openid profile email"


def test_widening_is_refused_and_uses_nothing_up(
    client: RelyingParty, tokens: dict[str, Any]
) -> None:
    answer = client.refresh(tokens["refresh_token"], scope="openid groups")
    assert (answer.status_code, answer.get_json()["error"]) == (400, "invalid_scope")
    assert client.refresh(tokens["refresh_token"]).status_code == 200


def test_it_lives_thirty_days_from_its_last_use(
    clock: Clock, app: Flask, browser: Browser, user: User
) -> None:
    client = make_client(app, scope=OFFLINE)
    page = browser.approve(client, scope=OFFLINE)
    token = client.exchange(page.code).get_json()["refresh_token"]
    for _ in range(3):
        clock.move(days=29)
        token = client.refresh(token).get_json()["refresh_token"]
    clock.move(days=31)
    assert refused(client.refresh(token))


def test_another_client(app: Flask, client: RelyingParty, tokens: dict[str, Any]) -> None:
    assert refused(make_client(app, name="Other").refresh(tokens["refresh_token"]))
    assert client.refresh(tokens["refresh_token"]).status_code == 200


@pytest.mark.parametrize("offline", [False, True])
def test_sign_out(clock: Clock, app: Flask, browser: Browser, user: User, offline: bool) -> None:
    """Without offline_access the grant ends with the session; with it, it outlives sign-out."""
    client = make_client(app, scope=OFFLINE)
    scope = OFFLINE if offline else "openid email"
    tokens = client.exchange(browser.approve(client, scope=scope).code).get_json()
    browser.open("/api/auth/sign-out")
    browser.submit(decision="sign_out")
    alive = client.userinfo(tokens["access_token"]).status_code == 200
    assert alive is offline
    assert (client.refresh(tokens["refresh_token"]).status_code == 200) is offline


def test_it_ends_when_the_session_expires(
    clock: Clock, client: RelyingParty, tokens: dict[str, Any]
) -> None:
    clock.move(days=15)
    assert refused(client.refresh(tokens["refresh_token"]))


@pytest.mark.parametrize("who", ["user", "client"])
def test_disabling_ends_it(
    app: Flask, client: RelyingParty, user: User, tokens: dict[str, Any], who: str
) -> None:
    from sso import clock

    with app.app_context():
        found = users.find(user.id) if who == "user" else clients.find(client.client_id)
        assert found is not None
        found.disabled_at = clock.now()
        db.session.commit()
    assert client.userinfo(tokens["access_token"]).status_code == 401
    answer = client.refresh(tokens["refresh_token"])
    assert answer.get_json()["error"] == ("invalid_grant" if who == "user" else "invalid_client")


def test_revoking_it_ends_the_grant(client: RelyingParty, tokens: dict[str, Any]) -> None:
    assert client.introspect(tokens["access_token"]).get_json()["active"] is True
    assert client.revoke(tokens["refresh_token"]).status_code == 200
    assert client.introspect(tokens["access_token"]).get_json() == {"active": False}
    assert client.userinfo(tokens["access_token"]).status_code == 401
    assert refused(client.refresh(tokens["refresh_token"]))


def test_a_retry_is_none_once_the_successor_was_used(
    clock: Clock, client: RelyingParty, tokens: dict[str, Any]
) -> None:
    """Anyone who has used the successor had the answer; the other one is a thief, or robbed."""
    first = client.refresh(tokens["refresh_token"]).get_json()
    second = client.refresh(first["refresh_token"]).get_json()
    clock.move(seconds=1)
    assert refused(client.refresh(tokens["refresh_token"]))
    assert refused(client.refresh(second["refresh_token"]))
    for given in (tokens, first, second):
        assert client.userinfo(given["access_token"]).status_code == 401


def test_a_retry_of_the_second_refresh(
    clock: Clock, client: RelyingParty, tokens: dict[str, Any]
) -> None:
    """A token is judged by its own successor."""
    first = client.refresh(tokens["refresh_token"]).get_json()
    second = client.refresh(first["refresh_token"]).get_json()
    again = client.refresh(first["refresh_token"]).get_json()
    assert again["refresh_token"] == second["refresh_token"]
    assert client.refresh(second["refresh_token"]).status_code == 200


def test_a_retry_after_the_key_was_replaced_revokes_nothing(
    clock: Clock, app: Flask, client: RelyingParty, tokens: dict[str, Any]
) -> None:
    """The successor can't be derived again; the one that was given lives on."""
    first = client.refresh(tokens["refresh_token"]).get_json()
    settings = app.extensions["sso.settings"]
    app.extensions["sso.settings"] = replace(settings, secret_key="another key " * 4)
    assert refused(client.refresh(tokens["refresh_token"]))
    assert client.refresh(first["refresh_token"]).status_code == 200


class TestAbsoluteLifetime:
    DAY = 24 * 3600

    @pytest.fixture
    def offline(self, clock: Clock, app: Flask, browser: Browser, user: User) -> RelyingParty:
        self.limit(app, 5 * self.DAY)
        return make_client(app, scope=OFFLINE)

    @staticmethod
    def limit(app: Flask, seconds: int) -> None:
        settings = app.extensions["sso.settings"]
        app.extensions["sso.settings"] = replace(settings, refresh_token_absolute_lifetime=seconds)

    def test_the_family_ends_however_much_it_is_used(
        self, clock: Clock, browser: Browser, offline: RelyingParty
    ) -> None:
        page = browser.approve(offline, scope=OFFLINE)
        clock.move(seconds=50)  # it is counted from the approval
        token = offline.exchange(page.code).get_json()["refresh_token"]
        clock.move(seconds=-50)
        for _ in range(4):
            clock.move(days=1)
            token = offline.refresh(token).get_json()["refresh_token"]
        clock.move(hours=23, minutes=59)
        exp = offline.introspect(token).get_json()["exp"]
        assert 0 < exp - clock.now().timestamp() < 60
        last = offline.refresh(token).get_json()
        clock.move(minutes=2)
        assert not offline.introspect(last["refresh_token"]).get_json()["active"]
        assert refused(offline.refresh(last["refresh_token"]))
        assert offline.userinfo(last["access_token"]).status_code == 200  # it lives its hour

    def test_a_retry_at_the_end(
        self, clock: Clock, app: Flask, browser: Browser, offline: RelyingParty
    ) -> None:
        page = browser.approve(offline, scope=OFFLINE)
        token = offline.exchange(page.code).get_json()["refresh_token"]
        clock.move(days=4, hours=23, minutes=59, seconds=57)
        assert offline.refresh(token).status_code == 200
        clock.move(seconds=5)
        answer = offline.refresh(token)
        assert refused(answer)
        assert "too long ago" in answer.get_json()["error_description"]

    def test_a_retry_at_the_very_end(
        self, clock: Clock, browser: Browser, offline: RelyingParty
    ) -> None:
        clock.stand_still()
        page = browser.approve(offline, scope=OFFLINE)
        token = offline.exchange(page.code).get_json()["refresh_token"]
        clock.move(days=4, hours=23, minutes=59, seconds=57)
        assert offline.refresh(token).status_code == 200
        clock.move(seconds=2)
        assert offline.refresh(token).status_code == 200
        clock.move(seconds=1)
        assert refused(offline.refresh(token))

    def test_a_shorter_setting_reaches_families_that_are_there(
        self, clock: Clock, app: Flask, browser: Browser, offline: RelyingParty
    ) -> None:
        page = browser.approve(offline, scope=OFFLINE)
        tokens = offline.exchange(page.code).get_json()
        clock.move(days=3)
        self.limit(app, 2 * self.DAY)
        assert not offline.introspect(tokens["refresh_token"]).get_json()["active"]
        answer = offline.refresh(tokens["refresh_token"])
        assert refused(answer)
        assert "too long ago" in answer.get_json()["error_description"]
        self.limit(app, 4 * self.DAY)
        assert offline.refresh(tokens["refresh_token"]).status_code == 200

    def test_the_setting(self, tmp_path: Path) -> None:
        name = "SSO_REFRESH_TOKEN_ABSOLUTE_LIFETIME"
        assert load_settings({}, tmp_path).refresh_token_absolute_lifetime == 31_536_000
        assert load_settings({name: "60"}, tmp_path).refresh_token_absolute_lifetime == 60
        for wrong in ("0", "-1", "forever"):
            with pytest.raises(SettingsError):
                load_settings({name: wrong}, tmp_path)


# `offline_access` among other scopes: at the beginning, in the middle, at the end, and alone.


@pytest.mark.parametrize(
    ("scope", "outlives"),
    [
        ("offline_access", True),
        ("offline_access email", True),
        ("email offline_access", True),
        ("openid offline_access email", True),
        ("openid email", False),
        ("openid offline", False),
        ("openid xoffline_access", False),
        ("openid offline_accessx", False),
        ("openid offline-access", False),
        ("openid offlineXaccess", False),
    ],
)
def test_it_outlives_sign_out(
    app: Flask, clock: Clock, browser: Browser, user: User, scope: str, outlives: bool
) -> None:
    client = make_client(app, scope="openid email offline_access")
    code = browser.approve(client, scope="openid email offline_access").code
    tokens = client.exchange(code).get_json()
    with app.app_context():  # also scopes that a newer version may know
        db.session.execute(update(Grant).values(scope=scope))
        db.session.commit()
    browser.open(f"{ORIGIN}{BASE}/sign-out")
    browser.submit(decision="sign_out")
    assert (client.userinfo(tokens["access_token"]).status_code == 200) is outlives
    assert (client.refresh(tokens["refresh_token"]).status_code == 200) is outlives
