"""The modules of the certification plans Basic OP and Form Post OP, one test each, by name.

What the suite demands of the server is checked here; the suite itself is not run.
"""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from flask import Flask

from sso.models import User
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, Page, RelyingParty, claims_of, pkce
from tests.support.factories import make_client, make_user

ALL = "openid profile email address phone"
CLAIMS: dict[str, Any] = {
    "given_name": "Dana", "family_name": "Demo", "middle_name": "M", "nickname": "d",
    "preferred_username": "dana", "profile": "https://d.example", "picture": "https://d.example/p",
    "website": "https://d.example", "gender": "female", "birthdate": "1990-01-01",
    "zoneinfo": "Europe/Berlin", "locale": "de", "address": {"formatted": "Long Street 1"},
    "phone_number": "+49 1", "phone_number_verified": False,
}  # fmt: skip


@dataclass
class Suite:
    """The relying party that the certification suite plays, in one response mode."""

    browser: Browser
    client: RelyingParty
    mode: str
    extra: dict[str, str] = field(default_factory=dict)

    def ask(self, **more: str | None) -> Page:
        mode = {"response_mode": "form_post"} if self.mode == "form_post" else {}
        return self.browser.authorize(self.client, **{"nonce": "n", **mode, **more})

    def answer(self, page: Page) -> dict[str, str]:
        """What the client received, in this mode."""
        if self.mode == "form_post":
            assert page.action == self.client.redirect_uri
            return page.fields
        assert not page.is_at_server
        return page.parameters

    def approve(self, page: Page) -> dict[str, str]:
        if "password" in page.fields:
            page = self.browser.sign_in()
        if ("decision", "allow") in page.buttons:
            page = self.browser.allow()
        return self.answer(page)

    def tokens(self, **more: str | None) -> dict[str, Any]:
        """One whole flow."""
        received = self.approve(self.ask(**more))
        found = self.client.exchange(received["code"])
        assert found.status_code == 200, found.text
        tokens: dict[str, Any] = found.get_json()
        return tokens

    def profile(self, scope: str) -> dict[str, Any]:
        token = self.tokens(scope=scope)["access_token"]
        found: dict[str, Any] = self.client.userinfo(token).get_json()
        return found


@pytest.fixture
def user(app: Flask) -> User:
    return make_user(app, claims=CLAIMS)


@pytest.fixture(params=["query", "form_post"])
def suite(clock: Clock, app: Flask, user: User, request: pytest.FixtureRequest) -> Suite:
    client = make_client(app, scope=ALL + " offline_access")
    return Suite(Browser(app), client, request.param)


def test_oidcc_server(suite: Suite) -> None:
    identity = claims_of(suite.tokens()["id_token"])
    assert {"iss", "sub", "aud", "exp", "iat", "nonce"} <= set(identity)
    assert identity["nonce"] == "n"


def test_oidcc_response_type_missing(suite: Suite) -> None:
    assert suite.answer(suite.ask(response_type=None))["error"] == "invalid_request"


def test_oidcc_userinfo_get(suite: Suite) -> None:
    tokens = suite.tokens()
    profile = suite.client.userinfo(tokens["access_token"]).get_json()
    assert profile["sub"] == claims_of(tokens["id_token"])["sub"]


def test_oidcc_userinfo_post_header(suite: Suite) -> None:
    token = suite.tokens()["access_token"]
    assert suite.client.userinfo(token, method="POST").status_code == 200


def test_oidcc_userinfo_post_body(suite: Suite) -> None:
    form = {"access_token": suite.tokens()["access_token"]}
    assert suite.client.post("/oauth2/userinfo", form).status_code == 200


def test_oidcc_ensure_request_without_nonce_succeeds_for_code_flow(suite: Suite) -> None:
    assert "nonce" not in claims_of(suite.tokens(nonce=None)["id_token"])


def claims_for(suite: Suite, scope: str) -> set[str]:
    """The claims that a scope adds to those which are always there."""
    return set(suite.profile(f"openid {scope}")) - {"sub", "id"}


def test_oidcc_scope_profile(suite: Suite) -> None:
    others = {"address", "phone_number", "phone_number_verified"}
    assert claims_for(suite, "profile") == {"name", "updated_at", *CLAIMS} - others


def test_oidcc_scope_email(suite: Suite) -> None:
    assert claims_for(suite, "email") == {"email", "email_verified", "emailVerified"}


def test_oidcc_scope_address(suite: Suite) -> None:
    assert claims_for(suite, "address") == {"address"}


def test_oidcc_scope_phone(suite: Suite) -> None:
    assert claims_for(suite, "phone") == {"phone_number", "phone_number_verified"}


def test_oidcc_scope_all(suite: Suite) -> None:
    assert suite.profile(ALL).items() >= CLAIMS.items()


def test_oidcc_ensure_other_scope_order_succeeds(suite: Suite) -> None:
    assert suite.tokens(scope="email openid")["id_token"]


def test_oidcc_display_page(suite: Suite) -> None:
    assert suite.tokens(display="page")


def test_oidcc_display_popup(suite: Suite) -> None:
    assert suite.tokens(display="popup")


def test_oidcc_prompt_login(clock: Clock, suite: Suite) -> None:
    first = claims_of(suite.tokens()["id_token"])
    clock.move(seconds=5)
    page = suite.ask(prompt="login")
    assert "password" in page.fields
    code = suite.approve(page)["code"]
    second = claims_of(suite.client.exchange(code).get_json()["id_token"])
    assert second["auth_time"] > first["auth_time"]
    assert second["sub"] == first["sub"]


def test_oidcc_prompt_none_not_logged_in(suite: Suite) -> None:
    received = suite.answer(suite.ask(prompt="none"))
    assert received["error"] == "login_required"
    assert received["state"] == "st4te"


def test_oidcc_prompt_none_logged_in(clock: Clock, suite: Suite) -> None:
    first = claims_of(suite.tokens()["id_token"])
    clock.move(seconds=5)
    code = suite.answer(suite.ask(prompt="none"))["code"]
    second = claims_of(suite.client.exchange(code).get_json()["id_token"])
    assert (second["sub"], second["auth_time"]) == (first["sub"], first["auth_time"])


def test_oidcc_max_age_1(clock: Clock, suite: Suite) -> None:
    first = claims_of(suite.tokens()["id_token"])
    clock.move(seconds=2)
    page = suite.ask(max_age="1")
    assert "password" in page.fields
    code = suite.approve(page)["code"]
    second = claims_of(suite.client.exchange(code).get_json()["id_token"])
    assert second["auth_time"] > first["auth_time"]


def test_oidcc_max_age_10000(clock: Clock, suite: Suite) -> None:
    first = claims_of(suite.tokens()["id_token"])
    clock.move(seconds=2)
    code = suite.answer(suite.ask(max_age="10000"))["code"]
    second = claims_of(suite.client.exchange(code).get_json()["id_token"])
    assert second["auth_time"] == first["auth_time"]


def test_oidcc_ensure_request_with_unknown_parameter_succeeds(suite: Suite) -> None:
    assert suite.tokens(extra="foobar")


def test_oidcc_id_token_hint(suite: Suite) -> None:
    first = suite.tokens()
    page = suite.ask(prompt="none", id_token_hint=first["id_token"])
    code = suite.answer(page)["code"]
    second = claims_of(suite.client.exchange(code).get_json()["id_token"])
    assert second["sub"] == claims_of(first["id_token"])["sub"]


def test_oidcc_login_hint(suite: Suite) -> None:
    assert suite.ask(login_hint="buffy@example.com").fields["email"] == "buffy@example.com"
    assert suite.tokens(login_hint="buffy@example.com")


def test_oidcc_ui_locales(suite: Suite) -> None:
    assert suite.tokens(ui_locales="se")


def test_oidcc_claims_locales(suite: Suite) -> None:
    assert suite.tokens(claims_locales="se")


def test_oidcc_ensure_request_with_acr_values_succeeds(suite: Suite) -> None:
    assert claims_of(suite.tokens(acr_values="1 2")["id_token"])["acr"] == "1"


def test_oidcc_codereuse(suite: Suite) -> None:
    code = suite.approve(suite.ask())["code"]
    assert suite.client.exchange(code).status_code == 200
    assert suite.client.exchange(code).get_json()["error"] == "invalid_grant"


def test_oidcc_codereuse_30seconds(clock: Clock, suite: Suite) -> None:
    code = suite.approve(suite.ask())["code"]
    tokens = suite.client.exchange(code).get_json()
    clock.move(seconds=30)
    assert suite.client.exchange(code).get_json()["error"] == "invalid_grant"
    assert suite.client.userinfo(tokens["access_token"]).status_code == 401


def test_oidcc_ensure_registered_redirect_uri(suite: Suite) -> None:
    page = suite.ask(redirect_uri="https://books.example/unregistered")
    assert page.is_at_server
    assert page.status == 400


def test_oidcc_ensure_post_request_succeeds(suite: Suite) -> None:
    mode = {"response_mode": "form_post"} if suite.mode == "form_post" else {}
    page = suite.browser.open(
        f"{ORIGIN}{BASE}/oauth2/authorize", method="POST", data=suite.client.parameters(**mode)
    )
    assert suite.client.exchange(suite.approve(page)["code"]).status_code == 200


def test_oidcc_server_client_secret_post(app: Flask, suite: Suite) -> None:
    suite.client = make_client(app, auth_method="client_secret_post")
    assert suite.tokens()


UNSIGNED = "eyJhbGciOiJub25lIn0.e30."


def test_oidcc_unsigned_request_object_supported_correctly_or_rejected_as_unsupported(
    suite: Suite,
) -> None:
    assert suite.answer(suite.ask(request=UNSIGNED))["error"] == "request_not_supported"


def test_oidcc_ensure_request_object_with_redirect_uri(suite: Suite) -> None:
    """The address inside the object counts for nothing: the object is refused."""
    inside = "eyJyZWRpcmVjdF91cmkiOiJodHRwczovL2V2aWwuZXhhbXBsZS8ifQ"
    received = suite.answer(suite.ask(request=f"eyJhbGciOiJub25lIn0.{inside}."))
    assert received["error"] == "request_not_supported"


def test_oidcc_claims_essential(suite: Suite) -> None:
    asked = {"userinfo": {"name": {"essential": True}}}
    token = suite.tokens(scope="openid", claims=json.dumps(asked))["access_token"]
    assert suite.client.userinfo(token).get_json()["name"] == "Dana Demo"


def test_oidcc_refresh_token(app: Flask, clock: Clock, suite: Suite) -> None:
    scope = "openid offline_access"
    first = suite.tokens(scope=scope, prompt="consent")
    clock.move(seconds=2)
    second = suite.client.refresh(first["refresh_token"]).get_json()
    before, after = claims_of(first["id_token"]), claims_of(second["id_token"])
    for claim in ("iss", "sub", "aud", "auth_time"):
        assert after[claim] == before[claim]
    assert after["iat"] > before["iat"]
    assert "nonce" not in after
    other = make_client(app, name="Second client")
    assert other.refresh(second["refresh_token"]).get_json()["error"] == "invalid_grant"


def test_oidcc_ensure_request_with_valid_pkce_succeeds(suite: Suite) -> None:
    verifier, challenge = pkce()
    page = suite.ask(code_challenge=challenge, code_challenge_method="S256")
    code = suite.approve(page)["code"]
    assert suite.client.exchange(code, code_verifier=verifier).status_code == 200
