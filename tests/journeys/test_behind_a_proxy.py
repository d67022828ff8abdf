"""Behind a proxy that terminates TLS: the published address decides, not the request's headers."""

from collections.abc import Callable

import pytest
from flask import Flask, request

from sso.web import errors
from sso.web.proxies import FORGED as FORGED_BY_DOCTOR
from sso.web.proxies import PlainHttp
from tests.support.actors import RelyingParty
from tests.support.factories import PASSWORD, make_client, make_user

PUBLIC = "https://login.example.com/api/auth"


@pytest.fixture
def app(make_app: Callable[..., Flask]) -> Flask:
    return make_app(SSO_BASE_URL=PUBLIC, SSO_TRUSTED_PROXIES="1")


@pytest.mark.parametrize("forwarded", [True, False])
def test_the_flow(app: Flask, forwarded: bool) -> None:
    make_user(app)
    client: RelyingParty = make_client(app, first_party=True)
    headers = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "203.0.113.9"} if forwarded else {}
    http = app.test_client()
    base = "http://127.0.0.1:8000"
    answer = http.get(
        "/api/auth/oauth2/authorize",
        query_string=client.parameters(), headers=headers, base_url=base,
    )  # fmt: skip
    assert answer.status_code == 303, answer.text
    step = answer.headers["Location"]
    page = http.get(step, headers=headers, base_url=base)
    assert page.headers["Strict-Transport-Security"]
    cookie = page.headers["Set-Cookie"]
    assert cookie.startswith("__Host-sso=")
    for part in ("Secure", "HttpOnly", "Path=/", "SameSite=Lax"):
        assert part in [piece.strip() for piece in cookie.split(";")]
    assert "Domain" not in cookie
    # The browser is behind TLS; the test client is not, so the cookie is handed over here.
    value = cookie.split(";")[0]
    token = page.text.split('name="csrf_token"')[1].split('value="')[1].split('"')[0]
    form = {"email": "dana@example.com", "password": PASSWORD, "csrf_token": token}
    answer = app.test_client(use_cookies=False).post(
        step, data=form, headers={**headers, "Cookie": value}, base_url=base
    )
    assert answer.status_code == 303, answer.text
    headers_set = answer.headers.getlist("Set-Cookie")
    (value,) = [one.split(";")[0] for one in headers_set if one.startswith("__Host-sso=")]
    answer = app.test_client(use_cookies=False).get(
        answer.headers["Location"], headers={**headers, "Cookie": value}, base_url=base
    )
    assert "iss=https%3A%2F%2Flogin.example.com%2Fapi%2Fauth" in answer.headers["Location"]
    code = answer.headers["Location"].split("code=")[1].split("&")[0]
    assert client.exchange(code).status_code == 200


def test_forwarded_headers_count_only_when_a_proxy_is_trusted(
    make_app: Callable[..., Flask],
) -> None:
    for proxies, wanted in (("0", "127.0.0.1"), ("1", "203.0.113.9"), ("2", "198.51.100.7")):
        app = make_app(new=True, SSO_TRUSTED_PROXIES=proxies)
        app.add_url_rule("/whoami", view_func=lambda: request.remote_addr or "")
        seen = app.test_client().get(
            "/whoami", headers={"X-Forwarded-For": "198.51.100.7, 203.0.113.9"}
        )
        assert seen.text == wanted


# A client that forges everything, as it arrives behind one and behind two proxies that add to it.
FORGED = {"X-Forwarded-For": "6.6.6.6", "X-Forwarded-Proto": "ftp", "X-Forwarded-Prefix": "/evil"}
ADDED = (
    {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https", "X-Forwarded-Prefix": "/api"},
    {"X-Forwarded-For": "10.0.0.2", "X-Forwarded-Proto": "http", "X-Forwarded-Prefix": "/auth"},
)


@pytest.mark.parametrize(
    ("believed", "in_front", "wanted"),
    [
        (0, 1, ("127.0.0.1", "http", "/auth/whoami")),
        (1, 1, ("203.0.113.9", "https", "/api/auth/whoami")),
        (1, 2, ("10.0.0.2", "http", "/auth/whoami")),
        (2, 2, ("203.0.113.9", "https", "/api/auth/whoami")),
        (2, 1, ("6.6.6.6", "ftp", "/auth/whoami")),
    ],
)
def test_what_is_believed_of_proxies(
    make_app: Callable[..., Flask], believed: int, in_front: int, wanted: tuple[str, str, str]
) -> None:
    """What the outermost believed proxy saw; nothing of the client's own, if the number is right.

    The last case is the one against which the manual warns: a number too high lets clients forge.
    """
    app = make_app(new=True, SSO_TRUSTED_PROXIES=str(believed))

    def whoami() -> list[str | None]:
        return [request.remote_addr, request.scheme, request.path]

    for path in ("/auth/whoami", "/api/auth/whoami"):
        app.add_url_rule(path, path, whoami)
    headers = {
        name: ", ".join([value, *(added[name] for added in ADDED[:in_front])])
        for name, value in FORGED.items()
    }
    assert app.test_client().get("/auth/whoami", headers=headers).get_json() == list(wanted)


@pytest.mark.parametrize("prefix", ["/api/auth", "/api", "/api/auth/"])
@pytest.mark.parametrize("cut_off", [True, False])
def test_a_proxy_may_cut_off_the_prefix(
    make_app: Callable[..., Flask], prefix: str, cut_off: bool
) -> None:
    http = make_app(SSO_TRUSTED_PROXIES="1").test_client()
    path = "/api/auth/oauth2/jwks"
    asked = path.removeprefix(prefix.rstrip("/")) if cut_off else path
    assert http.get(asked, headers={"X-Forwarded-Prefix": prefix}).status_code == 200
    assert http.get("/healthz", headers={"X-Forwarded-Prefix": "/evil"}).status_code == 200
    page = http.get(asked.replace("jwks", "authorize"), headers={"X-Forwarded-Prefix": prefix})
    assert page.status_code == 400
    assert 'href="/api/auth/static/' in page.text


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == "sso.proxies"]


@pytest.mark.parametrize(
    ("trusted", "headers", "remedy"),
    [
        ("0", {}, "X-Forwarded-Proto $scheme;), and set SSO_TRUSTED_PROXIES"),
        ("1", {}, "X-Forwarded-Proto $scheme;);"),
        ("0", {"X-Forwarded-Proto": "https"}, "is there and not believed; set SSO_TRUSTED_PROXIES"),
        ("1", {"X-Forwarded-Proto": "http"}, "redirect http to https"),
    ],
)
def test_http_where_https_is_configured(
    make_app: Callable[..., Flask],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    trusted: str,
    headers: dict[str, str],
    remedy: str,
) -> None:
    monkeypatch.setattr(errors, "_plain_http", PlainHttp())
    app = make_app(SSO_BASE_URL=PUBLIC, SSO_TRUSTED_PROXIES=trusted)
    http = app.test_client(use_cookies=False)
    for _ in range(3):
        page = http.post("/api/auth/sign-in?resume=a%22b", headers=headers, data={"email": "x"})
        assert page.status_code == 400
        assert 'href="https://login.example.com/api/auth/sign-in?resume=a%22b"' in page.text
        assert "without https" in page.text
    (said,) = warnings_of(caplog)
    assert remedy in said


def test_a_cookie_that_is_missing_over_https(
    app: Flask, make_app: Callable[..., Flask], caplog: pytest.LogCaptureFixture
) -> None:
    """Then it is the browser that keeps it back; and so where plain http is configured."""
    for one, headers in ((app, {"X-Forwarded-Proto": "https"}), (make_app(), {})):
        http = one.test_client(use_cookies=False)
        page = http.post("/api/auth/sign-in", headers=headers, data={"email": "x"})
        assert "allow cookies" in page.text
        assert "without https" not in page.text
    assert warnings_of(caplog) == []


def test_a_proxy_that_nobody_told_of(
    make_app: Callable[..., Flask], caplog: pytest.LogCaptureFixture
) -> None:
    through = {"X-Forwarded-For": "203.0.113.9"}
    make_app(SSO_TRUSTED_PROXIES="1").test_client().get("/healthz", headers=through)
    http = make_app().test_client()
    http.get("/healthz")
    http.get("/healthz", headers={"X-Forwarded-For": FORGED_BY_DOCTOR})
    assert warnings_of(caplog) == []
    for _ in range(3):
        http.get("/healthz", headers=through)
    (said,) = warnings_of(caplog)
    assert "SSO_TRUSTED_PROXIES" in said


def test_the_base_address_may_be_the_root(make_app: Callable[..., Flask]) -> None:
    http = make_app(SSO_BASE_URL="http://localhost:5000").test_client()
    for path in ("openid-configuration", "oauth-authorization-server"):
        found = http.get(f"/.well-known/{path}").get_json()
        assert found["authorization_endpoint"] == "http://localhost:5000/oauth2/authorize"
    assert http.get("/sign-in").status_code == 200
    assert http.post("/oauth2/token").get_json()["error"] == "invalid_request"
