"""The profile fapi2: what it switches on, and what it leaves to others."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from flask import Flask

from sso.models import User
from tests.conftest import ON_POSTGRESQL, Clock, Statements
from tests.support.actors import Browser, RelyingParty, claims_of, header_of, pkce
from tests.support.factories import make_client
from tests.support.signing import EC, FapiParty, make_fapi_client, public

Count = Callable[[], AbstractContextManager[Statements]]


@pytest.fixture
def bank(app: Flask) -> FapiParty:
    return make_fapi_client(app)


def test_the_whole_flow(browser: Browser, bank: FapiParty, user: User) -> None:
    page = bank.approve(browser)
    assert page.parameters.keys() == {"code", "state", "iss"}
    tokens = bank.exchange(page.code).get_json()
    assert tokens["token_type"] == "DPoP"
    assert claims_of(tokens["access_token"])["cnf"] == {"jkt": bank.dpop.jkt}
    assert header_of(tokens["id_token"])["alg"] == "ES256"
    assert bank.dpop.userinfo(bank, tokens["access_token"]).get_json()["email"] == user.email


OWN = {"id", "emailVerified"}


def preview(app: Flask, client: RelyingParty, *more: str) -> dict[str, Any]:
    command = ["client", "preview", client.client_id, "--user", "dana@example.com", "--json"]
    result = app.test_cli_runner().invoke(args=[*command, *more])
    assert result.exit_code == 0, result.output
    return cast(dict[str, Any], json.loads(result.stdout))


def test_userinfo_has_standard_claims_alone(
    app: Flask, browser: Browser, bank: FapiParty, user: User
) -> None:
    """The suite warns of all others. `client preview` says the same."""
    tokens = bank.exchange(bank.approve(browser).code).get_json()
    profile = bank.dpop.userinfo(bank, tokens["access_token"]).get_json()
    assert not OWN & profile.keys()
    assert (profile["sub"], profile["email_verified"]) == (str(user.id), True)
    shown = preview(app, bank)
    assert shown["userinfo"] == profile
    reasons = {one["claim"]: one["reason"] for one in shown["missing"]}
    assert {reasons[name] for name in OWN} == {"left_out_by_profile"}
    assert "sub instead of id" in json.dumps(shown["missing"])


def test_userinfo_of_others_keeps_its_four_fields(
    app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    tokens = client.exchange(browser.approve(client).code).get_json()
    profile = client.userinfo(tokens["access_token"]).get_json()
    assert profile.keys() >= OWN
    shown = preview(app, client)
    assert shown["userinfo"] == profile
    assert "left_out_by_profile" not in json.dumps(shown["missing"])


@pytest.mark.parametrize("name", sorted(OWN))
def test_what_is_requested_by_name_is_there(
    app: Flask, browser: Browser, bank: FapiParty, user: User, name: str
) -> None:
    asked = json.dumps({"userinfo": {name: None}, "id_token": {name: None}})
    tokens = bank.exchange(bank.approve(browser, claims=asked).code).get_json()
    profile = bank.dpop.userinfo(bank, tokens["access_token"]).get_json()
    assert OWN & profile.keys() == {name}
    assert OWN & claims_of(tokens["id_token"]).keys() == {name}


def test_an_identity_token_with_all_claims(app: Flask, browser: Browser, user: User) -> None:
    bank = make_fapi_client(app, id_token_claims="all")
    claims = claims_of(bank.exchange(bank.approve(browser).code).get_json()["id_token"])
    assert claims["email_verified"] is True
    assert not OWN & claims.keys()


def test_state_is_optional(browser: Browser, bank: FapiParty, user: User) -> None:
    page = bank.approve(browser, state=None)
    assert page.parameters.keys() == {"code", "iss"}
    page = bank.send(browser, state=None, prompt="none", max_age="0")
    assert (page.error, "state" in page.parameters) == ("login_required", False)
    page = bank.approve(browser, state=None, response_mode="form_post")
    assert page.fields.keys() == {"code", "iss"}


def test_others_need_a_state(browser: Browser, client: RelyingParty, user: User) -> None:
    assert browser.authorize(client, state=None).error == "invalid_request"


def test_refresh_tokens_stay(
    clock: Clock, app: Flask, browser: Browser, user: User, statements: Count
) -> None:
    bank = make_fapi_client(app, scope="openid offline_access")
    tokens = bank.exchange(bank.approve(browser, scope="openid offline_access").code).get_json()
    kept = tokens["refresh_token"]
    for _ in range(3):
        clock.move(days=20)  # each use prolongs it
        assert bank.refresh(kept).get_json()["refresh_token"] == kept
    with statements() as seen:
        assert bank.refresh(kept).status_code == 200
    # Two more for the assertion; and one for the DPoP proof, but on PostgreSQL one does it all.
    assert (len(seen), seen.commits) == ((4, 0) if ON_POSTGRESQL else (6, 2))
    clock.move(days=31)
    assert bank.refresh(kept).get_json()["error"] == "invalid_grant"


def test_refresh_tokens_of_a_grant_that_has_ended(
    browser: Browser, bank: FapiParty, user: User
) -> None:
    kept = bank.exchange(bank.approve(browser).code).get_json()["refresh_token"]
    bank.revoke(kept)
    assert bank.refresh(kept).get_json()["error"] == "invalid_grant"


def test_a_refresh_token_that_was_replaced_before(
    app: Flask, browser: Browser, bank: FapiParty, user: User, clock: Clock
) -> None:
    """A client that joins the profile: what it used before stays used."""
    update = ["client", "update", bank.client_id]
    assert app.test_cli_runner().invoke(args=[*update, "--no-profile"]).exit_code == 0
    old = bank.exchange(bank.approve(browser).code).get_json()["refresh_token"]
    new = bank.refresh(old).get_json()["refresh_token"]
    assert new != old
    assert app.test_cli_runner().invoke(args=[*update, "--profile", "fapi2"]).exit_code == 0
    assert bank.refresh(new).get_json()["refresh_token"] == new
    clock.move(minutes=1)
    assert bank.refresh(old).get_json()["error"] == "invalid_grant"
    assert bank.refresh(new).get_json()["error"] == "invalid_grant"  # it was stolen: all has ended


@pytest.mark.parametrize(("lifetime", "lives"), [(600, 60), (60, 60), (20, 20)])
def test_codes_live_for_a_minute_at_most(
    app: Flask, clock: Clock, browser: Browser, bank: FapiParty, user: User,
    lifetime: int, lives: int,
) -> None:  # fmt: skip
    """The setting may only shorten it."""
    settings = app.extensions["sso.settings"]
    app.extensions["sso.settings"] = replace(settings, authorization_code_lifetime=lifetime)
    code, other = bank.approve(browser).code, bank.approve(browser).code
    clock.move(seconds=lives - 5)
    assert bank.exchange(other).status_code == 200
    clock.move(seconds=6)
    assert bank.exchange(code).get_json()["error"] == "invalid_grant"


def test_what_is_refused(browser: Browser, bank: FapiParty, user: User) -> None:
    assert browser.authorize(bank).error == "invalid_request"  # it was not pushed
    assert bank.push(code_challenge=None).get_json()["error"] == "invalid_request"
    assert bank.push(code_challenge_method="plain").get_json()["error"] == "invalid_request"
    assert bank.push(response_type="token").get_json()["error"] == "unsupported_response_type"
    assert bank.exchange(bank.approve(browser).code, {}).status_code == 400  # without a proof


# A client moves to the profile fapi2 and back: what the command says is what happens.


def test_both_ways(app: Flask, browser: Browser, user: User, tmp_path: Path) -> None:
    old = make_client(app)
    tokens = old.exchange(browser.approve(old).code).get_json()
    jwks = tmp_path / "jwks.json"
    jwks.write_text(json.dumps({"keys": [public(EC)]}))

    def run(*command: str) -> str:
        result = app.test_cli_runner().invoke(args=["client", *command])
        assert result.exit_code == 0, result.stderr
        return result.stdout

    run("update", old.client_id, "--profile", "fapi2", "--jwks", str(jwks))
    assert "has to push" in browser.authorize(old).parameters["error_description"]
    assert "which this client requires by now" in old.userinfo(tokens["access_token"]).text
    assert old.refresh(tokens["refresh_token"]).status_code == 401  # the secret is gone
    new = FapiParty(app, old.client_id, "", old.redirect_uri, pkce()[0], EC)
    for _ in range(2):  # with its key, it goes on; refresh tokens stay
        assert new.refresh(tokens["refresh_token"]).get_json()["token_type"] == "DPoP"
    fresh = new.exchange(new.approve(browser, state=None).code).get_json()
    assert "id" not in new.dpop.userinfo(new, fresh["access_token"]).get_json()

    run("update", old.client_id, "--no-profile")
    assert "id" in new.dpop.userinfo(new, fresh["access_token"]).get_json()
    assert "state" in new.push(state=None).get_json()["error_description"]
    assert "has to push" in browser.authorize(old).parameters["error_description"]
    once = new.refresh(fresh["refresh_token"]).get_json()
    assert once["refresh_token"] != fresh["refresh_token"]

    loose = ("--no-require-par", "--no-require-dpop", "--no-require-pkce")
    run("update", old.client_id, "--auth-method", "any", *loose)
    old.client_secret = json.loads(run("rotate-secret", old.client_id, "--json"))["client_secret"]
    page = browser.authorize(old)
    assert old.exchange(page.code).get_json()["token_type"] == "Bearer"
