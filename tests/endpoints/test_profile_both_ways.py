"""A client moves to the profile fapi2 and back: what the command says is what happens."""

import json
from pathlib import Path

from flask import Flask

from sso.models import User
from tests.support.actors import Browser, pkce
from tests.support.factories import make_client
from tests.support.signing import EC, FapiParty, public


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
