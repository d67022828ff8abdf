"""Sign-in at a provider's pages, sign-out in both directions, and what is asked again later."""

import re
import secrets
from dataclasses import replace
from html import unescape
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from flask import Flask
from sqlalchemy import select

from sso.checkup import others
from sso.config.upstream.file import Upstreams
from sso.config.upstream.oidc import GitHubProvider, GoogleProvider, MicrosoftProvider
from sso.extensions import db
from sso.jobs import upkeep
from sso.models import Identity, TotpSecret, User, WaitingSignIn
from sso.process import http_call
from sso.process.http_call import Answer
from tests.conftest import Clock
from tests.support.actors import BASE, ISSUER, Browser, RelyingParty, claims_of
from tests.support.factories import make_attribute, make_client, make_user
from tests.support.second_factors import code_of, enrol_totp
from tests.support.upstreams import Internet, Upstream, answered, provider

LOGOUT = f"{BASE}/backchannel-logout/corp"
TENANT = "8eaef023-2b34-4da1-9baa-8bc8c9d6a490"


@pytest.fixture
def corp(app: Flask, user: User, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Upstream:
    made = Upstream()
    monkeypatch.setattr(http_call, "call", Internet(made).call)
    configure(app, provider())
    return made


def configure(app: Flask, *providers: Any) -> None:
    app.extensions["sso.upstreams"] = Upstreams(providers)


def parameters(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))


def press(browser: Browser, name: str = "corp", **more: str) -> str:
    if "password" not in browser.page.fields:
        browser.open(f"{BASE}/sign-in?local=1")
    return browser.submit(upstream=name, **more).url


def leads_to(html: str) -> str:
    """Where a page goes on to by itself."""
    found = re.search(r'http-equiv="refresh" content="0;url=([^"]+)"', html)
    assert found
    return unescape(found[1])


def is_signed_in(browser: Browser) -> bool:
    return browser.open(f"{BASE}/account").path == f"{BASE}/account"


def test_what_the_application_asks_for_is_passed_on(
    app: Flask, corp: Upstream, browser: Browser, client: RelyingParty, clock: Clock
) -> None:
    configure(app, provider(two_factor_acr=("mfa",), two_factor_amr=("otp",)))
    browser.authorize(
        client, max_age="600", login_hint="dana@example.com", acr_values="2", ui_locales="de"
    )
    url = press(browser)
    asked = parameters(url)
    assert asked["login_hint"] == "dana@example.com"
    assert asked["ui_locales"] == "de"
    assert (asked["max_age"], asked["acr_values"], asked["scope"]) == (
        "600",
        "mfa",
        "openid profile email",
    )
    assert "prompt" not in asked
    assert asked["redirect_uri"] == f"{ISSUER}/sign-in/callback/corp"
    # Without auth_time there is no telling how old the sign-in is.
    assert "did not say when" in browser.open(corp.authorize(url)).html
    seen = int(clock.now().timestamp()) - 300
    corp.says |= {"auth_time": seen, "amr": ["pwd", "otp"], "sid": "s1"}
    browser.authorize(client, max_age="600", acr_values="2")
    browser.open(corp.authorize(press(browser)))
    claims = claims_of(client.exchange(browser.allow().code).get_json()["id_token"])
    assert (claims["auth_time"], claims["amr"], claims["acr"]) == (seen, ["fed", "mfa"], "2")
    browser.authorize(client, prompt="login")
    asked = parameters(press(browser))
    assert (asked["prompt"], asked["max_age"]) == ("login", "0")
    browser.authorize(client, prompt="select_account", max_age="0")
    assert "redirect_uri" in parameters(press(browser))


@pytest.mark.parametrize(("age", "is_refused"), [(None, True), (62, True), (58, False), (0, False)])
def test_a_provider_that_did_not_ask_again(
    corp: Upstream,
    browser: Browser,
    client: RelyingParty,
    clock: Clock,
    age: int | None,
    is_refused: bool,
) -> None:
    """The application demands a new sign-in, and the provider answers with an old one, or of no
    known age."""
    browser.open(corp.authorize(press(browser)))
    clock.move(minutes=10)
    browser.authorize(client, prompt="login")
    url = press(browser)
    corp.says["auth_time"] = None if age is None else int(clock.now().timestamp()) - age
    page = browser.open(corp.authorize(url))
    assert ("did not ask you to sign in again" in page.html) is is_refused
    page = browser.authorize(client, prompt="login") if is_refused else page
    assert (("decision", "allow") in page.buttons) is not is_refused


def test_an_older_sign_in_there_makes_none_here_older(
    corp: Upstream, browser: Browser, client: RelyingParty, clock: Clock
) -> None:
    """The session goes on, and its user signed in with the password since."""
    browser.sign_in()
    signed_in_at = int(clock.now().timestamp())
    clock.move(minutes=5)
    corp.says["auth_time"] = signed_in_at - 3000
    assert browser.open(corp.authorize(press(browser))).path == f"{BASE}/account"
    claims = claims_of(client.exchange(browser.approve(client).code).get_json()["id_token"])
    assert (claims["auth_time"], claims["amr"]) == (signed_in_at, ["fed"])


@pytest.mark.parametrize("age", [None, 0, 3000])
def test_the_second_factor_is_shown_here_however_old_the_sign_in_there(
    app: Flask,
    corp: Upstream,
    browser: Browser,
    client: RelyingParty,
    clock: Clock,
    age: int | None,
) -> None:
    """And the proof names both."""
    setting_up = Browser(app)
    setting_up.sign_in()
    secret, _ = enrol_totp(setting_up)
    clock.move(minutes=1)
    corp.says["auth_time"] = None if age is None else int(clock.now().timestamp()) - age
    browser.authorize(client)
    page = browser.open(corp.authorize(press(browser)))
    assert page.path == f"{BASE}/second-factor"
    assert not is_signed_in(Browser(app))
    page = browser.submit(code=code_of(secret))
    assert ("decision", "allow") in page.buttons
    claims = claims_of(client.exchange(browser.allow().code).get_json()["id_token"])
    assert claims["amr"] == ["fed", "otp", "mfa"]


def test_google_and_microsoft(app: Flask, corp: Upstream, browser: Browser) -> None:
    usual: dict[str, Any] = {"client_id": "us-at-corp", "client_secret": "x", "trust_email": True}
    google = GoogleProvider(id="google", type="google", hosted_domain="example.com", **usual)
    corp.issuer = google.issuer
    configure(app, google)
    url = press(browser, "google")
    assert parameters(url)["hd"] == "example.com"
    assert "access_type" not in parameters(url)
    configure(app, replace(google, recheck=300))
    asked = parameters(press(Browser(app), "google"))
    assert (asked["access_type"], asked["prompt"]) == ("offline", "consent")
    configure(app, google)
    assert browser.open(corp.authorize(url)).status == 400  # of no organization
    # Nor does userinfo say so, which is asked for the name that is missing.
    corp.says = {**corp.says, "name": None}
    corp.answers["/userinfo"] = answered({"sub": "1", "name": "Dana", "hd": "example.com"})
    refused = browser.open(corp.authorize(press(browser, "google")))
    assert "did not succeed" in refused.html
    del corp.answers["/userinfo"]
    corp.says |= {"name": "Dana There", "hd": "example.com"}
    other = Browser(app)
    assert other.open(corp.authorize(press(other, "google"))).path == f"{BASE}/account"
    # Without the organization, only its own addresses count as verified.
    configure(app, GoogleProvider(id="google", type="google", **usual))
    corp.says = {**corp.says, "sub": "2", "hd": None}
    assert browser.open(corp.authorize(press(browser, "google"))).path == f"{BASE}/sign-in"

    entra = MicrosoftProvider(id="entra", type="microsoft", tenant="common", **usual)
    corp.issuer = "https://login.microsoftonline.com"
    url = f"{corp.issuer}/common/v2.0/.well-known/openid-configuration"
    corp.answers[url.removeprefix(corp.issuer)] = answered(
        {**corp.document(), "issuer": f"{corp.issuer}/{{tenantid}}/v2.0",
         "authorization_response_iss_parameter_supported": False}
    )  # fmt: skip
    configure(app, entra)
    corp.token = {"iss": f"{corp.issuer}/{TENANT}/v2.0", "tid": TENANT, "email_verified": True}

    def come() -> str:
        return browser.open(corp.authorize(press(browser, "entra"), iss=None)).path

    assert come() == f"{BASE}/sign-in"  # its email_verified says nothing
    corp.token["xms_edov"] = True
    assert come() == f"{BASE}/account"


def test_github(app: Flask, corp: Upstream, browser: Browser) -> None:
    github = GitHubProvider(
        id="github", type="github", client_id="us", client_secret="x", trust_email=True
    )
    configure(app, github)
    corp.issuer = "https://"
    person, emails = (
        {"id": 7, "login": "dana", "name": None},
        [
            {"email": "old@example.com", "primary": False, "verified": True},
            {"email": "dana@example.com", "primary": True, "verified": False},
        ],
    )
    token = {"access_token": "at", "token_type": "bearer", "scope": "user:email"}
    corp.answers = {
        "github.com/login/oauth/access_token": answered(token),
        "api.github.com/user": answered(person),
        "api.github.com/user/emails": answered(emails),
    }

    def come() -> Any:
        asked = parameters(press(browser, "github"))
        assert asked["code_challenge_method"] == "S256"
        return browser.open(f"{asked['redirect_uri']}?code=c&state={asked['state']}")

    assert "Sign in once with your account" in come().html
    emails[1]["verified"] = True
    corp.answers["api.github.com/user/emails"] = answered(emails)
    assert come().path == f"{BASE}/account"
    with app.app_context():
        found = db.session.scalars(select(Identity)).one()
        assert (found.issuer, found.subject) == ("https://github.com", "7")
    corp.answers["api.github.com/user"] = Answer(403, {}, {}, b"rate limit")
    browser = Browser(app)
    assert come().status == 503


def test_the_provider_ends_its_sessions(
    app: Flask, corp: Upstream, browser: Browser, client: RelyingParty
) -> None:
    there = Browser(app)
    for number, one in enumerate((browser, there)):
        corp.says["sid"] = f"s{number}"
        one.authorize(client)
        one.open(corp.authorize(press(one)))
    tokens = client.exchange(browser.allow().code).get_json()

    def post(token: str) -> Any:
        return client.post("/backchannel-logout/corp", {"logout_token": token})

    refused: tuple[dict[str, Any], ...] = (
        {"iss": "https://evil.example"},
        {"aud": "another"},
        {"nonce": "x"},
        {"events": {}},
        {"events": None},
        {"jti": None},
        {"exp": 1},
        {"iat": 1},
        {"sub": None, "sid": None},
        {"sub": 7},
    )
    for wrong in refused:
        answer = post(corp.logout_token(**wrong))
        assert (answer.status_code, answer.get_json()["error"]) == (400, "invalid_request"), wrong
    assert post("x").status_code == post(corp.id_token("n")).status_code == 400
    assert client.post("/backchannel-logout/corp", {}).status_code == 400
    assert client.post("/backchannel-logout/none", {}).status_code == 404
    assert client.userinfo(tokens["access_token"]).status_code == 200
    token = corp.logout_token(sub=None, sid="s0")
    assert post(token).status_code == 200
    assert post(token).status_code == 400  # a replay
    assert client.userinfo(tokens["access_token"]).status_code == 401
    assert client.refresh(tokens["refresh_token"]).status_code == 400
    assert not is_signed_in(browser)
    assert is_signed_in(there)
    assert post(corp.logout_token()).status_code == 200
    assert not is_signed_in(there)


def test_signing_out_here_signs_out_there(app: Flask, corp: Upstream, browser: Browser) -> None:
    configure(app, provider(sign_out_upstream=True))
    browser.open(corp.authorize(press(browser)))
    browser.open(f"{BASE}/sign-out")
    away = leads_to(browser.submit(decision="sign_out").html)
    asked = parameters(away)
    assert away.startswith("https://corp.example/logout?")
    assert claims_of(asked["id_token_hint"])["sub"] == "1"
    back = f"{BASE}/sign-out?state={asked['state']}"
    assert asked["post_logout_redirect_uri"] == f"{ISSUER}/sign-out"
    assert "signed out" in browser.open(back).html
    assert not is_signed_in(browser)
    # Of an application, whose own way back follows.
    bye = "https://books.example/bye"
    client = make_client(app, post_logout_redirect_uris=[bye])
    browser.authorize(client)
    browser.open(corp.authorize(press(browser)))
    hint = client.exchange(browser.allow().code).get_json()["id_token"]
    query = f"id_token_hint={hint}&post_logout_redirect_uri={bye}&state=s"
    away = leads_to(browser.open(f"{BASE}/oauth2/end-session?{query}").html)
    assert away.startswith("https://corp.example/logout?")
    state = parameters(away)["state"]
    assert browser.open(f"{BASE}/sign-out?state={state}").url == f"{bye}?state=s"
    assert Browser(app).open(f"{BASE}/sign-out?state={state}").path == f"{BASE}/sign-out"
    # While the provider is away, the sign-out here works alone.
    browser.open(corp.authorize(press(browser)))
    del app.extensions["sso.upstream_clients"]
    corp.answers["/.well-known/openid-configuration"] = OSError("away")
    browser.open(f"{BASE}/sign-out")
    assert browser.submit(decision="sign_out").path == f"{BASE}/sign-out"
    assert not is_signed_in(browser)


@pytest.mark.parametrize("in_token", [True, False])
def test_userinfo_is_asked_for_groups_that_the_identity_token_lacks(
    app: Flask, corp: Upstream, browser: Browser, in_token: bool
) -> None:
    configure(app, provider(groups={"Engineering": "staff"}))
    corp.says["groups"] = ["Engineering"]
    corp.token = {} if in_token else {"groups": None}
    browser.open(corp.authorize(press(browser)))
    with app.app_context():
        assert db.session.scalars(select(User)).one().groups == ["staff"]
    urls = [url for url, _ in corp.asked]
    assert any(url.endswith("/userinfo") for url in urls) is not in_token


def test_a_person_who_is_gone_there_is_signed_out_here(
    app: Flask, corp: Upstream, browser: Browser, clock: Clock
) -> None:
    groups = {"Engineering": "staff", "Board": "board"}
    scope = ("openid", "email", "profile", "offline_access")
    configure(app, provider(recheck=300, scope=scope, groups=groups))
    corp.says["groups"] = ["Engineering"]
    browser.open(corp.authorize(press(browser)))

    def check() -> int:
        with app.app_context():
            return upkeep.recheck_providers()

    def ours() -> list[str]:
        with app.app_context():
            return db.session.scalars(select(User)).one().groups

    assert ours() == ["staff"]
    assert check() == 0
    clock.move(minutes=6)
    assert (check(), check()) == (1, 0)
    assert corp.sent_to("/token")[-1]["refresh_token"] == "rt"
    # The groups of now are taken over; while userinfo is away, they stay.
    clock.move(minutes=6)
    corp.says["groups"] = ["Board"]
    corp.answers["/userinfo"] = OSError("away")
    assert check() == 1
    assert ours() == ["staff"]
    clock.move(minutes=6)
    del corp.answers["/userinfo"]
    assert check() == 1
    assert ours() == ["board"]
    # Without the claim, they are in none; unless it is elsewhere.
    corp.says["groups"] = None
    corp.says["_claim_names"] = {"groups": "src1"}
    clock.move(minutes=6)
    assert check() == 1
    assert ours() == ["board"]
    del corp.says["_claim_names"]
    clock.move(minutes=6)
    assert check() == 1
    assert ours() == []
    corp.says["groups"] = "Engineering"  # a single one
    clock.move(minutes=6)
    assert check() == 1
    assert ours() == ["staff"]
    clock.move(minutes=6)
    corp.answers["/token"] = OSError("away")
    assert check() == 1
    assert is_signed_in(browser)
    # What is wrong with the provider, or with our registration, signs nobody out; nor does an
    # identity token that cannot be verified yet.
    for trouble in (
        answered({"error": "server_error"}, 400),
        answered({"error": "invalid_client"}, 401),
        answered({"error": "invalid_grant"}, 500),
        answered({"access_token": "at", "token_type": "Bearer", "id_token": "e30.e30.x"}),
    ):
        clock.move(minutes=6)
        corp.answers["/token"] = trouble
        assert check() == 1
        assert is_signed_in(browser)
    clock.move(minutes=6)
    corp.answers["/token"] = answered({"error": "invalid_grant"}, 400)
    assert check() == 1
    assert corp.sent_to("/token")[-1]["refresh_token"] == "rt2"
    assert not is_signed_in(browser)


def test_somebody_else_at_a_recheck(
    app: Flask, corp: Upstream, browser: Browser, clock: Clock
) -> None:
    """The refresh token gives tokens of the same person, or it counts for nobody."""
    configure(app, provider(recheck=300))
    for subject, is_still_in in (("1", True), ("2", False)):
        browser.open(corp.authorize(press(browser)))
        clock.move(minutes=6)
        id_token = corp.id_token(None)
        if subject != "1":
            corp.token["sub"] = subject
            id_token = corp.id_token(None)
        corp.answers["/token"] = answered(
            {"access_token": "at", "token_type": "Bearer", "id_token": id_token}
        )
        with app.app_context():
            assert upkeep.recheck_providers()
        corp.answers.clear()
        assert is_signed_in(browser) is is_still_in
        browser.open(f"{BASE}/sign-in")


def test_a_parameter_that_is_repeated(corp: Upstream, browser: Browser) -> None:
    for repeated in ("code=x", "iss=https://corp.example"):
        answer = corp.authorize(press(browser))
        assert "did not succeed" in browser.open(f"{answer}&{repeated}").html


def linked(app: Flask) -> int:
    with app.app_context():
        return len(db.session.scalars(select(Identity)).all())


def connect(corp: Upstream, browser: Browser) -> str:
    """The owner of the account goes to the provider; where it sends them back to."""
    browser.open(f"{BASE}/sign-in?local=1")
    browser.sign_in()
    browser.open(f"{BASE}/account/identities")
    return corp.authorize(browser.submit(action="connect").url)


def test_an_identity_is_linked_to_who_asked_for_it(
    app: Flask, corp: Upstream, browser: Browser
) -> None:
    """Not to somebody who has signed in on this browser in between."""
    make_user(app, "erin@example.com")
    answer = connect(corp, browser)
    browser.open(f"{BASE}/sign-out")
    browser.submit(decision="sign_out")
    browser.open(f"{BASE}/sign-in?local=1")
    browser.sign_in("erin@example.com")
    browser.open(answer)
    assert linked(app) == 0


def test_linking_takes_a_fresh_sign_in_at_its_end(
    app: Flask, corp: Upstream, browser: Browser, clock: Clock
) -> None:
    answer = connect(corp, browser)
    clock.move(minutes=6)
    assert "password" in browser.open(answer).fields
    assert linked(app) == 0


def test_linking_takes_the_second_factor_at_its_end(
    app: Flask, corp: Upstream, browser: Browser, user: User
) -> None:
    answer = connect(corp, browser)
    with app.app_context():
        db.session.add(TotpSecret(user_id=user.id, sealed_secret="x"))
        db.session.commit()
    browser.open(answer)
    assert linked(app) == 0


def test_without_a_refresh_token_the_access_token_is_introspected(
    app: Flask, corp: Upstream, browser: Browser, clock: Clock
) -> None:
    configure(app, provider(recheck=300))
    corp.gives_refresh_tokens = False

    def check() -> int:
        clock.move(minutes=6)
        with app.app_context():
            return upkeep.recheck_providers()

    with app.app_context():
        (_, warning) = others.providers()
        assert "offline_access" in (warning.hint or "")
    browser.open(corp.authorize(press(browser)))
    assert check() == 1  # nothing to ask with, and nowhere to ask
    assert is_signed_in(browser)
    browser.open(f"{BASE}/sign-out")
    browser.submit(decision="sign_out")

    corp.metadata = {"introspection_endpoint": "https://corp.example/introspect"}
    configure(app, provider(recheck=300))
    with app.app_context():
        assert len(list(others.providers())) == 1
    browser.open(corp.authorize(press(browser)))
    assert check() == 1
    assert corp.sent_to("/introspect") == [{"token": "at"}]
    assert is_signed_in(browser)
    for trouble in (OSError("away"), answered({}), answered({"active": "no"}), answered({}, 403)):
        corp.answers["/introspect"] = trouble
        assert check() == 1
        assert is_signed_in(browser)
    del corp.answers["/introspect"]
    corp.is_let_in = False
    assert check() == 1
    assert not is_signed_in(browser)


@pytest.mark.slow
def test_sessions_that_cannot_be_checked_do_not_hold_up_others(
    app: Flask, corp: Upstream, clock: Clock
) -> None:
    """The provider fails at two of three: the third is checked in the same round."""
    configure(app, provider(recheck=300))
    browsers = [Browser(app) for _ in range(3)]
    for one in browsers:
        one.open(corp.authorize(press(one)))
        clock.move(seconds=1)
    failing = [OSError("away"), OSError("away")]
    corp.answers["/token"] = answered({"error": "invalid_grant"}, 400)
    call = http_call.call

    def fails_twice(method: str, url: str, *given: Any, **more: Any) -> Answer:
        if failing and url.endswith("/token"):
            raise failing.pop()
        return call(method, url, *given, **more)

    clock.move(minutes=6)
    with pytest.MonkeyPatch.context() as patched, app.app_context():
        patched.setattr(http_call, "call", fails_twice)
        assert upkeep.recheck_providers() == 3
    assert [is_signed_in(one) for one in browsers] == [True, True, False]
    # They do not count as checked: they are asked about as soon as the provider is back.
    with app.app_context():
        assert upkeep.recheck_providers() == 2
        assert upkeep.recheck_providers() == 0
    assert [is_signed_in(one) for one in browsers] == [False] * 3


@pytest.mark.slow
def test_nothing_of_a_long_request_is_lost(
    app: Flask, corp: Upstream, browser: Browser, client: RelyingParty, clock: Clock
) -> None:
    """Three of them in three tabs: cookies hold none of it, and a header holds all cookies."""
    for _ in range(3):
        state = secrets.token_urlsafe(3400)
        browser.authorize(client, state=state, claims='{"userinfo": {"name": null}}')
        answer = corp.authorize(press(browser))
    sent = "; ".join(f"{c.key}={c.value}" for c in (browser.http._cookies or {}).values())
    assert len(sent) < 8000
    clock.move(minutes=14)  # at the provider
    with app.app_context():
        upkeep.purge()
    assert browser.open(answer).path == f"{BASE}/consent"
    assert browser.submit(decision="allow").parameters["state"] == state
    assert browser.open(answer).status == 400  # once
    # Ordinary ones are not stored: nobody fills the table without trying.
    browser.authorize(client)
    press(browser)
    with app.app_context():
        assert len(db.session.scalars(select(WaitingSignIn)).all()) == 3
    # Those that are stored are bounded, and gone after a while.
    clock.move(hours=2)
    with app.app_context():
        upkeep.purge()
        assert db.session.scalars(select(WaitingSignIn)).all() == []


def test_the_doctor_asks_each_provider(app: Flask, corp: Upstream) -> None:
    def seen() -> list[tuple[str, str]]:
        app.extensions.pop("sso.upstream_clients", None)
        with app.app_context():
            return [(one.status.value, one.seen) for one in others.providers()]

    assert seen() == [("ok", "corp: answers, with 1 keys, and knows client_id and secret")]
    corp.answers["/token"] = answered({"error": "invalid_client"}, 401)
    [(status, text)] = seen()
    assert (status, "invalid_client" in text) == ("wrong", True)
    corp.answers["/.well-known/openid-configuration"] = OSError("no route")
    assert seen()[0][0] == "wrong"
    github: dict[str, Any] = {"client_id": "us", "client_secret": "x", "sign_up": True}
    configure(app, GitHubProvider(id="github", type="github", **github))
    corp.issuer = "https://api.github.com"
    corp.answers = {"/": answered({})}
    assert [one for one, _ in seen()] == ["warning", "ok"]
    configure(app)
    assert seen() == [("skipped", "SSO_UPSTREAM_FILE names none")]


def test_attributes_of_a_provider(
    app: Flask, corp: Upstream, browser: Browser, client: RelyingParty
) -> None:
    """From the identity token or userinfo; without the claim, the value goes."""
    configure(app, provider(attributes={"dept": "department", "https://x/level": "level"}))
    make_attribute(app, "department", writers=["upstream"])
    make_attribute(app, "level", "number", writers=["upstream"])

    def values_after(**claims: Any) -> dict[str, Any]:
        corp.says |= claims
        other = Browser(app)
        other.authorize(client)
        other.open(corp.authorize(press(other)))
        with app.app_context():
            user = db.session.scalars(select(User).where(User.email == "dana@example.com")).one()
            origins = user.attribute_origins or {}
            assert origins == dict.fromkeys(user.attributes, "upstream:corp")
            return dict(user.attributes)

    both = {"dept": "Sales", "https://x/level": "3"}
    assert values_after(**both) == {"department": "Sales", "level": 3}
    assert values_after(dept=["a", "b"]) == {"department": "Sales", "level": 3}
    assert values_after(dept=None) == {"level": 3}
    corp.says.pop("dept", None)
    corp.says["_claim_names"] = {"https://x/level": "src1"}
    del corp.says["https://x/level"]
    assert values_after() == {"level": 3}


def test_doctor_names_attributes_that_nobody_defined(app: Flask, corp: Upstream) -> None:
    configure(app, one := provider(attributes={"dept": "department"}))
    with app.app_context():
        texts = [str(finding.seen) for finding in others.one_provider(one)]
        assert any("department is not defined with the writer" in text for text in texts)
    make_attribute(app, "department", writers=["upstream"])
    with app.app_context():
        texts = [str(finding.seen) for finding in others.one_provider(one)]
        assert not any("not defined" in text for text in texts)
