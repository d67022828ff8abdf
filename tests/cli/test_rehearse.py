"""`flask migrate rehearse`: the log of another server against the registrations here."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from flask import Flask
from sqlalchemy import event

from sso.audit import rows
from sso.extensions import db
from sso.oauth import rehearsal
from sso.store import refusals
from tests.support.actors import ISSUER, Browser, RelyingParty
from tests.support.each import each
from tests.support.factories import make_client
from tests.support.old_servers import KEYCLOAK, STAFF, TOGETHER, WIKI, give_issuer

AUTH = "/realms/main/protocol/openid-connect/auth"
LOGOUT = "/realms/main/protocol/openid-connect/logout"
OUT = "https://books.example/out"


def line(target: str, method: str = "GET", status: int = 302) -> str:
    return f'192.0.2.7 - - [29/Nov/2026:20:00:00 +0000] "{method} {target} HTTP/1.1" {status} 0'


@pytest.fixture
def app(make_app: Callable[..., Flask]) -> Flask:
    return make_app(SSO_ISSUER_ALIASES=TOGETHER)


@pytest.fixture
def client(app: Flask) -> RelyingParty:
    client = make_client(app, post_logout_redirect_uris=[OUT])
    give_issuer(app, client, KEYCLOAK)
    return client


class Rehearse:
    def __init__(self, app: Flask, folder: Path) -> None:
        self.app, self.file = app, folder / "access.log"

    def run(self, *lines: str, code: int = 1, more: tuple[str, ...] = ()) -> str:
        self.file.write_text("\n".join(lines) + "\n", encoding="utf-8", errors="surrogateescape")
        arguments = ["migrate", "rehearse", str(self.file), *more]
        result = self.app.test_cli_runner().invoke(args=arguments)
        assert result.exit_code == code, result.output
        assert not result.exception or isinstance(result.exception, SystemExit)
        return result.stdout

    def __call__(self, *lines: str, code: int = 1) -> Any:
        return json.loads(self.run(*lines, code=code, more=("--json",)))


@pytest.fixture
def rehearse(app: Flask, tmp_path: Path) -> Rehearse:
    return Rehearse(app, tmp_path)


def authorization(client: RelyingParty, path: str = AUTH, **more: Any) -> str:
    return line(f"{path}?{urlencode(client.parameters(**more))}")


def test_requests_that_would_be_answered_alike(
    app: Flask, client: RelyingParty, rehearse: Rehearse
) -> None:
    out = urlencode({"client_id": client.client_id, "post_logout_redirect_uri": OUT})
    report = rehearse(
        authorization(client, state="a"),
        authorization(client, state="b", nonce="c", prompt="login", response_mode="form_post"),
        line(f"{LOGOUT}?{out}"),
        line("/realms/main/.well-known/openid-configuration", status=200),
        line("/realms/main/protocol/openid-connect/certs", status=200),
        line("/realms/main/protocol/openid-connect/userinfo", status=200),
        line("/realms/main/protocol/openid-connect/token", "POST", 200),
        line(AUTH, "POST"),
        line("/realms/main/login-actions/authenticate?code=x", "POST"),
        line("/resources/main/style.css", status=200),
        line("/", status=200),
        code=0,
    )
    assert (report["lines"], report["requests"], report["not_judged"]) == (11, 8, 2)
    assert (report["different"], report["addresses"]) == (0, [])
    [application] = report["applications"]
    assert application == {
        "client_id": client.client_id, "name": "Books", "requests": 3, "different": 0,
        "differences": [],
    }  # fmt: skip


@each(
    "more, code, words",
    [
        ({"redirect_uri": "https://books.example/other"}, "invalid_request", "any registered one"),
        ({"redirect_uri": None}, "missing_parameter", "redirect_uri"),
        ({"response_type": "code id_token"}, "unsupported_response_type", "response_type"),
        ({"response_type": None}, "missing_response_type", "response_type"),
        ({"response_mode": "fragment"}, "invalid_request", "response_mode"),
        ({"scope": "roles"}, "invalid_scope", "scopes"),
        ({"scope": "openid roles web-origins"}, "scope_dropped", "without the scopes roles web-or"),
        ({"prompt": "create"}, "invalid_prompt", "prompt"),
        ({"max_age": "x"}, "invalid_max_age", "max_age"),
        ({"state": None}, "missing_state", "state"),
        ({"code_challenge": "a" * 43, "code_challenge_method": "plain"},
         "invalid_code_challenge_method", "S256"),
        ({"resource": "https://api.example"}, "unknown_resource", "resource"),
        ({"nonce": "\x00"}, "invalid_request", "nonce"),
        ({"redirect_uri": "https://x.example/\x00"}, "parameters", "redirect_uri"),
        ({"nonce": ["a", "b"]}, "parameters", "repeated"),
    ],
)  # fmt: skip
def test_why_an_authorization_request_differs(
    client: RelyingParty, rehearse: Rehearse, more: dict[str, Any], code: str, words: str
) -> None:
    query = urlencode(client.parameters(**more), doseq=True)
    report = rehearse(line(AUTH), line(f"{AUTH}?{query}"), line(f"{AUTH}?{query}"))
    listed = [*report["addresses"], *(d for a in report["applications"] for d in a["differences"])]
    [difference] = listed
    assert (difference["code"], difference["requests"]) == (code, 2)
    assert difference["first_line"] == 2
    assert words in difference["reason"]


def test_what_the_browser_would_really_get(
    app: Flask, client: RelyingParty, rehearse: Rehearse
) -> None:
    """The reason is the one that the authorization endpoint gives."""
    for more in ({"response_mode": "fragment"}, {"prompt": "create"}, {"scope": "x"}):
        page = Browser(app).authorize(client, **more)
        [application] = rehearse(authorization(client, **more))["applications"]
        reason = application["differences"][0]["reason"]
        assert reason == page.parameters["error_description"]


def test_clients_that_are_unknown_disabled_or_of_another_issuer(
    app: Flask, client: RelyingParty, rehearse: Rehearse
) -> None:
    unknown = RelyingParty(app, "grafana", "", "https://grafana.example/cb")
    disabled, staff, new = (make_client(app, name=name) for name in ("Off", "Staff", "New"))
    app.test_cli_runner().invoke(args=["client", "disable", disabled.client_id])
    give_issuer(app, staff, STAFF)
    report = rehearse(*map(authorization, (unknown, disabled, staff, new, client)))
    found = {a["client_id"]: a for a in report["applications"]}
    assert found[client.client_id]["different"] == 0
    assert found["grafana"]["name"] is None
    for party in (unknown, disabled):
        [difference] = found[party.client_id]["differences"]
        assert difference["code"] == "invalid_client"
        assert difference["redirect_uri"] == party.redirect_uri
    for party, issuer in ((staff, STAFF), (new, ISSUER)):
        [difference] = found[party.client_id]["differences"]
        assert difference["code"] == "wrong_issuer"
        assert issuer in difference["reason"]


def test_endpoints_that_applications_of_authentik_share(app: Flask, rehearse: Rehearse) -> None:
    wiki, new = make_client(app), make_client(app)
    give_issuer(app, wiki, WIKI)
    path = "/application/o/authorize/"
    report = rehearse(authorization(wiki, path), authorization(new, path))
    assert [a["different"] for a in report["applications"]] == [1, 0]
    assert report["applications"][0]["client_id"] == new.client_id


@each(
    "query, code",
    [
        ({"post_logout_redirect_uri": "https://evil.example/"}, "unregistered_post_logout_uri"),
        ({"redirect_uri": OUT}, "unsupported_parameter"),
        ({"client_id": "grafana"}, "invalid_request"),
        ({"client_id": "", "post_logout_redirect_uri": OUT}, "invalid_request"),
    ],
)
def test_why_a_sign_out_differs(
    client: RelyingParty, rehearse: Rehearse, query: dict[str, str], code: str
) -> None:
    values = {"client_id": client.client_id, **query}
    [application] = rehearse(line(f"{LOGOUT}?{urlencode(values)}"))["applications"]
    assert application["differences"][0]["code"] == code


def test_a_sign_out_with_the_other_servers_hint(client: RelyingParty, rehearse: Rehearse) -> None:
    from tests.support.signing import unsigned

    hint = unsigned({"alg": "RS256"}, {"aud": client.client_id}, b"x")
    query = urlencode({"id_token_hint": hint, "post_logout_redirect_uri": OUT})
    assert rehearse(line(f"{LOGOUT}?{query}"), code=0)["applications"][0]["requests"] == 1


def test_addresses_that_are_not_there(rehearse: Rehearse) -> None:
    report = rehearse(
        line("/realms/other/protocol/openid-connect/auth?client_id=a"),
        line("/realms/main/protocol/openid-connect/login-status-iframe.html", status=200),
        line("/realms/main/broker/google/endpoint?code=x"),
        line("/admin/realms/main/users/7f5f8a4e-7f1f-4f0c-9d5c-1f2e3d4c5b6a", status=200),
        line("/admin/realms/main/users/8f5f8a4e-7f1f-4f0c-9d5c-1f2e3d4c5b6b", status=200),
        line("/realms/main/protocol/openid-connect/token", "GET", 200),
        line("/realms/main/protocol/openid-connect/token", "OPTIONS", 200),
    )
    listed = {d["address"]: (d["code"], d["requests"]) for d in report["addresses"]}
    assert listed == {
        "/realms/other/protocol/openid-connect/auth": ("no_address", 1),
        "/realms/main/protocol/openid-connect/login-status-iframe.html": ("no_address", 1),
        "/realms/main/broker/google/endpoint": ("no_address", 1),
        "/admin/realms/main/users/…": ("no_address", 2),
        "/realms/main/protocol/openid-connect/token": ("method", 1),
    }


def test_what_was_refused_before_is_no_difference(rehearse: Rehearse) -> None:
    report = rehearse(line(f"{AUTH}?client_id=nobody", status=400), code=0)
    assert (report["refused_before"], report["different"]) == (1, 0)


def test_nothing_is_written_and_few_statements_are_run(
    app: Flask, client: RelyingParty, rehearse: Rehearse
) -> None:
    statements: list[str] = []
    with app.app_context():
        before, engine = rows.newest(limit=5), db.engine
    event.listen(engine, "before_cursor_execute", lambda *a: statements.append(a[2]))
    rehearse(*(authorization(client, state=str(n), scope="openid x") for n in range(200)))
    refusals.flush(app)
    assert not [text for text in statements if not text.lstrip().upper().startswith("SELECT")]
    assert len(statements) < 10
    with app.app_context():
        assert rows.newest(limit=5) == before


def test_a_hostile_log_takes_bounded_memory(
    app: Flask, client: RelyingParty, rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rehearsal, "MOST_GROUPS", 20)
    monkeypatch.setattr(rehearsal, "MOST_APPLICATIONS", 10)
    monkeypatch.setattr(rehearsal, "_MOST_ANSWERS", 15)
    hostile = [line(f"{AUTH}?client_id=c{n}&redirect_uri=https://x{n}.example") for n in range(60)]
    long_path = line(f"/realms/r{'z' * 60_000}/protocol/x")
    hostile += [line(f"{AUTH}?client_id={'y' * 60_000}"), long_path]
    hostile += [
        line(f"{AUTH}?{'a=b&' * 200}"),
        line(f"{AUTH}?client_id=%00%ff"),
        "\x1b[31m",
        "{" * 999,
    ]
    report = rehearse(*hostile)
    assert len(report["applications"]) == 10
    assert report["different"] == 64
    listed = [d for a in report["applications"] for d in a["differences"]]
    assert len(listed) + len(report["addresses"]) <= 20
    assert report["different_not_listed"] == 44
    assert report["unreadable_lines"] == 2
    assert len(json.dumps(report)) < 50_000


def test_the_text_for_people(client: RelyingParty, rehearse: Rehearse) -> None:
    text = rehearse.run(
        authorization(client, redirect_uri="https://books.example/\x1b]0;x\x07"),
        authorization(client),
        line("/realms/main/broker/google/endpoint"),
        "no request",
    )
    assert "\x1b" not in text
    assert f"Books ({client.client_id}): 2 requests, 1 would be answered otherwise" in text
    assert "first in line 3" in text
    assert "4 lines, 3 requests of applications: 2 would be answered otherwise" in text
    assert "1 lines without a request" in text


def test_without_the_setting(make_app: Callable[..., Flask], tmp_path: Path) -> None:
    (tmp_path / "log").write_text("")
    arguments = ["migrate", "rehearse", str(tmp_path / "log")]
    result = make_app().test_cli_runner().invoke(args=arguments)
    assert result.exit_code == 1
    assert "SSO_ISSUER_ALIASES is not set" in result.output
    result = make_app().test_cli_runner().invoke(args=["migrate", "rehearse", "/nowhere"])
    assert result.exit_code == 2
