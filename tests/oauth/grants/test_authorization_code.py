"""The token endpoint with `authorization_code` (RFC 6749 §4.1.3, §5)."""

import base64
import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask

from sso.models import User
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty, claims_of, header_of, pkce
from tests.support.factories import make_client


@pytest.fixture
def code(browser: Browser, client: RelyingParty, user: User) -> str:
    return browser.approve(client).code


def error_of(answer: Any) -> tuple[int, str]:
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Pragma"] == "no-cache"
    assert answer.get_json()["error_description"]
    return answer.status_code, answer.get_json()["error"]


REFUSED: dict[str, tuple[dict[str, str | None], tuple[int, str]]] = {
    "§5.2 grant_type missing": ({"grant_type": None}, (400, "invalid_request")),
    "§5.2 grant_type unknown": ({"grant_type": "password"}, (400, "unsupported_grant_type")),
    "§4.1.3 code missing": ({"code": None}, (400, "invalid_request")),
    "§5.2 code unknown": ({"code": "sso_ac_x"}, (400, "invalid_grant")),
    "§4.1.3 redirect_uri missing": ({"redirect_uri": None}, (400, "invalid_request")),
    "§4.1.3 redirect_uri empty": ({"redirect_uri": ""}, (400, "invalid_request")),
    "§4.1.3 redirect_uri another": (
        {"redirect_uri": "https://books.example/callback/"}, (400, "invalid_grant")),
    "§2.3 no credentials": (
        {"client_id": None, "client_secret": None}, (401, "invalid_client")),
    "§2.3 no secret": ({"client_secret": None}, (401, "invalid_client")),
    "§5.2 wrong secret": ({"client_secret": "wrong"}, (401, "invalid_client")),
    "§5.2 unknown client": ({"client_id": "nobody"}, (401, "invalid_client")),
    "RFC 9700 §4.8.2 superfluous verifier": (
        {"code_verifier": "v" * 43}, (400, "invalid_grant")),
}  # fmt: skip


@pytest.mark.parametrize(("more", "wanted"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_without_using_up_the_code(
    client: RelyingParty, code: str, more: dict[str, str | None], wanted: tuple[int, str]
) -> None:
    values: dict[str, str | None] = {"code": code, **more}
    sent = values.pop("code")
    answer = client.exchange(sent, **values) if sent else client.exchange("", **values)
    assert error_of(answer) == wanted
    assert "WWW-Authenticate" not in answer.headers
    assert client.exchange(code).status_code == 200


def test_another_redirect_uri_that_is_registered(app: Flask, browser: Browser, user: User) -> None:
    """§4.1.3: the exchange names the one of the request, whichever others the client has."""
    uris = ["https://books.example/callback", "https://books.example/second"]
    client = make_client(app, redirect_uris=uris)
    for own, other in (uris, reversed(uris)):
        code = browser.approve(client, redirect_uri=own).code
        refused = client.exchange(code, redirect_uri=other)
        assert (refused.status_code, refused.get_json()["error"]) == (400, "invalid_grant")
        assert client.exchange(code, redirect_uri=own).status_code == 200


def test_a_wrong_address_is_named(client: RelyingParty, code: str) -> None:
    missing = client.exchange(code, redirect_uri=None).get_json()
    assert missing["error_description"] == "The parameter 'redirect_uri' is missing."
    wrong = client.exchange(code, redirect_uri="https://books.example/").get_json()
    assert wrong["error_description"] == (
        "The 'redirect_uri' does not match the one of the authorization request."
    )


def test_an_unknown_code_is_named_before_the_address(app: Flask, client: RelyingParty) -> None:
    """Who guesses codes does not learn from the address whether one was right."""
    wrong = client.exchange("sso_ac_x", redirect_uri="https://books.example/").get_json()
    assert wrong == client.exchange("sso_ac_x").get_json()
    assert "unknown" in wrong["error_description"]


def test_a_foreign_code_is_unknown_whatever_the_address(
    app: Flask, client: RelyingParty, code: str
) -> None:
    other = make_client(app, name="Other")
    wrong = other.exchange(code, redirect_uri="https://books.example/").get_json()
    assert wrong == other.exchange("sso_ac_x").get_json()


@pytest.mark.parametrize("verifier", [None, "v" * 43, "short", "v" * 129, "ä" * 43])
def test_a_wrong_verifier_does_not_use_up_the_code(
    browser: Browser, client: RelyingParty, user: User, verifier: str | None
) -> None:
    right, challenge = pkce()
    page = browser.approve(client, code_challenge=challenge, code_challenge_method="S256")
    answer = client.exchange(page.code, code_verifier=verifier)
    assert error_of(answer) == (400, "invalid_grant")
    assert client.exchange(page.code, code_verifier=right).status_code == 200


def test_another_clients_code(app: Flask, client: RelyingParty, code: str) -> None:
    other = make_client(app, name="Other")
    assert error_of(other.exchange(code)) == (400, "invalid_grant")
    assert client.exchange(code).status_code == 200


def test_a_code_expires(clock: Clock, browser: Browser, client: RelyingParty, user: User) -> None:
    code = browser.approve(client).code
    clock.move(seconds=61)
    assert error_of(client.exchange(code)) == (400, "invalid_grant")


def test_reuse_ends_what_the_code_gave(
    clock: Clock, browser: Browser, client: RelyingParty, user: User
) -> None:
    """RFC 6749 §4.1.2; oidcc-codereuse-30seconds."""
    code = browser.approve(client).code
    tokens = client.exchange(code).get_json()
    clock.move(seconds=30)
    assert client.userinfo(tokens["access_token"]).status_code == 200
    assert error_of(client.exchange(code)) == (400, "invalid_grant")
    assert client.userinfo(tokens["access_token"]).status_code == 401
    assert error_of(client.refresh(tokens["refresh_token"])) == (400, "invalid_grant")


def test_a_double_click_signs_nobody_out(
    clock: Clock, browser: Browser, client: RelyingParty, user: User
) -> None:
    """Within one second, by the same client, the grant lives on."""
    code = browser.approve(client).code
    tokens = client.exchange(code).get_json()
    assert error_of(client.exchange(code)) == (400, "invalid_grant")
    assert client.userinfo(tokens["access_token"]).status_code == 200


def test_a_stranger_cannot_end_a_grant_by_reuse(
    clock: Clock, app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    code = browser.approve(client).code
    tokens = client.exchange(code).get_json()
    clock.move(seconds=30)
    assert error_of(make_client(app, name="Other").exchange(code)) == (400, "invalid_grant")
    assert client.userinfo(tokens["access_token"]).status_code == 200


def test_basic(client: RelyingParty, code: str) -> None:
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": client.redirect_uri}
    both = {**form, **client.credentials()}
    answer = client.post("/oauth2/token", both, headers=client.basic())
    assert error_of(answer) == (400, "invalid_request")
    answer = client.post("/oauth2/token", form, headers=client.basic("wrong"))
    assert error_of(answer) == (401, "invalid_client")
    assert answer.headers["WWW-Authenticate"].startswith('Basic realm="')
    other = {**form, "client_id": "other"}
    answer = client.post("/oauth2/token", other, headers=client.basic())
    assert error_of(answer) == (400, "invalid_request")
    same = {**form, "client_id": client.client_id}
    assert client.post("/oauth2/token", same, headers=client.basic()).status_code == 200


def test_basic_is_form_decoded(client: RelyingParty) -> None:
    """RFC 6749 §2.3.1: both parts are form-encoded before they are joined; in UTF-8."""

    def status(client_id: str, secret: str) -> int:
        pair = base64.b64encode(f"{client_id}:{secret}".encode()).decode()
        headers = {"Authorization": f"Basic {pair}"}
        return client.post("/oauth2/introspect", {"token": "x"}, headers=headers).status_code

    encoded = "".join(f"%{ord(c):02X}" for c in client.client_secret)
    assert status(client.client_id, encoded) == 200
    assert status(client.client_id, client.client_secret + "%C3%A9") == 401
    assert status(client.client_id, "é漢") == 401
    assert status("%FF", "x") == 401


@pytest.mark.parametrize("method", ["client_secret_post", "client_secret_basic"])
def test_a_registered_method_is_the_only_one(
    app: Flask, browser: Browser, user: User, method: str
) -> None:
    client = make_client(app, auth_method=method)
    form = {
        "grant_type": "authorization_code",
        "code": browser.approve(client).code,
        "redirect_uri": client.redirect_uri,
    }
    by_basic = client.post("/oauth2/token", form, headers=client.basic())
    by_post = client.post("/oauth2/token", {**form, **client.credentials()})
    right, wrong = (by_post, by_basic) if method.endswith("post") else (by_basic, by_post)
    assert error_of(wrong) == (401, "invalid_client")
    assert right.status_code == 200


def test_other_bodies_and_methods(app: Flask, client: RelyingParty) -> None:
    answer = client.post("/oauth2/token", "{}", content_type="application/json")
    assert error_of(answer) == (400, "invalid_request")
    answer = client.post("/oauth2/token?client_id=x", client.credentials())
    assert error_of(answer) == (400, "invalid_request")
    answer = app.test_client().get(f"{BASE}/oauth2/token", base_url=ORIGIN)
    assert answer.status_code == 405
    assert "POST" in answer.headers["Allow"]


def test_api_endpoints_neither_read_nor_set_cookies(
    app: Flask, browser: Browser, client: RelyingParty, code: str
) -> None:
    form = {**client.credentials(), "grant_type": "authorization_code", "code": code}
    answer = browser.http.post(f"{BASE}/oauth2/token", data=form, base_url=ORIGIN)
    assert "Set-Cookie" not in answer.headers
    assert "Cookie" not in answer.headers.get("Vary", "")


@pytest.mark.parametrize("alg", ["RS256", "ES256", "EdDSA", "PS256"])
def test_the_registered_algorithm_signs(app: Flask, browser: Browser, user: User, alg: str) -> None:
    client = make_client(app, id_token_alg=alg)
    tokens = client.exchange(browser.approve(client).code).get_json()
    assert header_of(tokens["id_token"])["alg"] == alg
    assert header_of(tokens["id_token"])["kid"]
    assert claims_of(tokens["id_token"])["at_hash"]


def test_all_claims_in_the_identity_token(app: Flask, browser: Browser, user: User) -> None:
    client = make_client(app, id_token_claims="all")
    tokens = client.exchange(browser.approve(client).code).get_json()
    profile = client.userinfo(tokens["access_token"]).get_json()
    assert profile.items() <= claims_of(tokens["id_token"]).items()


def test_without_openid_no_identity_token(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    page = browser.approve(client, scope="email nonsense")
    tokens = client.exchange(page.code).get_json()
    assert tokens["scope"] == "email"
    assert "id_token" not in tokens
    profile = client.userinfo(tokens["access_token"]).get_json()
    assert set(profile) == {"sub", "id", "email", "email_verified", "emailVerified"}


def test_lifetimes_follow_the_settings(make_app: Callable[..., Flask]) -> None:
    from tests.support.factories import make_user

    app = make_app(SSO_ACCESS_TOKEN_LIFETIME="120")
    make_user(app)
    client = make_client(app)
    tokens = client.exchange(Browser(app).approve(client).code).get_json()
    assert tokens["expires_in"] == 120
    claims = claims_of(tokens["access_token"])
    assert claims["exp"] - claims["iat"] == 120


# PKCE (RFC 7636): the verifier fits, and is one (§4.1: 43 to 128 characters of its alphabet).

ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~"


def challenge_of(verifier: str) -> str:
    return urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def exchange(browser: Browser, client: RelyingParty, challenge: str, verifier: str) -> int:
    page = browser.approve(client, code_challenge=challenge, code_challenge_method="S256")
    answer = client.exchange(page.code, code_verifier=verifier)
    if answer.status_code == 400:
        assert answer.get_json()["error"] == "invalid_grant"
    return answer.status_code


@pytest.mark.parametrize("verifier", ["v" * 43, "v" * 128, ALPHABET])
def test_it_fits(browser: Browser, client: RelyingParty, user: User, verifier: str) -> None:
    assert exchange(browser, client, challenge_of(verifier), verifier) == 200


@pytest.mark.parametrize(
    "verifier", ["v", "abc", "v" * 42, "v" * 129, "v" * 42 + "+", "v" * 42 + " ", "v" * 42 + "é"]
)
def test_it_fits_but_is_no_verifier(
    browser: Browser, client: RelyingParty, user: User, verifier: str
) -> None:
    """Three characters are guessed from their challenge, which stands in addresses and logs."""
    assert exchange(browser, client, challenge_of(verifier), verifier) == 400


def test_a_near_miss(browser: Browser, client: RelyingParty, user: User) -> None:
    verifier, challenge = "v" * 43, challenge_of("v" * 43)
    assert exchange(browser, client, challenge, "v" * 44) == 400
    assert exchange(browser, client, challenge, "v" * 42 + "V") == 400
    assert exchange(browser, client, challenge, challenge) == 400  # that is "plain"
    other = "o" * 43
    assert exchange(browser, client, challenge_of(other), verifier) == 400


@pytest.mark.parametrize(
    ("challenge", "method"),
    [
        ("c" * 42, "S256"),
        ("c" * 44, "S256"),
        ("c" * 42 + "+", "S256"),
        ("c" * 42 + "=", "S256"),
        ("c" * 43, "plain"),
        ("c" * 43, "s256"),
        ("c" * 43, None),
        (None, "S256"),
    ],
)
def test_what_is_no_challenge(
    browser: Browser, client: RelyingParty, challenge: str | None, method: str | None
) -> None:
    page = browser.authorize(client, code_challenge=challenge, code_challenge_method=method)
    assert page.error == "invalid_request"
