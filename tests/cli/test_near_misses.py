"""Commands: whom and what they change, and nobody and nothing beside."""

import json
from typing import Any

import pytest
from flask import Flask

from sso.models import User
from sso.store import clients
from tests.conftest import Clock
from tests.support.actors import Browser, RelyingParty
from tests.support.events import events
from tests.support.factories import PASSWORD, make_client, make_user


@pytest.fixture
def run(app: Flask) -> Any:
    def invoke(*arguments: str, stdin: str | None = None, code: int = 0) -> Any:
        result = app.test_cli_runner().invoke(args=[*arguments, "--json"], input=stdin)
        assert result.exit_code == code, result.output
        return json.loads(result.stdout) if code == 0 else None

    return invoke


def takes(client: RelyingParty, secret: str) -> bool:
    """Whether the client is known by this secret."""
    answer = client.introspect("x", client_secret=secret)
    assert answer.status_code in (200, 401)
    return answer.status_code == 200


@pytest.mark.parametrize("hours", [(), ("--keep-old", "0")])
def test_a_rotated_secret_at_once(
    app: Flask, client: RelyingParty, run: Any, hours: tuple[str, ...]
) -> None:
    fresh = run("client", "rotate-secret", client.client_id, *hours)["client_secret"]
    assert (takes(client, client.client_secret), takes(client, fresh)) == (False, True)
    with app.app_context():
        stored = clients.find(client.client_id)
        assert stored
        assert stored.previous_secret_digest is None
    (event,) = events(app, "client_secret_rotated")
    assert "old_until" not in event


@pytest.mark.parametrize(("minutes", "old"), [(119, True), (121, False), (60 * 24 * 400, False)])
def test_a_rotated_secret_that_goes_on_for_a_while(
    clock: Clock, client: RelyingParty, run: Any, minutes: int, old: bool
) -> None:
    fresh = run("client", "rotate-secret", client.client_id, "--keep-old", "2")["client_secret"]
    assert takes(client, client.client_secret)
    clock.move(minutes=minutes)
    assert (takes(client, client.client_secret), takes(client, fresh)) == (old, True)


def test_an_old_secret_that_is_ended_before_its_time(
    app: Flask, clock: Clock, client: RelyingParty, run: Any
) -> None:
    fresh = run("client", "rotate-secret", client.client_id, "--keep-old", "2")["client_secret"]
    assert run("client", "show", client.client_id)["old_secret_ends_at"]
    clock.move(minutes=60)
    run("client", "end-old-secret", client.client_id)
    assert (takes(client, client.client_secret), takes(client, fresh)) == (False, True)
    assert "old_secret_ends_at" not in run("client", "show", client.client_id)
    again = app.test_cli_runner().invoke(args=["client", "end-old-secret", client.client_id])
    assert "no old secret is valid any more" in again.output
    assert again.exit_code == 1


def test_a_secret_that_is_rotated_twice(clock: Clock, client: RelyingParty, run: Any) -> None:
    """At once, after a theft: what went on until then stops, too."""
    second = run("client", "rotate-secret", client.client_id, "--keep-old", "24")["client_secret"]
    third = run("client", "rotate-secret", client.client_id, "--keep-old", "24")["client_secret"]
    found = [takes(client, one) for one in (client.client_secret, second, third)]
    assert found == [False, True, True]
    fourth = run("client", "rotate-secret", client.client_id)["client_secret"]
    found = [takes(client, one) for one in (second, third, fourth)]
    assert found == [False, False, True]


def test_a_rotated_secret_of_another_client(app: Flask, client: RelyingParty, run: Any) -> None:
    other = make_client(app, name="Other")
    fresh = run("client", "rotate-secret", client.client_id, "--keep-old", "2")["client_secret"]
    assert takes(other, other.client_secret)
    assert not takes(other, fresh)
    assert not takes(other, client.client_secret)


@pytest.mark.parametrize("who", ["dana@example.com", "DANA@EXAMPLE.COM", " Dana@example.com "])
def test_a_person_by_any_spelling(app: Flask, user: User, run: Any, who: str) -> None:
    make_user(app, "erin@example.com", name="Erin")
    assert run("user", "show", who)["id"] == str(user.id)
    run("user", "disable", who)
    assert not Browser(app).sign_in().path.endswith("/account")
    assert Browser(app).sign_in("erin@example.com").path.endswith("/account")
    run("user", "enable", who)
    assert Browser(app).sign_in(" DANA@example.com").path.endswith("/account")


def test_a_password_for_one(app: Flask, user: User, run: Any) -> None:
    make_user(app, "erin@example.com", name="Erin")
    run("user", "set-password", user.email, "--password-stdin", stdin="a new long password\n")
    assert Browser(app).sign_in(password="a new long password").path.endswith("/account")
    assert not Browser(app).sign_in(password=PASSWORD).path.endswith("/account")
    assert Browser(app).sign_in("erin@example.com").path.endswith("/account")


def test_deleting_one(app: Flask, user: User, client: RelyingParty, run: Any) -> None:
    make_user(app, "erin@example.com", name="Erin")
    other = make_client(app, name="Other")
    run("user", "delete", user.email, "--yes")
    run("client", "delete", client.client_id, "--yes")
    assert [one["email"] for one in run("user", "list")] == ["erin@example.com"]
    assert [one["client_id"] for one in run("client", "list")] == [other.client_id]


def test_an_address_that_is_another_persons(app: Flask, user: User, run: Any) -> None:
    make_user(app, "erin@example.com", name="Erin")
    for spelling in ("erin@example.com", "ERIN@example.com"):
        run("user", "update", user.email, "--email", spelling, code=1)
    assert run("user", "show", user.email)["id"] == str(user.id)


@pytest.mark.parametrize(
    ("options", "verified"),
    [
        (("--name", "Dana Other"), True),
        (("--email", "dana@example.com"), True),
        (("--email", "dana@elsewhere.example"), False),
        (("--email", "dana@elsewhere.example", "--email-verified"), True),
        (("--no-email-verified",), False),
    ],
)
def test_whether_the_address_is_verified(
    user: User, run: Any, options: tuple[str, ...], verified: bool
) -> None:
    assert run("user", "update", user.email, *options)["email_verified"] is verified


def test_the_active_key_is_not_retired(run: Any) -> None:
    keys = {(one["alg"], one["state"]): one["kid"] for one in run("key", "list")}
    run("key", "retire", keys["ES256", "active"], code=1)
    run("key", "rotate")
    run("key", "rotate", code=1)  # a client's cached key set may lack the new next ones
    run("key", "rotate", "--force")
    now = {one["kid"]: one["state"] for one in run("key", "list")}
    assert now[keys["ES256", "active"]] == "retired"
    run("key", "retire", keys["ES256", "active"])
    assert keys["ES256", "active"] not in {one["kid"] for one in run("key", "list")}


def test_live_grants_after_the_browser_session(
    app: Flask, clock: Clock, browser: Browser, run: Any
) -> None:
    """One without `offline_access` ends with the session; one with it goes on."""
    client = make_client(app, scope="openid email offline_access")
    make_user(app)
    for scope in ("openid email", "openid offline_access"):
        client.exchange(browser.approve(client, scope=scope).code)

    def live() -> list[str]:
        shown = run("client", "show", client.client_id)
        assert shown["live_grants"] == len(shown["newest_grants"])
        return sorted(one["scope"] for one in shown["newest_grants"])

    assert live() == ["openid email", "openid offline_access"]
    clock.move(days=15)  # the session has expired, and nobody has signed out
    assert live() == ["openid offline_access"]
