"""The attacker sends texts as long as they are taken, made to be slow to read.

While one is read, no other request of the process is answered. Each must take about as long as a
harmless one of the same length.
"""

import base64
import time
from collections.abc import Callable, Iterable
from functools import partial
from urllib.parse import quote

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import EnvironBuilder, TestResponse
from werkzeug.wrappers import Response

from sso.config import email_addresses
from sso.crypto import passwords
from sso.i18n import languages
from sso.observability import redaction
from sso.ratelimit import networks
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty
from tests.support.each import each

pytestmark = pytest.mark.slow

LINE = 8000  # characters of a request line, or of a header
BODY = 250_000  # of a body

UNITS = [
    *("-eyJ", "a%3F", "://a:", "1", ".", "//", "%00", "&a=", ";", '{"a":', "\\", "@", "xn--a."),
    *("\u0301", "\u2028", "%F0%9F%98%80", "en;q=,", " "),
]  # fmt: skip


def cpu(work: Callable[[], object], enough: float = 0) -> float:
    """The least of three tries, of which those after one that is quick enough are left out."""
    least = float("inf")
    for _ in range(3):
        began = time.process_time()
        work()
        least = min(least, time.process_time() - began)
        if least < enough:
            break
    return least


def text(unit: str, length: int) -> str:
    """Quoted where a URL must be; made of whole units."""
    quoted = quote(unit, safe="%/?&=+;.-_:@,!()[]{}~")
    return quoted * (length // len(quoted))


def header(unit: str) -> str:
    """Latin-1, as headers are."""
    latin = unit.encode("utf-8").decode("latin-1")
    return latin * (LINE // len(latin))


@pytest.fixture
def http(app: Flask) -> FlaskClient:
    return app.test_client(use_cookies=False)


def compare(
    ask: Callable[[str], object],
    units: Iterable[str] = UNITS,
    harmless: str = "x",
    more: float = 0.1,
) -> None:
    """Each of these units must take about as long as the harmless one, which is timed once."""
    ask(harmless)
    usual = cpu(lambda: ask(harmless))
    most = 4 * usual + more  # a quadratic one takes 200 ms and more
    took = {unit: cpu(partial(ask, unit), most) for unit in units}
    slow = {unit: f"{seconds * 1000:.0f} ms" for unit, seconds in took.items() if seconds >= most}
    assert not slow, f"{usual * 1000:.0f} ms as usual"


def test_request_lines(http: FlaskClient) -> None:
    for path in ("/", f"{BASE}/sign-in?resume=", f"{BASE}/new-password?token="):

        def ask(one: str, path: str = path) -> object:
            return http.get(path + text(one, LINE))

        compare(ask)


def test_parameters_of_an_authorization_request(client: RelyingParty) -> None:
    http = client.app.test_client(use_cookies=False)
    names = (
        "client_id", "redirect_uri", "scope", "state", "prompt", "ui_locales", "claims",
        "acr_values", "id_token_hint",
    )  # fmt: skip
    for name in names:
        known = client.parameters(**{name: None})
        query = "&".join(f"{key}={quote(value, safe='')}" for key, value in known.items())

        def ask(one: str, name: str = name, query: str = query) -> object:
            value = text(one, 4000).replace("&", "%26")
            return http.get(f"{BASE}/oauth2/authorize?{query}&{name}={value}")

        compare(ask)


def test_headers(http: FlaskClient) -> None:
    for name in (
        "X-Request-ID", "Cookie", "Authorization", "Accept-Language", "User-Agent", "Origin",
        "X-Forwarded-For", "X-Forwarded-Prefix", "Content-Type", "Accept", "Referer",
    ):  # fmt: skip

        def ask(one: str, name: str = name) -> object:
            return http.get(f"{BASE}/sign-in", headers={name: header(one)})

        compare(ask)


@pytest.mark.parametrize("name", ["sso_browser", "sso_known"])
def test_cookies(http: FlaskClient, name: str) -> None:
    compare(lambda one: http.get(f"{BASE}/sign-in", headers={"Cookie": f"{name}={header(one)}"}))


def test_proxies_headers(make_app: Callable[..., Flask]) -> None:
    http = make_app(SSO_TRUSTED_PROXIES="2").test_client(use_cookies=False)
    for name in ("For", "Proto", "Host", "Prefix"):

        def ask(one: str, name: str = name) -> object:
            return http.get(f"{BASE}/sign-in", headers={f"X-Forwarded-{name}": header(one)})

        compare(ask)


def test_bodies_for_programs(client: RelyingParty) -> None:
    http = client.app.test_client(use_cookies=False)
    form = "application/x-www-form-urlencoded"
    for path in ("token", "revoke", "introspect", "userinfo", "end-session", "authorize"):
        for before in ("", "client_id=x&client_secret="):

            def ask(one: str, path: str = path, before: str = before) -> object:
                return http.post(
                    f"{BASE}/oauth2/{path}", data=before + text(one, BODY), content_type=form
                )

            compare(ask, more=0.15)  # a quadratic one, seconds


@pytest.mark.parametrize("path", ["oauth2/token", "oauth2/end-session", "sign-in", "sign-up"])
def test_forms_of_very_many_fields_are_refused_unread(http: FlaskClient, path: str) -> None:
    form = "application/x-www-form-urlencoded"

    def ask(body: str) -> TestResponse:
        return http.post(f"{BASE}/{path}", data=body, content_type=form)

    assert ask("a=1&" * 62_000).status_code == 413
    assert ask("a=1&" * 900).status_code != 413
    compare(lambda one: ask(one * 62_000), ["a=1&"], "xxxx", more=0.03)


def test_the_host(app: Flask) -> None:
    def ask(one: str) -> int:
        environ = EnvironBuilder(path=f"{BASE}/sign-in").get_environ()
        environ["HTTP_HOST"] = header(one)
        return Response.from_app(app, environ).status_code

    assert {ask(unit) for unit in UNITS} <= {200, 400}
    compare(ask)


def test_basic_authentication(client: RelyingParty) -> None:
    http = client.app.test_client(use_cookies=False)

    def ask(one: str) -> object:
        pair = base64.b64encode((one * (LINE // 2 // len(one))).encode()).decode()
        headers = {"Authorization": f"Basic {pair}"}
        return http.post(f"{BASE}/oauth2/token", data={"grant_type": "x"}, headers=headers)

    compare(ask)


def test_bearer_tokens(client: RelyingParty) -> None:
    http = client.app.test_client(use_cookies=False)
    for before in ("", "eyJhbGciOiJSUzI1NiJ9.", "eyJhbGciOiJSUzI1NiJ9.e30."):

        def ask(one: str, before: str = before) -> object:
            headers = {"Authorization": f"Bearer {before}{header(one)}"}
            return http.get(f"{BASE}/oauth2/userinfo", headers=headers)

        compare(ask)


def test_nested_json(client: RelyingParty) -> None:
    http = client.app.test_client(use_cookies=False)
    for nested in ("[" * 4000, '{"userinfo":' * 300, "9" * 4000, '{"userinfo":{"a":' + "9" * 3900):
        answer = http.get(f"{BASE}/oauth2/authorize", query_string=client.parameters(claims=nested))
        assert "error=invalid_request" in answer.location
    for digits in ("9" * 4000, "-" + "9" * 3000, "1e9999"):
        answer = http.get(
            f"{BASE}/oauth2/authorize", query_string=client.parameters(max_age=digits)
        )
        assert "error=invalid_request" in answer.location


def test_forms_for_people(app: Flask) -> None:
    browser = Browser(app)
    for path, name in (
        ("sign-in", "email"), ("sign-in", "password"), ("forgotten-password", "email"),
        ("sign-in", "csrf_token"), ("sign-in/passkey", "credential"),
    ):  # fmt: skip
        browser.open(f"{ORIGIN}{BASE}/sign-in")
        fields = {**browser.page.fields, "email": "nobody@example.com", "password": "wrong"}

        def ask(one: str, path: str = path, name: str = name) -> object:
            form = {**fields, name: one * (BODY // 8 // len(one))}  # noqa: B023
            return browser.http.post(f"{BASE}/{path}", data=form, base_url=ORIGIN)

        compare(ask)


def test_what_reads_texts(app: Flask) -> None:
    def address(one: str) -> None:
        for many in (f"{one * 300}@example.com", f"a@{one * 300}", f"a@{one * 60}.example"):
            for cut in (many, many[:320]):
                try:
                    email_addresses.normalized(cut)
                except ValueError:
                    continue

    def everything(one: str) -> None:
        languages.known([one * 4000, *((one * 40) for _ in range(20))])
        networks.of(one * 8000)
        redaction.redact(f"?a={one * 8000}")
        redaction.redact_url(one * 8000)
        languages.browser_name(one * 200)
        address(one)

    with app.test_request_context():
        compare(everything)


@each("unit", UNITS)
def test_an_address_is_counted_before_it_is_read(unit: str) -> None:
    """The library looks at each character first: a quarter of a second for a whole body."""
    text = unit * (BODY // len(unit))

    def read() -> None:
        for email in (f"{text}@example.com", f"a@{text}"):
            with pytest.raises(ValueError, match=r"too long|@-sign"):
                email_addresses.normalized(email)

    assert cpu(read, 0.01) < 0.01


@each("unit", [*UNITS, "4(", "|1!", "19", "1/", "ab", "@4", "(3", "0o", "qwe"])
@pytest.mark.parametrize("length", [24, 48, 256])
def test_new_passwords(unit: str, length: int) -> None:
    password = (unit * length)[:length]
    about = [password, f"{password}@example.com", unit * 100]
    assert cpu(lambda: passwords.weakness(password, about), 0.05) < 0.05
