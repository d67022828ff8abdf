"""Every parameter of every endpoint, sent wrong: no 500, no unproven redirect, nothing written."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, quote_plus, unquote_to_bytes, urlsplit

import pytest
from flask import Flask
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select
from werkzeug.test import TestResponse

from sso.extensions import db
from sso.flow.request import PARAMETERS, REPEATABLE
from sso.models import AuthorizationCode, Client, Consent, Grant, Token, User
from sso.oauth.authlib_request import TOKEN_FIELDS, TOKEN_HINT_FIELDS
from sso.oauth.end_session import PARAMETERS as END_SESSION_PARAMETERS
from sso.ratelimit.storage import LimitStorage
from tests.support.actors import BASE, ISSUER, ORIGIN, Browser, RelyingParty
from tests.support.applications import Applications
from tests.support.factories import make_client, make_user
from tests.support.fixtures import Rows, fresh_database

BAD = {
    "empty": b"",
    "10 KB": b"a" * 10_240,
    "NUL": b"a\0b",
    "invalid UTF-8": b"\xff\xfe\xc3",
    "quotes and brackets": b"\"'><script>alert(1)</script>",
    "line ends": b"a\r\nSet-Cookie: x=1",
    "another alphabet": "Ж漢字\u202e".encode(),
    "braces": b"{{7*7}}{%x%}",
}
KINDS = pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
RELAXED = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def encode(pairs: list[tuple[str, bytes]]) -> str:
    return "&".join(f"{name}={quote_plus(value)}" for name, value in pairs)


def as_bytes(values: dict[str, str]) -> dict[str, bytes]:
    return {name: value.encode() for name, value in values.items()}


@pytest.fixture(scope="module")
def _app(
    template: Path | Rows, database_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Flask]:
    """One for all tests here, which write nothing."""
    instance = tmp_path_factory.mktemp("bad-input")
    applications = Applications(tmp_path_factory.mktemp("links"))
    with (
        fresh_database(template, database_folder, instance) as url,
        applications.of_a_test(url, instance) as make,
    ):
        yield make()


@pytest.fixture
def app(_app: Flask) -> Flask:
    _app.extensions["sso.limits"] = LimitStorage(None)
    return _app


@pytest.fixture(scope="module")
def user(_app: Flask) -> User:
    return make_user(_app)


@pytest.fixture(scope="module")
def client(_app: Flask) -> RelyingParty:
    return make_client(_app)


@pytest.fixture(autouse=True)
def _nothing_is_written(app: Flask, client: RelyingParty, user: User) -> Iterator[None]:
    tables = (User, Client, Consent, Grant, AuthorizationCode, Token)
    counts = [select(func.count()).select_from(table).scalar_subquery() for table in tables]

    def rows() -> list[int]:
        with app.app_context():
            return list(db.session.execute(select(*counts)).one())

    before = rows()
    yield
    assert rows() == before


def check(answer: TestResponse, client: RelyingParty) -> None:
    """What every answer to every input keeps to."""
    assert answer.status_code < 500, answer.text
    assert "<script>alert" not in answer.text
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "x=1" not in answer.headers.get("Set-Cookie", "")
    location = answer.headers.get("Location")
    if location:
        here = not urlsplit(location).netloc or location.startswith(ORIGIN + "/")
        assert here or location.startswith(client.redirect_uri + "?")


def authorize(app: Flask, pairs: list[tuple[str, bytes]], method: str = "GET") -> TestResponse:
    http = app.test_client()
    if method == "GET":
        return http.get(f"{BASE}/oauth2/authorize", query_string=encode(pairs), base_url=ORIGIN)
    return http.post(
        f"{BASE}/oauth2/authorize",
        data=encode(pairs),
        content_type="application/x-www-form-urlencoded",
        base_url=ORIGIN,
    )


@KINDS
@pytest.mark.parametrize("name", PARAMETERS)
def test_authorize(app: Flask, client: RelyingParty, name: str, bad: bytes) -> None:
    values = {**as_bytes(client.parameters()), name: bad}
    for method in ("GET", "POST"):
        answer = authorize(app, list(values.items()), method)
        check(answer, client)
    answer = authorize(app, list(values.items()))
    location = answer.headers.get("Location", "")
    if name in ("client_id", "redirect_uri"):
        assert answer.status_code == 400
    elif location.startswith(client.redirect_uri):
        assert_state(location, values["state"])
        assert dict(parse_qsl(urlsplit(location).query))["iss"] == ISSUER


def assert_state(location: str, state: bytes) -> None:
    """`state` comes back byte for byte, and not at all when none was sent."""
    found = [part[6:] for part in urlsplit(location).query.split("&") if part.startswith("state=")]
    assert [unquote_to_bytes(one) for one in found] == ([state] if state else [])


@pytest.mark.parametrize("name", [name for name in PARAMETERS if name not in REPEATABLE])
def test_authorize_repeated(app: Flask, client: RelyingParty, name: str) -> None:
    """RFC 6749 §3.1: parameters must not be included more than once."""
    values = as_bytes(client.parameters())
    pairs = [*values.items(), (name, values.get(name, b"x")), (name, b"y")]
    answer = authorize(app, pairs)
    assert answer.status_code == 400
    assert "Location" not in answer.headers
    assert name in answer.text


@pytest.mark.parametrize("name", ["client_id", "redirect_uri", "response_type", "state"])
def test_authorize_missing(app: Flask, client: RelyingParty, name: str) -> None:
    values = as_bytes(client.parameters())
    del values[name]
    answer = authorize(app, list(values.items()))
    check(answer, client)
    if name in ("client_id", "redirect_uri"):
        assert answer.status_code == 400
    else:
        assert "error=invalid_request" in answer.headers["Location"]


@KINDS
@pytest.mark.parametrize("path", ["/sign-in", "/consent", "/oauth2/authorize"])
def test_resume(app: Flask, client: RelyingParty, path: str, bad: bytes) -> None:
    for method in ("GET", "POST"):
        answer = app.test_client().open(
            f"{BASE}{path}", method=method, query_string=encode([("resume", bad)]), base_url=ORIGIN
        )
        check(answer, client)


@KINDS
@pytest.mark.parametrize("grant_type", ["authorization_code", "refresh_token"])
@pytest.mark.parametrize("name", TOKEN_FIELDS)
def test_token(client: RelyingParty, grant_type: str, name: str, bad: bytes) -> None:
    form = {
        "grant_type": grant_type.encode(),
        "code": b"c",
        "refresh_token": b"r",
        "redirect_uri": client.redirect_uri.encode(),
        **as_bytes(client.credentials()),
        name: bad,
    }
    answer = post(client, "/oauth2/token", list(form.items()))
    check(answer, client)
    assert answer.status_code in (400, 401)
    assert {"error", "error_description"} == set(answer.get_json())
    assert answer.headers["Cache-Control"] == "no-store"


@KINDS
@pytest.mark.parametrize("path", ["/oauth2/revoke", "/oauth2/introspect"])
@pytest.mark.parametrize("name", TOKEN_HINT_FIELDS)
def test_revoke_and_introspect(client: RelyingParty, path: str, name: str, bad: bytes) -> None:
    form = {"token": b"t", **as_bytes(client.credentials()), name: bad}
    answer = post(client, path, list(form.items()))
    check(answer, client)
    if name == "token_type_hint" and bad.isalnum():
        assert answer.status_code in (200, 400)


@pytest.mark.parametrize("path", ["/oauth2/token", "/oauth2/revoke", "/oauth2/introspect"])
@pytest.mark.parametrize("name", ["client_id", "client_secret", "grant_type", "token"])
def test_repeated_fields(client: RelyingParty, path: str, name: str) -> None:
    """RFC 6749 §3.2: parameters must not be included more than once."""
    if (name == "token") == (path == "/oauth2/token") or (name == "grant_type") != (
        path == "/oauth2/token"
    ):
        name = "client_id"
    form = [("token", b"t"), ("grant_type", b"authorization_code"), (name, b"x"), (name, b"y")]
    answer = post(client, path, form)
    assert answer.status_code == 400
    assert answer.get_json()["error"] == "invalid_request"


def post(client: RelyingParty, path: str, pairs: list[tuple[str, bytes]]) -> TestResponse:
    return client.post(path, encode(pairs), content_type="application/x-www-form-urlencoded")


@KINDS
def test_userinfo(client: RelyingParty, bad: bytes) -> None:
    answer = post(client, "/oauth2/userinfo", [("access_token", bad)])
    check(answer, client)
    assert answer.status_code == 401
    header = b"Bearer x" + bad.replace(b"\r\n", b"").replace(b"\0", b"")
    answer = client.post(
        "/oauth2/userinfo", {}, headers={"Authorization": header.decode("latin-1")}
    )
    check(answer, client)
    assert answer.status_code == 401


@KINDS
@pytest.mark.parametrize("name", END_SESSION_PARAMETERS)
def test_end_session(app: Flask, client: RelyingParty, name: str, bad: bytes) -> None:
    answer = app.test_client().get(
        f"{BASE}/oauth2/end-session", query_string=encode([(name, bad)]), base_url=ORIGIN
    )
    check(answer, client)
    assert answer.status_code in (200, 400)


@KINDS
@pytest.mark.parametrize("name", ["email", "password", "csrf_token"])
def test_sign_in_form(app: Flask, client: RelyingParty, name: str, bad: bytes) -> None:
    from tests.support.actors import Browser

    browser = Browser(app)
    page = browser.open(f"{ORIGIN}{BASE}/sign-in")
    form = {"email": b"dana@example.com", "password": b"wrong", **as_bytes(page.fields)}
    answer = browser.http.post(
        f"{BASE}/sign-in",
        data=encode(list({**form, name: bad}.items())),
        content_type="application/x-www-form-urlencoded",
        base_url=ORIGIN,
    )
    check(answer, client)


HEADERS = [
    "Basic", "Basic !!!", "Basic /w==", "Basic OnM=", "Basic YQ==", "Basic YTolMDA=",
    "Basic JUZGOng=", "Bearer", "Bearer a b", "Digest x", "\x80", "Basic " + "A" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("header", HEADERS)
def test_authorization_headers(client: RelyingParty, header: str) -> None:
    form = {"grant_type": "authorization_code", "code": "x"}
    for path in ("/oauth2/token", "/oauth2/revoke", "/oauth2/introspect", "/oauth2/userinfo"):
        answer = client.post(path, form, headers={"Authorization": header})
        check(answer, client)
        assert answer.status_code == 401


@pytest.mark.slow
@RELAXED
@given(st.dictionaries(st.sampled_from(PARAMETERS), st.binary(max_size=60), max_size=6))
def test_any_bytes_at_authorize(app: Flask, client: RelyingParty, wrong: dict[str, bytes]) -> None:
    values = {**as_bytes(client.parameters()), **wrong}
    answer = authorize(app, list(values.items()))
    check(answer, client)
    location = answer.headers.get("Location", "")
    if location.startswith(client.redirect_uri):
        assert_state(location, values["state"])


@pytest.mark.slow
@RELAXED
@given(st.binary(max_size=200))
def test_any_query_and_any_body(app: Flask, client: RelyingParty, raw: bytes) -> None:
    http = app.test_client()
    query = "".join(chr(byte) for byte in raw)
    check(http.get(f"{BASE}/oauth2/authorize", query_string=query, base_url=ORIGIN), client)
    form = "application/x-www-form-urlencoded"
    for path in ("/oauth2/token", "/oauth2/revoke", "/oauth2/introspect", "/oauth2/authorize"):
        check(client.post(path, raw, content_type=form), client)


@RELAXED
@given(
    st.dictionaries(st.sampled_from(TOKEN_FIELDS), st.binary(max_size=60), max_size=6),
    st.sampled_from([b"authorization_code", b"refresh_token"]),
)
def test_any_bytes_at_token(
    client: RelyingParty, wrong: dict[str, bytes], grant_type: bytes
) -> None:
    form = {"grant_type": grant_type, **as_bytes(client.credentials()), **wrong}
    answer = post(client, "/oauth2/token", list(form.items()))
    check(answer, client)
    assert answer.status_code in (400, 401)


@RELAXED
@given(st.dictionaries(st.sampled_from(TOKEN_HINT_FIELDS), st.binary(max_size=60), max_size=4))
def test_any_bytes_at_revoke_and_introspect(client: RelyingParty, wrong: dict[str, bytes]) -> None:
    form = {"token": b"x", **as_bytes(client.credentials()), **wrong}
    for path in ("/oauth2/revoke", "/oauth2/introspect"):
        answer = post(client, path, list(form.items()))
        check(answer, client)
        assert answer.headers["Cache-Control"] == "no-store"


def test_no_parameter_of_a_backend_is_in_the_url(app: Flask, client: RelyingParty) -> None:
    """Secrets in URLs are in logs (RFC 6749 §2.3.1). The same request without one is taken."""
    token = {"token": "x", **client.credentials()}
    code = {"grant_type": "authorization_code", "code": "x", "redirect_uri": client.redirect_uri}
    for path, form, status in (
        ("introspect", token, 200),
        ("revoke", token, 200),
        ("par", {**client.parameters(), **client.credentials()}, 201),
        ("token", {**code, **client.credentials()}, 400),
        ("device_authorization", client.credentials(), 400),
    ):
        right = client.post(f"/oauth2/{path}", form)
        assert right.status_code == status
        assert "in its URL" not in right.text
        for query in (f"client_secret={client.client_secret}", "token=x", "x"):
            answer = client.post(f"/oauth2/{path}?{query}", form)
            assert (answer.status_code, answer.get_json()["error"]) == (400, "invalid_request")
            assert "in its URL" in answer.get_json()["error_description"], path


@pytest.mark.slow
@RELAXED
@given(st.dictionaries(st.sampled_from(END_SESSION_PARAMETERS), st.binary(max_size=60), max_size=4))
def test_any_bytes_at_end_session(
    app: Flask, client: RelyingParty, wrong: dict[str, bytes]
) -> None:
    for method in ("GET", "POST"):
        answer = app.test_client().open(
            f"{BASE}/oauth2/end-session",
            method=method,
            query_string=encode(list(wrong.items())),
            content_type="application/x-www-form-urlencoded",
            base_url=ORIGIN,
        )
        check(answer, client)


@pytest.mark.slow
@RELAXED
@given(st.binary(max_size=80), st.sampled_from(["sign-in", "consent", "sign-out", "account"]))
def test_any_bytes_at_pages(app: Flask, client: RelyingParty, raw: bytes, page: str) -> None:
    http = app.test_client()
    pairs = [("resume", raw), ("email", raw), ("password", raw), ("decision", raw)]
    for method in ("GET", "POST"):
        answer = http.open(
            f"{BASE}/{page}",
            method=method,
            query_string=encode(pairs[:1]),
            data=encode(pairs) if method == "POST" else None,
            content_type="application/x-www-form-urlencoded",
            base_url=ORIGIN,
        )
        check(answer, client)


@pytest.mark.parametrize(
    ("path", "status"),
    [("/nowhere", 404), (f"{BASE}/account/nowhere", 404), (f"{BASE}/account/activity", 405)],
)
def test_pages_about_faults_are_translated(app: Flask, path: str, status: int) -> None:
    method = "POST" if status == 405 else "GET"
    answer = app.test_client().open(path, method=method, headers={"Accept-Language": "de"})
    assert answer.status_code in (status, 400)
    assert answer.headers["Content-Language"] == "de"
    for english in ("Not Found", "not found", "Method", "not allowed", "URL"):
        assert english not in answer.text


def test_what_the_application_did_wrong_is_for_its_makers(app: Flask) -> None:
    german = {"Accept-Language": "de"}
    answer = app.test_client().get(f"{BASE}/oauth2/authorize", headers=german)
    assert "Die Anwendung hat eine Anfrage gesendet" in answer.text
    assert '<dd lang="en" dir="ltr">The parameter' in answer.text


@pytest.mark.parametrize("path", ["/", f"{BASE}/", BASE])
def test_the_address_alone_leads_to_the_account(app: Flask, path: str) -> None:
    answer = app.test_client().get(path, follow_redirects=True)
    assert answer.request.path == f"{BASE}/sign-in"


def test_the_log_tells_an_unknown_path_without_what_may_be_a_secret(
    browser: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    assert browser.open(f"{ORIGIN}/nowhere/{'s' * 60}/there%3Ftoken=t0ken").status == 404
    (line,) = [one for one in caplog.messages if one.startswith("error page")]
    assert "404 /nowhere/…/there?…" in line
    assert browser.open(f"{ORIGIN}/{'a/' * 3000}").status == 404
    assert len(caplog.messages[-1]) < 1000
    assert all(len(one) < 1000 for one in caplog.messages)
