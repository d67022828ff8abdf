"""`flask api-token`: shown once, listed without the secret, revoked."""

import json
from datetime import timedelta
from typing import Any

import pytest
from click.testing import Result
from flask import Flask

from sso import audit
from sso.audit import writer
from sso.observability.redaction import redact
from sso.services import api_tokens
from sso.services.checks import Invalid
from sso.store import keys
from tests.conftest import Clock
from tests.support.events import events


@pytest.fixture
def run(app: Flask) -> Any:
    def invoke(*arguments: str) -> Result:
        writer.flush(app)
        return app.test_cli_runner().invoke(args=["api-token", *arguments])

    return invoke


def parsed(result: Result) -> Any:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


CREATE = ("create", "--name", "HR", "--scope", "scim:write")


def test_the_token_is_shown_once(app: Flask, run: Any, clock: Clock) -> None:
    made = parsed(run(*CREATE, "--scope", "clients:read scim:read", "--json"))
    secret = made.pop("token")
    assert secret.startswith("sso_api_")
    assert secret not in redact(f"GET /scim/v2/Users?access_token={secret} {secret}")
    assert made["scope"] == "scim:read scim:write clients:read"
    assert made["expires_at"] == "2027-11-21T12:00:00Z"
    assert parsed(run("list", "--json")) == [made]
    assert secret not in run("list").stdout
    with app.app_context():
        (row,) = keys.every_api_token()
        assert secret not in json.dumps({key: str(value) for key, value in vars(row).items()})
    (event,) = events(app, "api_token_created")
    assert event["scope"] == made["scope"]
    assert secret not in str(event)


def test_a_revoked_token_stays_listed(app: Flask, run: Any) -> None:
    made = parsed(run(*CREATE, "--json"))
    assert "in full" in run("revoke", "HR", "--yes").stderr
    assert run("revoke", made["id"]).exit_code == 1  # nobody confirms
    assert parsed(run("revoke", made["id"], "--yes", "--json"))["state"] == "revoked"
    with app.app_context(), pytest.raises(api_tokens.Refused, match="revoked"):
        api_tokens.accept(made["token"], None)
    assert [one["state"] for one in parsed(run("list", "--json"))] == ["revoked"]
    parsed(run(*CREATE, "--json"))  # its name is free again


def test_an_expired_token_is_refused(app: Flask, run: Any, clock: Clock) -> None:
    made = parsed(run(*CREATE, "--expires-in", "2h", "--json"))
    with app.app_context():
        assert api_tokens.accept(made["token"], "192.0.2.1").name == "HR"
    clock.move(hours=2)
    with app.app_context(), pytest.raises(api_tokens.Refused, match="expired"):
        api_tokens.accept(made["token"], None)
    assert "expired" in run("list").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--name", "HR", "--scope", "scim:all"), "unknown scopes: scim:all; known: scim:read"),
        (("--name", "HR", "--scope", " "), "there is no scope"),
        (("--name", " ", "--scope", "scim:read"), "the token's name is empty"),
        (("--name", "HR", "--scope", "scim:invite"), "scim:invite needs scim:write"),
        (("--name", "HR", "--scope", "scim:privileged"), "scim:privileged needs scim:write"),
        (("--name", "HR", "--scope", "scim:read", "--expires", "2020-01-01"), "has to expire"),
        (("--name", "HR", "--scope", "scim:read", "--expires-in", "9999d"), "has to expire"),
        (("--name", "Taken", "--scope", "scim:read"), "already a token with the name"),
    ],
)
def test_what_is_refused(run: Any, arguments: tuple[str, ...], words: str) -> None:
    parsed(run("create", "--name", "Taken", "--scope", "scim:read", "--json"))
    refused = run("create", *arguments)
    assert refused.exit_code == 1
    assert words in refused.stderr


@pytest.mark.parametrize("days", [-1, 0, 5 * 366 + 1])
def test_a_lifetime_that_is_none(app: Flask, days: int) -> None:
    with app.app_context(), pytest.raises(Invalid, match="has to expire within"):
        api_tokens.create(audit.Actor("olga"), "HR", ["scim:read"], timedelta(days=days))
