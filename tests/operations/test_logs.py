"""Structured logs of gunicorn with two workers: a JSON object a line, and no secret in any."""

import json
import logging
import secrets
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
import requests

from sso.checkup.sign_in import Browser as DoctorBrowser
from sso.observability.logs import TEXT, JsonFormatter, TextFormatter
from sso.observability.redaction import redact
from tests.operations.conftest import fresh_database
from tests.support.processes import Server

CALLBACK = "https://books.example/callback"
PASSWORD = "a password that must not be logged"


@pytest.fixture(scope="module")
def logging_server(cluster: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    environ: dict[str, Any] = {
        "SSO_DATABASE_URL": fresh_database(cluster),
        "SSO_LOG_FORMAT": "json",
    }
    with Server(tmp_path_factory.mktemp("logging"), **environ).running() as server:
        yield server


def lines(server: Server) -> list[dict[str, Any]]:
    return [json.loads(line) for line in server.log.splitlines()]


def access_lines(server: Server, request_id: str) -> list[dict[str, Any]]:
    found = [line for line in lines(server) if line.get("request_id") == request_id]
    return [line for line in found if line["logger"] == "sso.access"]


def test_every_line_is_json(logging_server: Server) -> None:
    requests.get(f"{logging_server.base_url}/account", timeout=10)
    found = lines(logging_server)
    loggers = {line["logger"] for line in found}
    assert {"gunicorn.error", "sso.access"} <= loggers
    assert "sso.metrics" not in loggers  # no port is set, so nobody listens on one
    assert all({"time", "level", "logger", "message"} <= set(line) for line in found)


def test_the_request_id_goes_in_and_out(logging_server: Server) -> None:
    request_id = f"trace-{secrets.token_hex(8)}"
    answer = requests.get(
        f"{logging_server.base_url}/oauth2/userinfo?x=y",
        headers={"X-Request-ID": request_id},
        timeout=10,
    )
    assert answer.headers["X-Request-ID"] == request_id
    (line,) = access_lines(logging_server, request_id)
    assert line["route"] == "/api/auth/oauth2/userinfo"
    assert (line["method"], line["status"], line["address"]) == ("GET", 401, "127.0.0.1")
    assert 0 < line["duration_ms"] < 60_000


def test_a_refused_request_says_why(logging_server: Server) -> None:
    answer = requests.get(
        f"{logging_server.base_url}/oauth2/userinfo",
        headers={"Authorization": "Bearer not-a-token"},
        timeout=10,
    )
    (line,) = access_lines(logging_server, answer.headers["X-Request-ID"])
    assert (line["status"], line["error"]) == (401, "invalid_token")
    assert line["description"] == answer.json()["error_description"]
    assert line["reason"] == "not a token of this server"
    answer = requests.get(f"{logging_server.base_url}/oauth2/tokens?code=x", timeout=10)
    (line,) = access_lines(logging_server, answer.headers["X-Request-ID"])
    assert (line["status"], line["path"]) == (404, "/api/auth/oauth2/tokens")


@pytest.mark.parametrize("given", ["short", "x" * 65, "a b c d e f g h", 'evil"},{"x":"'])
def test_another_id_is_not_believed(logging_server: Server, given: str) -> None:
    answer = requests.get(
        f"{logging_server.base_url}/oauth2/jwks", headers={"X-Request-ID": given}, timeout=10
    )
    made = answer.headers["X-Request-ID"]
    assert made != given
    assert len(access_lines(logging_server, made)) == 1


def test_those_who_watch_are_not_logged(logging_server: Server) -> None:
    for path in ("/healthz", "/readyz"):
        answer = requests.get(logging_server.origin + path, timeout=10)
        assert access_lines(logging_server, answer.headers["X-Request-ID"]) == []


def test_no_secret_is_logged(logging_server: Server) -> None:
    server, said = logging_server, {PASSWORD}
    server.flask(
        "user", "create", "--email", "dana@example.com", "--name", "Dana", "--password-stdin",
        stdin=PASSWORD,
    )  # fmt: skip
    made = json.loads(
        server.flask("client", "create", "--name", "B", "--redirect-uri", CALLBACK, "--json")
    )
    client = {name: made[name] for name in ("client_id", "client_secret")}
    visitor = DoctorBrowser(server.base_url, CALLBACK)
    query = {"response_type": "code", "redirect_uri": CALLBACK, "state": "a-private-state"}
    page = visitor.open(
        f"{server.base_url}/oauth2/authorize?{urlencode({**query, 'client_id': made['client_id']})}"
    )
    said |= {value for _, value in parse_qsl(urlsplit(page.url).query)} | {"a-private-state"}
    said |= {*page.fields["csrf_token"], made["client_secret"]}
    wrong = visitor.submit(page, {"email": "dana@example.com", "password": f"{PASSWORD}!"})
    page = visitor.submit(wrong, {"email": "dana@example.com", "password": PASSWORD})
    page = visitor.submit(page, {"decision": "allow"})
    code = dict(parse_qsl(urlsplit(page.url).query))["code"]
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": CALLBACK, **client}
    token = f"{server.base_url}/oauth2/token"
    given = requests.post(token, data=form, timeout=10).json()
    tokens = {given["access_token"], given["refresh_token"], given["id_token"]}
    for grant in (form, {"grant_type": "refresh_token", "refresh_token": given["refresh_token"]}):
        requests.post(token, data={**grant, **client}, timeout=10)
    for value in tokens:  # where secrets should not stand, and do
        requests.get(f"{server.base_url}/oauth2/userinfo?access_token={value}", timeout=10)
        requests.get(f"{server.base_url}/{value}", timeout=10)
    said |= {code, *tokens, *visitor.session.cookies.values()}
    assert len(said) >= 9
    log = server.log
    assert [secret for secret in said if secret in log] == []
    assert made["client_id"] in log  # the audit trail names who it was


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"found sso_rt_{'x' * 43} here", "found sso_rt_… here"),
        (f"token eyJhbGciOiJI.{'y' * 30}.{'z' * 40}", "token …"),
        (f"Authorization: Bearer {'q' * 30}", "Authorization: Bearer …"),
        ("postgresql+psycopg://sso:hunter2@db/sso", "postgresql+psycopg://sso:…@db/sso"),
        ("GET /consent?resume=abc.def HTTP/1.1", "GET /consent?… HTTP/1.1"),
        ('{"password": "hunter2", "user": "d"}', '{"password": "…", "user": "d"}'),
        ("client_secret=hunter2&x=1", "client_secret=…&x=1"),
        ("nothing here? or there", "nothing here? or there"),
        ('{"reason": "password_changed"}', '{"reason": "password_changed"}'),
    ],
)
def test_what_is_taken_out(text: str, kept: str) -> None:
    assert redact(text) == kept


def test_an_exception_keeps_its_secret() -> None:
    try:
        raise ValueError("password=hunter2")
    except ValueError as error:
        caught = (type(error), error, error.__traceback__)
    record = logging.LogRecord("sso.x", logging.ERROR, "x.py", 1, "a\nb %s", ("c",), caught)
    text = TextFormatter(TEXT).format(record)
    assert "hunter2" not in text
    assert "Traceback" in text
    assert "a\\nb c" in text.splitlines()[0]
    record.exc_text = None
    line = json.loads(JsonFormatter().format(record))
    assert "hunter2" not in line["exception"]
    assert line["message"] == "a\nb c"
