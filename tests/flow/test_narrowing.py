"""Narrowing reaches what was granted before: scope, consent, groups and second factors.

What is not allowed any more is refused at the next refresh and the next userinfo request, and
introspection agrees. What is still allowed goes on.
"""

import json
from typing import Any

import pytest
from flask import Flask

from sso.models import User
from tests.conftest import Clock
from tests.support.actors import Browser, RelyingParty, claims_of
from tests.support.factories import make_client, make_user
from tests.support.second_factors import code_of, enrol_totp

SCOPE = "openid profile email"
OFFLINE = f"{SCOPE} offline_access"


def operator(app: Flask, *arguments: str) -> None:
    result = app.test_cli_runner().invoke(args=arguments)
    assert result.exit_code == 0, result.stderr


def change(client: RelyingParty, *options: str) -> None:
    operator(client.app, "client", "update", client.client_id, *options)


def untick(browser: Browser, client: RelyingParty, scope: str, *unticked: str) -> None:
    """Open the consent page again, and allow all but these."""
    page = browser.authorize(client, scope=scope, prompt="consent")
    fields = {k: v for k, v in page.fields.items() if k not in {f"scope_{u}" for u in unticked}}
    browser.open(page.url, method="POST", data={**fields, "decision": "allow"})


def tokens_of(browser: Browser, client: RelyingParty, **more: str) -> dict[str, Any]:
    found: dict[str, Any] = client.exchange(browser.approve(client, **more).code).get_json()
    return found


def refused_refresh(client: RelyingParty, tokens: dict[str, Any]) -> str:
    """The description of the refusal."""
    answer = client.refresh(tokens["refresh_token"])
    assert (answer.status_code, answer.get_json()["error"]) == (400, "invalid_grant")
    return str(answer.get_json()["error_description"])


def refused_userinfo(client: RelyingParty, tokens: dict[str, Any]) -> str:
    answer = client.userinfo(tokens["access_token"])
    assert answer.status_code == 401
    assert 'error="invalid_token"' in answer.headers["WWW-Authenticate"]
    assert answer.get_json()["error"] == "invalid_token"
    return str(answer.get_json()["error_description"])


def is_active(client: RelyingParty, token: str) -> bool:
    return bool(client.introspect(token).get_json()["active"])


def assert_all_refused(client: RelyingParty, tokens: dict[str, Any], why: str) -> None:
    assert why in refused_userinfo(client, tokens)
    assert not is_active(client, tokens["access_token"])
    assert not is_active(client, tokens["refresh_token"])
    assert why in refused_refresh(client, tokens)


@pytest.fixture
def tokens(browser: Browser, client: RelyingParty, user: User) -> dict[str, Any]:
    return tokens_of(browser, client)


class TestRegisteredScope:
    def test_the_claims_and_the_scope_are_narrower(
        self, client: RelyingParty, tokens: dict[str, Any]
    ) -> None:
        change(client, "--set-scopes", "openid profile")
        profile = client.userinfo(tokens["access_token"]).get_json()
        assert profile["name"]
        assert "email" not in profile
        for token in (tokens["access_token"], tokens["refresh_token"]):
            assert client.introspect(token).get_json()["scope"] == "openid profile"
        answer = client.refresh(tokens["refresh_token"]).get_json()
        assert answer["scope"] == "openid profile"
        assert claims_of(answer["access_token"])["scope"] == "openid profile"
        assert "email" not in client.userinfo(answer["access_token"]).get_json()

    def test_what_it_is_widened_by_was_never_granted(
        self, client: RelyingParty, tokens: dict[str, Any]
    ) -> None:
        change(client, "--set-scopes", f"{SCOPE} groups")
        assert client.refresh(tokens["refresh_token"]).get_json()["scope"] == SCOPE

    def test_what_comes_back_is_allowed_again(
        self, client: RelyingParty, tokens: dict[str, Any]
    ) -> None:
        change(client, "--set-scopes", "openid")
        narrow = client.refresh(tokens["refresh_token"]).get_json()
        change(client, "--set-scopes", SCOPE)
        assert "email" in client.userinfo(tokens["access_token"]).get_json()
        assert client.refresh(narrow["refresh_token"]).get_json()["scope"] == SCOPE

    def test_nothing_that_userinfo_needs_is_left(self, app: Flask, browser: Browser) -> None:
        make_user(app, groups=["staff"])
        client = make_client(app, scope=f"{SCOPE} groups")
        tokens = tokens_of(browser, client, scope=f"{SCOPE} groups")
        change(client, "--set-scopes", "groups")
        answer = client.userinfo(tokens["access_token"])
        assert answer.status_code == 403
        assert 'error="insufficient_scope"' in answer.headers["WWW-Authenticate"]
        refreshed = client.refresh(tokens["refresh_token"]).get_json()
        assert refreshed["scope"] == "groups"
        assert "id_token" not in refreshed

    def test_nothing_at_all_is_left(self, client: RelyingParty, tokens: dict[str, Any]) -> None:
        change(client, "--set-scopes", "groups")
        assert client.userinfo(tokens["access_token"]).status_code == 403
        assert not is_active(client, tokens["access_token"])
        assert not is_active(client, tokens["refresh_token"])
        assert "scope" in refused_refresh(client, tokens)
        change(client, "--set-scopes", SCOPE)
        assert client.refresh(tokens["refresh_token"]).status_code == 200  # was not used up

    def test_a_code_that_waits(self, browser: Browser, client: RelyingParty, user: User) -> None:
        code = browser.approve(client).code
        change(client, "--set-scopes", "openid email")
        answer = client.exchange(code).get_json()
        assert answer["scope"] == "openid email"
        assert "name" not in client.userinfo(answer["access_token"]).get_json()

    def test_a_code_of_which_nothing_is_left(
        self, browser: Browser, client: RelyingParty, user: User
    ) -> None:
        code = browser.approve(client).code
        change(client, "--set-scopes", "phone")
        assert client.exchange(code).get_json()["error"] == "invalid_grant"
        change(client, "--set-scopes", SCOPE)
        assert client.exchange(code).status_code == 200  # was not used up

    def test_asked_for_by_name(self, client: RelyingParty, tokens: dict[str, Any]) -> None:
        """As at the authorization endpoint: dropped, and the answer says so."""
        change(client, "--set-scopes", "openid profile")
        answer = client.refresh(tokens["refresh_token"], scope="openid email").get_json()
        assert answer["scope"] == "openid"
        answer = client.refresh(answer["refresh_token"], scope="email")
        assert (answer.status_code, answer.get_json()["error"]) == (400, "invalid_scope")

    def test_single_claims(self, browser: Browser, client: RelyingParty, user: User) -> None:
        claims = {"userinfo": {"email": None, "name": None}, "id_token": {"email": None}}
        tokens = tokens_of(browser, client, scope="openid", claims=json.dumps(claims))
        assert client.userinfo(tokens["access_token"]).get_json()["email"] == user.email
        change(client, "--set-scopes", "openid profile")
        profile = client.userinfo(tokens["access_token"]).get_json()
        assert "email" not in profile
        assert profile["name"] == user.name
        answer = client.refresh(tokens["refresh_token"]).get_json()
        assert "email" not in claims_of(answer["id_token"])
        assert client.userinfo(answer["access_token"]).get_json()["name"] == user.name

    def test_all_claims_in_the_identity_token(
        self, app: Flask, browser: Browser, user: User
    ) -> None:
        client = make_client(app, id_token_claims="all")
        tokens = tokens_of(browser, client)
        assert claims_of(tokens["id_token"])["email"] == user.email
        change(client, "--set-scopes", "openid profile")
        identity = claims_of(client.refresh(tokens["refresh_token"]).get_json()["id_token"])
        assert "email" not in identity
        assert identity["name"] == user.name


class TestConsent:
    def test_unticked(self, browser: Browser, client: RelyingParty, tokens: dict[str, Any]) -> None:
        untick(browser, client, SCOPE, "email")
        profile = client.userinfo(tokens["access_token"]).get_json()
        assert "email" not in profile
        assert profile["name"]
        assert client.introspect(tokens["access_token"]).get_json()["scope"] == "openid profile"
        assert client.introspect(tokens["refresh_token"]).get_json()["scope"] == "openid profile"
        assert client.refresh(tokens["refresh_token"]).get_json()["scope"] == "openid profile"

    def test_allowed_once_more(
        self, browser: Browser, client: RelyingParty, tokens: dict[str, Any]
    ) -> None:
        untick(browser, client, SCOPE)
        assert "email" in client.userinfo(tokens["access_token"]).get_json()
        assert client.refresh(tokens["refresh_token"]).get_json()["scope"] == SCOPE

    def test_consent_to_fewer_scopes_takes_nothing(
        self, browser: Browser, client: RelyingParty, tokens: dict[str, Any]
    ) -> None:
        untick(browser, client, "openid")
        assert client.refresh(tokens["refresh_token"]).get_json()["scope"] == SCOPE

    def test_another_persons_is_another_matter(
        self, app: Flask, client: RelyingParty, tokens: dict[str, Any]
    ) -> None:
        make_user(app, "erin@example.com")
        erin = Browser(app)
        erin.sign_in("erin@example.com")
        erin.approve(client)
        untick(erin, client, SCOPE, "email")
        assert "email" in client.userinfo(tokens["access_token"]).get_json()

    def test_another_clients_is_another_matter(
        self, app: Flask, browser: Browser, client: RelyingParty, tokens: dict[str, Any]
    ) -> None:
        other = make_client(app, name="Other")
        browser.approve(other)
        untick(browser, other, SCOPE, "email")
        assert "email" in client.userinfo(tokens["access_token"]).get_json()

    def test_single_claims(self, browser: Browser, client: RelyingParty, user: User) -> None:
        claims = json.dumps({"userinfo": {"email": None}})
        tokens = tokens_of(browser, client, scope="openid", claims=claims)
        untick(browser, client, SCOPE, "email")
        assert "email" not in client.userinfo(tokens["access_token"]).get_json()

    @pytest.mark.parametrize("unticked", ["email", "phone"])
    def test_first_party(self, app: Flask, browser: Browser, user: User, unticked: str) -> None:
        """Nobody is asked, so nothing has to be allowed; but what was unticked is withheld."""
        scope = f"{SCOPE} phone"
        client = make_client(app, first_party=True, scope=scope)
        browser.sign_in()
        tokens = tokens_of(browser, client, scope=scope)
        assert client.refresh(tokens["refresh_token"]).status_code == 200
        untick(browser, client, scope, unticked)
        profile = client.userinfo(tokens["access_token"]).get_json()
        assert ("email" in profile) is (unticked != "email")

    def test_no_longer_first_party(self, app: Flask, browser: Browser, user: User) -> None:
        client = make_client(app, first_party=True)
        browser.sign_in()
        tokens = tokens_of(browser, client)
        change(client, "--no-first-party")
        assert client.userinfo(tokens["access_token"]).status_code == 403
        assert "scope" in refused_refresh(client, tokens)
        fresh = tokens_of(browser, client)  # asks for consent
        assert client.refresh(fresh["refresh_token"]).status_code == 200


class TestOfflineAccess:
    @pytest.mark.parametrize("how", ["registered scope", "consent", "neither"])
    def test_without_it_the_grant_ends_with_the_session(
        self, app: Flask, browser: Browser, user: User, how: str
    ) -> None:
        client = make_client(app, scope=OFFLINE)
        tokens = tokens_of(browser, client, scope=OFFLINE)
        if how == "consent":
            untick(browser, client, OFFLINE, "offline_access")
        if how == "registered scope":
            change(client, "--set-scopes", SCOPE)
        assert client.userinfo(tokens["access_token"]).status_code == 200
        tokens |= client.refresh(tokens["refresh_token"]).get_json()
        assert ("offline_access" in tokens["scope"]) is (how == "neither")
        browser.open("/api/auth/sign-out")
        browser.submit(decision="sign_out")
        if how == "neither":
            assert client.userinfo(tokens["access_token"]).status_code == 200
            assert client.refresh(tokens["refresh_token"]).status_code == 200
        else:
            assert_all_refused(client, tokens, "sign-in")

    @pytest.mark.parametrize("how", ["asked for less", "registered scope", "consent", "neither"])
    def test_without_it_the_grant_ends_when_the_session_expires(
        self, clock: Clock, app: Flask, browser: Browser, user: User, how: str
    ) -> None:
        """Nobody signs out, so nothing has ended the grant itself."""
        client = make_client(app, scope=OFFLINE)
        scope = SCOPE if how == "asked for less" else OFFLINE
        tokens = tokens_of(browser, client, scope=scope)
        if how == "asked for less":  # the consent has it, this grant has not
            browser.approve(client, scope=OFFLINE)
        if how == "consent":
            untick(browser, client, OFFLINE, "offline_access")
        if how == "registered scope":
            change(client, "--set-scopes", SCOPE)
        clock.move(seconds=app.extensions["sso.settings"].session_lifetime + 1)
        if how == "neither":
            assert is_active(client, tokens["refresh_token"])
            assert client.refresh(tokens["refresh_token"]).status_code == 200
        else:
            assert not is_active(client, tokens["refresh_token"])
            assert "sign-in" in refused_refresh(client, tokens)

    def test_a_narrower_access_token_of_an_offline_grant_outlives_sign_out(
        self, app: Flask, browser: Browser, user: User
    ) -> None:
        client = make_client(app, scope=OFFLINE)
        tokens = tokens_of(browser, client, scope=OFFLINE)
        narrow = client.refresh(tokens["refresh_token"], scope="openid").get_json()
        browser.open("/api/auth/sign-out")
        browser.submit(decision="sign_out")
        assert client.userinfo(narrow["access_token"]).status_code == 200


class TestGroups:
    """The commands end such grants at once; here are those that they could not see."""

    @pytest.fixture
    def staff(self, app: Flask) -> User:
        return make_user(app, groups=["staff"])

    @pytest.mark.parametrize("groups", [["staff"], ["staff", "board"], ["board"], []])
    def test_membership(self, app: Flask, browser: Browser, staff: User, groups: list[str]) -> None:
        from sso.extensions import db
        from sso.store import clients

        client = make_client(app)
        tokens = tokens_of(browser, client)
        with app.app_context():
            row = clients.find(client.client_id)
            assert row is not None
            row.set_client_metadata({**row.client_metadata, "groups": groups})
            db.session.commit()
        if groups == ["board"]:
            assert_all_refused(client, tokens, "group")
        else:
            assert client.userinfo(tokens["access_token"]).status_code == 200
            assert is_active(client, tokens["refresh_token"])
            assert client.refresh(tokens["refresh_token"]).status_code == 200

    def test_a_code_that_waits(self, app: Flask, browser: Browser, staff: User) -> None:
        client = make_client(app, groups=["staff"])
        code = browser.approve(client).code
        change(client, "--set-groups", "board")
        assert client.exchange(code).get_json()["error"] == "invalid_grant"


class TestRequireMfa:
    def test_one_factor_is_refused(self, client: RelyingParty, tokens: dict[str, Any]) -> None:
        change(client, "--require-mfa")
        assert_all_refused(client, tokens, "two-step")
        change(client, "--no-require-mfa")
        assert client.refresh(tokens["refresh_token"]).status_code == 200

    def test_two_factors_go_on(
        self, app: Flask, browser: Browser, client: RelyingParty, user: User
    ) -> None:
        browser.sign_in()
        enrol_totp(browser)
        tokens = tokens_of(browser, client)
        change(client, "--require-mfa")
        assert client.userinfo(tokens["access_token"]).status_code == 200
        assert client.refresh(tokens["refresh_token"]).status_code == 200

    def test_what_was_given_before_the_second_factor_was_shown(
        self, clock: Clock, app: Flask, browser: Browser, client: RelyingParty, user: User
    ) -> None:
        """The session has two now; the grant was made with one."""
        tokens = tokens_of(browser, client)
        enrol_totp(browser)
        change(client, "--require-mfa")
        assert "two-step" in refused_refresh(client, tokens)

    def test_two_factors_of_which_the_client_asked_for_one(
        self, clock: Clock, app: Flask, client: RelyingParty, user: User
    ) -> None:
        """`acr` says what was asked for, and so less than what was reached."""
        browser = Browser(app)
        browser.sign_in()
        secret, _ = enrol_totp(browser)
        clock.move(minutes=2)
        dana = Browser(app)
        dana.sign_in()
        dana.submit(code=code_of(secret))
        claims = json.dumps({"id_token": {"acr": {"essential": True, "value": "1"}}})
        tokens = tokens_of(dana, client, claims=claims)
        assert claims_of(tokens["id_token"])["acr"] == "1"
        change(client, "--require-mfa")
        assert client.refresh(tokens["refresh_token"]).status_code == 200

    def test_a_code_that_waits(self, browser: Browser, client: RelyingParty, user: User) -> None:
        code = browser.approve(client).code
        change(client, "--require-mfa")
        answer = client.exchange(code).get_json()
        assert answer["error"] == "invalid_grant"
        assert "two-step" in answer["error_description"]


class TestANarrowerRefresh:
    """RFC 6749 §6: it holds for that access token, whatever `claims` asked for."""

    CLAIMS = json.dumps({"userinfo": {"email": None, "name": None}, "id_token": {"email": None}})

    def test_it_gives_less_at_userinfo(
        self, browser: Browser, client: RelyingParty, user: User
    ) -> None:
        tokens = tokens_of(browser, client, claims=self.CLAIMS)
        narrow = client.refresh(tokens["refresh_token"], scope="openid").get_json()
        profile = client.userinfo(narrow["access_token"]).get_json()
        assert set(profile) == {"sub", "id"}
        assert "email" not in claims_of(narrow["id_token"])
        narrow = client.refresh(narrow["refresh_token"], scope="openid email").get_json()
        assert "email" in client.userinfo(narrow["access_token"]).get_json()
        assert "name" not in client.userinfo(narrow["access_token"]).get_json()
        whole = client.refresh(narrow["refresh_token"]).get_json()
        profile = client.userinfo(whole["access_token"]).get_json()
        assert {"email", "name"} <= set(profile)
        assert claims_of(whole["id_token"])["email"] == user.email

    def test_the_whole_scope_by_name_is_not_narrower(
        self, browser: Browser, client: RelyingParty, user: User
    ) -> None:
        tokens = tokens_of(browser, client, scope="openid", claims=self.CLAIMS)
        same = client.refresh(tokens["refresh_token"], scope="openid").get_json()
        assert client.userinfo(same["access_token"]).get_json()["email"] == user.email

    def test_it_stays_narrower_when_the_rest_of_the_grant_goes(
        self, browser: Browser, client: RelyingParty, user: User
    ) -> None:
        tokens = tokens_of(browser, client, scope="openid profile", claims=self.CLAIMS)
        narrow = client.refresh(tokens["refresh_token"], scope="openid").get_json()
        change(client, "--set-scopes", "openid email")
        assert "email" not in client.userinfo(narrow["access_token"]).get_json()

    def test_all_claims_in_the_identity_token(
        self, app: Flask, browser: Browser, user: User
    ) -> None:
        client = make_client(app, id_token_claims="all")
        tokens = tokens_of(browser, client)
        narrow = client.refresh(tokens["refresh_token"], scope="openid").get_json()
        assert "email" not in claims_of(narrow["id_token"])
        assert "name" not in claims_of(narrow["id_token"])
