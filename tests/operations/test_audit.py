"""The audit trail of a real server: every event has a row, operators are named, nothing leaks."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import requests
from flask import Flask

from sso import audit
from sso.audit import writer
from sso.models import User
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty
from tests.support.factories import PASSWORD
from tests.support.processes import Server


@pytest.fixture
def run(app: Flask) -> Any:
    def invoke(*arguments: str, **more: Any) -> Any:
        writer.flush(app)
        result = app.test_cli_runner().invoke(args=[*arguments, "--json"], **more)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    return invoke


def events(run: Any, *filters: str) -> list[str]:
    """The names, oldest first."""
    return [one["event"] for one in reversed(run("audit", "list", *filters))]


def test_every_event_of_a_sign_in_has_a_row(
    app: Flask, browser: Browser, client: RelyingParty, user: User, run: Any
) -> None:
    browser.authorize(client)
    browser.sign_in(password="wrong wrong wrong")
    browser.sign_in()
    code = browser.allow().code
    tokens = client.exchange(code).get_json()
    fresh = client.refresh(tokens["refresh_token"]).get_json()
    client.exchange(code, client_secret="wrong")
    client.revoke(fresh["refresh_token"])
    client.refresh(fresh["refresh_token"])
    browser.open(f"{ORIGIN}{BASE}/sign-out")
    browser.submit(decision="sign_out")
    rows = run("audit", "list")
    found = [row["event"] for row in rows]
    assert sorted(found) == sorted(
        [
            "sign_in_failed",
            "signed_in",
            "consent_given",
            "code_issued",
            "tokens_issued",
            "tokens_refreshed",
            "client_authentication_failed",
            "token_revoked",
            "tokens_refused",
            "session_ended",
        ]
    )
    by_name = {row["event"]: row for row in rows}
    for name in ("sign_in_failed", "signed_in", "consent_given", "tokens_issued", "session_ended"):
        assert by_name[name]["user"] == str(user.id)
    for name in ("code_issued", "tokens_refreshed", "client_authentication_failed"):
        assert by_name[name]["client"] == client.client_id
    assert by_name["sign_in_failed"]["fields"] == {"reason": "password"}
    assert {row["address"] for row in rows} == {"127.0.0.1"}
    assert all(row["browser"] for row in rows)
    said = json.dumps(rows)
    for secret in (code, *tokens.values(), PASSWORD, "wrong wrong wrong", client.client_secret):
        if isinstance(secret, str) and len(secret) > 16:
            assert secret not in said or secret == tokens["scope"]


def test_reuse_is_told_with_whose_it_was(
    browser: Browser, client: RelyingParty, user: User, run: Any, clock: Any
) -> None:
    code = browser.approve(client).code
    client.exchange(code)
    other = client.exchange(browser.approve(client).code).get_json()["refresh_token"]
    client.refresh(other)
    clock.move(minutes=1)
    client.refresh(other)
    client.exchange(code)
    for name in ("refresh_token_reused", "code_reused"):
        (row,) = run("audit", "list", "--event", name)
        assert (row["user"], row["client"]) == (str(user.id), client.client_id)


def test_operators_are_named(app: Flask, run: Any, tmp_path: Path) -> None:
    given = ["--email", "erin@example.com", "--name", "Erin", "--password-stdin"]
    user = run("user", "create", *given, input=PASSWORD)
    redirect = ["--redirect-uri", "https://books.example/callback"]
    client = run("client", "create", "--name", "Books", *redirect)["client_id"]
    run("client", "update", client, "--name", "More books", "--require-pkce")
    for word in ("rotate-secret", "disable", "enable"):
        run("client", word, client)
    run("user", "update", user["id"], "--add-group", "staff")
    run("user", "set-password", user["id"], "--password-stdin", input=PASSWORD)
    for word in ("disable", "enable"):
        run("user", word, user["id"])
    run("user", "delete", user["id"], "--yes")
    run("client", "delete", client, "--yes")
    run("key", "rotate", "--force")
    expected = {
        "user_created", "user_changed", "password_set", "user_disabled", "user_enabled",
        "user_deleted", "client_created", "client_changed", "client_secret_rotated",
        "client_disabled", "client_enabled", "client_deleted", "key_rotated",
    }  # fmt: skip
    rows = run("audit", "list")
    assert {row["event"] for row in rows} == expected
    assert {row["fields"]["operator"] for row in rows} == {audit.system_user()}
    (changed,) = run("audit", "list", "--event", "client_changed")
    assert changed["fields"]["what"] == "client_name require_pkce"
    # Anyone who was deleted is still found, by id.
    assert "user_deleted" in events(run, "--user", user["id"])


def test_operators_are_named_by_all_other_commands(app: Flask, run: Any, tmp_path: Path) -> None:
    run("group", "create", "staff")
    run("group", "rename", "staff", "crew")
    token = run("api-token", "create", "--name", "Entra", "--scope", "scim:read")["id"]
    run("api-token", "revoke", token, "--yes")
    webhook = run("webhook", "create", "--url", "https://x.example/", "--event", "signed_in")["id"]
    run("webhook", "update", webhook, "--add-event", "user_deleted")
    for word, *more in (("disable",), ("enable",), ("delete", "--yes")):
        run("webhook", word, webhook, *more)
    run("user", "invite", "--email", "erin@example.com", "--name", "Erin", "--group", "crew")
    for word in ("reset-factors", "enrolment-link"):
        run("user", word, "erin@example.com")
    run("group", "delete", "crew", "--yes")
    keys = {key["state"]: key["kid"] for key in run("key", "list")}
    run("key", "retire", keys["next"])
    people = tmp_path / "people.csv"
    people.write_text("email,name\nben@example.com,Ben\n")
    run("user", "import", "csv", str(people))
    rows = run("audit", "list")
    assert {row["event"] for row in rows} == {
        "group_created", "group_changed", "group_deleted", "api_token_created",
        "api_token_revoked", "webhook_created", "webhook_changed", "webhook_disabled",
        "webhook_enabled", "webhook_deleted", "user_invited", "user_changed", "factors_reset",
        "enrolment_link_made", "key_retired", "user_imported",
    }  # fmt: skip
    assert {row["fields"]["operator"] for row in rows} == {audit.system_user()}
    tools = {row["event"]: row["fields"]["by"] for row in rows if "by" in row["fields"]}
    assert tools == {"user_imported": "import"}
    assert run("group", "list") == []


def test_a_declaration_is_told_line_by_line(app: Flask, run: Any, tmp_path: Path) -> None:
    path = tmp_path / "declaration.toml"
    path.write_text('format = 1\n[[users]]\nemail = "erin@example.com"\nname = "Erin"\n')
    run("apply", str(path), "--plan")
    assert events(run) == []
    run("apply", str(path))
    path.write_text('format = 1\n[[users]]\nemail = "erin@example.com"\nname = "Eve"\n')
    run("apply", str(path))
    path.write_text('format = 1\n[[users]]\nemail = "dana@example.com"\nname = "Dana"\n')
    run("apply", str(path), "--prune", "--yes")
    rows = [row for row in reversed(run("audit", "list")) if row["fields"].get("by") == "apply"]
    assert [row["event"] for row in rows[:2]] == ["user_created", "user_changed"]
    assert {row["event"] for row in rows[2:]} == {"user_created", "user_deleted"}
    assert rows[1]["fields"]["what"] == "name"
    assert rows[1]["fields"]["changes"] == {"name": {"before": "Erin", "after": "Eve"}}
    assert all(row["user"] for row in rows)


def test_a_command_that_fails_leaves_no_event(app: Flask, user: User, run: Any) -> None:
    given = ["user", "create", "--email", user.email, "--name", "x", "--password-stdin"]
    assert app.test_cli_runner().invoke(args=given, input=PASSWORD).exit_code == 1
    assert events(run) == []


def test_filters(app: Flask, user: User, client: RelyingParty, run: Any, clock: Any) -> None:
    Browser(app).approve(client)
    clock.move(days=2)
    Browser(app).sign_in("dana@example.com", "wrong wrong wrong")
    Browser(app).sign_in("nobody@example.com", "wrong wrong wrong")
    assert events(run, "--user", user.email, "--since", "1d") == ["sign_in_failed"]
    assert events(run, "--user", str(user.id), "--until", "1d")[-1] == "code_issued"
    assert set(events(run, "--client", client.client_id)) == {"consent_given", "code_issued"}
    both = events(run, "--event", "signed_in", "--event", "code_issued")
    assert both == ["signed_in", "code_issued"]
    assert len(run("audit", "list", "--limit", "2")) == 2
    assert events(run, "--since", "2026-11-22") == ["sign_in_failed"] * 2
    for wrong in ("yesterday", "2026-13-01", "99999999d"):
        arguments = ["audit", "list", "--since", wrong]
        assert app.test_cli_runner().invoke(args=arguments).exit_code == 2
    table = app.test_cli_runner().invoke(args=["audit", "list"]).stdout
    assert table.count("sign_in_failed") == 2


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path, workers=1).running() as running:
        yield running


def test_what_is_in_the_buffer_outlives_the_process(server: Server, tmp_path: Path) -> None:
    form = {"grant_type": "authorization_code", "client_id": "nobody", "client_secret": "wrong"}
    for _ in range(5):
        assert requests.post(f"{server.base_url}/oauth2/token", data=form, timeout=10).ok is False
    server.stop()
    with closing(sqlite3.connect(tmp_path / "sso.db")) as database:
        found = database.execute("SELECT name, address, number FROM audit_events").fetchall()
    assert found == [("client_authentication_failed", "127.0.0.1", None)] * 5
    counts = json.loads(server.flask("worker", "--once", "--json"))
    assert counts["seal audit events"] == 5
    assert json.loads(server.flask("audit", "verify", "--json"))["events"] == 5
    server.start()
