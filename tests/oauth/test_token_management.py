"""Introspection (RFC 7662 §2.2): a token is active exactly as long as it works."""

from typing import Any

import pytest
from flask import Flask

from sso.models import User
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty
from tests.support.events import events
from tests.support.factories import make_client

OFFLINE = "openid email offline_access"


@pytest.fixture
def client(app: Flask) -> RelyingParty:
    return make_client(app, scope=OFFLINE)


def obtain(browser: Browser, client: RelyingParty, scope: str = "openid email") -> dict[str, Any]:
    found: dict[str, Any] = client.exchange(browser.approve(client, scope=scope).code).get_json()
    return found


@pytest.fixture
def tokens(clock: Clock, browser: Browser, client: RelyingParty, user: User) -> dict[str, Any]:
    return obtain(browser, client)


def active(client: RelyingParty, tokens: dict[str, Any]) -> tuple[bool, bool]:
    """The access token, and the refresh token."""
    found = [client.introspect(tokens[kind]) for kind in ("access_token", "refresh_token")]
    assert {answer.status_code for answer in found} == {200}
    for answer in found:  # nothing is told of what is not active
        assert answer.get_json()["active"] or answer.get_json() == {"active": False}
    return found[0].get_json()["active"], found[1].get_json()["active"]


def sign_out(browser: Browser) -> None:
    browser.open(f"{ORIGIN}{BASE}/sign-out")
    browser.submit(decision="sign_out")


def test_both_kinds(client: RelyingParty, tokens: dict[str, Any], user: User) -> None:
    access = client.introspect(tokens["access_token"]).get_json()
    refresh = client.introspect(tokens["refresh_token"]).get_json()
    for found in (access, refresh):
        assert found["active"] is True
        assert (found["sub"], found["client_id"]) == (str(user.id), client.client_id)
        assert found["scope"] == "openid email"
    assert access["exp"] - access["iat"] == 3600
    assert refresh["exp"] - refresh["iat"] == 2_592_000
    assert access["token_type"] == "Bearer"
    assert "token_type" not in refresh


def test_a_used_refresh_token(client: RelyingParty, tokens: dict[str, Any]) -> None:
    fresh = client.refresh(tokens["refresh_token"]).get_json()
    assert active(client, tokens) == (True, False)
    assert active(client, fresh) == (True, True)


def test_narrowed(client: RelyingParty, tokens: dict[str, Any]) -> None:
    """The access token has what was asked for, the refresh token the whole grant."""
    fresh = client.refresh(tokens["refresh_token"], scope="openid").get_json()
    assert client.introspect(fresh["access_token"]).get_json()["scope"] == "openid"
    assert client.introspect(fresh["refresh_token"]).get_json()["scope"] == "openid email"


@pytest.mark.parametrize(("days", "wanted"), [(13, (False, True)), (15, (False, False))])
def test_of_a_session_that_expires(
    clock: Clock, client: RelyingParty, tokens: dict[str, Any], days: int, wanted: Any
) -> None:
    clock.move(days=days)
    assert active(client, tokens) == wanted
    assert (client.refresh(tokens["refresh_token"]).status_code == 200) == wanted[1]


@pytest.mark.parametrize("scope", ["openid email", OFFLINE])
def test_of_a_session_that_ended(
    browser: Browser, client: RelyingParty, user: User, scope: str
) -> None:
    tokens = obtain(browser, client, scope)
    sign_out(browser)
    offline = scope == OFFLINE
    assert active(client, tokens) == (offline, offline)


@pytest.mark.parametrize(("days", "alive"), [(29, True), (31, False)])
def test_offline_it_expires_by_itself(
    clock: Clock, browser: Browser, client: RelyingParty, user: User, days: int, alive: bool
) -> None:
    tokens = obtain(browser, client, OFFLINE)
    clock.move(days=days)
    assert active(client, tokens) == (False, alive)


def test_revoked(browser: Browser, client: RelyingParty, tokens: dict[str, Any]) -> None:
    """An access token ends alone, a refresh token with its grant; another grant goes on."""
    other = obtain(browser, client)
    client.revoke(tokens["access_token"])
    assert active(client, tokens) == (False, True)
    fresh = client.refresh(tokens["refresh_token"]).get_json()
    client.revoke(tokens["access_token"])
    assert active(client, fresh) == (True, True)
    client.revoke(fresh["refresh_token"])
    assert active(client, fresh) == (False, False)
    assert active(client, other) == (True, True)


@pytest.mark.parametrize("what", ["user", "client"])
def test_disabled(
    app: Flask, client: RelyingParty, browser: Browser, user: User, what: str
) -> None:
    tokens = obtain(browser, client, OFFLINE)
    who = user.email if what == "user" else client.client_id
    assert app.test_cli_runner().invoke(args=[what, "disable", who]).exit_code == 0
    if what == "user":
        assert active(client, tokens) == (False, False)
    else:
        assert client.introspect(tokens["access_token"]).status_code == 401


@pytest.mark.parametrize("kind", ["access_token", "refresh_token"])
def test_another_clients(
    app: Flask, client: RelyingParty, tokens: dict[str, Any], kind: str
) -> None:
    other = make_client(app, name="Other", redirect_uris=["https://other.example/"])
    assert other.introspect(tokens[kind]).get_json() == {"active": False}
    assert other.revoke(tokens[kind]).status_code == 200
    assert active(client, tokens) == (True, True)


@pytest.mark.parametrize("token", ["x", "sso_rt_x", "a.b.c", "e30.e30.e30", "\x7f"])
def test_what_is_none(client: RelyingParty, token: str) -> None:
    answer = client.introspect(token)
    assert answer.get_json() == {"active": False} or answer.status_code == 400


def test_a_wrong_hint_changes_nothing(client: RelyingParty, tokens: dict[str, Any]) -> None:
    for kind in ("access_token", "refresh_token"):
        for hint in ("access_token", "refresh_token", "nonsense"):
            answer = client.introspect(tokens[kind], token_type_hint=hint)
            assert answer.get_json()["active"] is True


def test_without_a_token_or_with_a_wrong_secret(
    client: RelyingParty, tokens: dict[str, Any]
) -> None:
    assert client.post("/oauth2/introspect", client.credentials()).status_code == 400
    answer = client.introspect(tokens["access_token"], client_secret="wrong")
    assert answer.status_code == 401
    assert "active" not in answer.get_json()


@pytest.mark.parametrize("path", ["/oauth2/introspect", "/oauth2/revoke"])
def test_the_registered_method_holds_here_too(
    app: Flask, browser: Browser, user: User, path: str
) -> None:
    client = make_client(app, auth_method="client_secret_basic")
    form = {"token": "x"}
    assert client.post(path, {**form, **client.credentials()}).status_code == 401
    assert client.post(path, form, headers=client.basic()).status_code == 200


def altered(token: str) -> str:
    """The same header and claims under another signature: its `jti` is found."""
    head, _, signature = token.rpartition(".")
    return f"{head}.{signature[::-1]}"


def test_an_altered_access_token(client: RelyingParty, tokens: dict[str, Any]) -> None:
    forged = altered(tokens["access_token"])
    assert client.introspect(forged).get_json() == {"active": False}
    assert client.revoke(forged).status_code == 200
    assert active(client, tokens) == (True, True)


def test_a_refresh_token_still_ends_its_grant_after_its_access_token(
    client: RelyingParty, tokens: dict[str, Any]
) -> None:
    """Both stand in one row."""
    client.revoke(tokens["access_token"])
    assert active(client, tokens) == (False, True)
    client.revoke(tokens["refresh_token"])
    assert active(client, tokens) == (False, False)
    assert client.refresh(tokens["refresh_token"]).status_code == 400


@pytest.mark.parametrize("kind", ["access_token", "refresh_token"])
def test_revoking_again_is_not_recorded(
    app: Flask, client: RelyingParty, tokens: dict[str, Any], kind: str
) -> None:
    for _ in range(3):
        assert client.revoke(tokens[kind]).status_code == 200
    assert len(events(app, "token_revoked")) == 1
