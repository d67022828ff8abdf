"""What an attacker may want of sign-ins through other providers, or a provider of ours."""

import socket
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import func, select

from sso.config.upstream.file import Upstreams
from sso.extensions import db
from sso.models import Identity, User
from sso.process import http_call
from sso.upstream.id_tokens import LOGOUT
from tests.conftest import Clock
from tests.support.actors import BASE, Browser, Page
from tests.support.factories import make_user
from tests.support.signing import EC, OTHER_EC, RSA, public, sign
from tests.support.upstreams import Internet, Upstream, answered, counted, provider

REAL_CALL = http_call.call
CALLBACK = f"{BASE}/sign-in/callback"


class World:
    """Two providers: that of the company, and that of an attacker."""

    def __init__(self, app: Flask) -> None:
        self.app = app
        self.corp = Upstream()
        self.evil = Upstream("https://evil.example", "us-at-evil", OTHER_EC)
        self.configure(provider(), provider("evil"))

    def configure(self, *providers: Any) -> None:
        self.app.extensions["sso.upstreams"] = Upstreams(providers)

    def start(self, browser: Browser, name: str = "corp") -> str:
        """The button: where the browser is sent."""
        browser.open(f"{BASE}/sign-in?local=1")
        return browser.submit(upstream=name).url

    def sign_in(self, browser: Browser, upstream: Upstream | None = None) -> Page:
        upstream = upstream or self.corp
        name = "evil" if upstream is self.evil else "corp"
        return browser.open(upstream.authorize(self.start(browser, name)))

    def signed_in(self, browser: Browser) -> str | None:
        """The email on the account page, if somebody is signed in."""
        page = browser.open(f"{BASE}/account")
        if page.path != f"{BASE}/account":
            return None
        return next(one for one in ("dana@example.com", "erin@example.com") if one in page.html)

    def identities(self) -> int:
        with self.app.app_context():
            return db.session.scalar(select(func.count()).select_from(Identity)) or 0


@pytest.fixture
def world(app: Flask, user: User, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(app)
    monkeypatch.setattr(http_call, "call", Internet(made.corp, made.evil).call)
    return made


def test_the_way_there_and_back(world: World, browser: Browser) -> None:
    assert world.sign_in(browser).path == f"{BASE}/account"
    assert world.signed_in(browser) == "dana@example.com"
    urls = [url for url, _ in world.corp.asked]
    assert not any("userinfo" in url for url in urls)  # the identity token has it all


def test_a_token_that_is_wrong_in_one_way(world: World, browser: Browser) -> None:
    """Another's issuer, audience, key, time or nonce; each is refused, and a right one taken."""
    corp = world.corp
    wrong: dict[str, Callable[[], None]] = {
        "iss": lambda: corp.token.update(iss="https://evil.example"),
        "aud": lambda: corp.token.update(aud="another"),
        "aud and no azp": lambda: corp.token.update(aud=["us-at-corp", "another"]),
        "azp": lambda: corp.token.update(azp="another"),
        "exp": lambda: corp.token.update(exp=1),
        "no exp": lambda: corp.token.update(exp=None),
        "iat": lambda: corp.token.update(iat=1),
        "of the future": lambda: corp.token.update(nbf=99999999999),
        "nonce": lambda: corp.token.update(nonce="another"),
        "no nonce": lambda: corp.token.update(nonce=None),
        "at_hash": lambda: corp.token.update(at_hash="x"),
        "sub": lambda: corp.token.update(sub=7),
        "sub that no database takes": lambda: corp.token.update(sub="a\ud800"),
        "sub with NUL": lambda: corp.token.update(sub="a\0"),
        "long sub": lambda: corp.token.update(sub="x" * 256),
        "events": lambda: corp.token.update(events={LOGOUT: {}}),
        "logout": lambda: corp.header.update(typ="logout+jwt"),
        "alg": lambda: corp.header.update(alg="HS256"),
        "kid": lambda: corp.header.update(kid="k2"),
        "key": lambda: vars(corp).update(key=RSA, header={"alg": "RS256"}),
    }  # fmt: skip
    assert world.sign_in(Browser(world.app)).path == f"{BASE}/account"  # its keys are known now
    for what, make in wrong.items():
        corp.token, corp.header, corp.key = {}, {}, EC
        make()
        if what == "alg":
            answer = {"access_token": "at", "token_type": "Bearer", "id_token": "e30.e30."}
            corp.answers["/token"] = answered(answer)
        page = world.sign_in(browser)
        corp.answers.clear()
        assert page.status == 400, what
        assert "did not succeed" in page.html, what
        assert world.signed_in(browser) is None, what
    corp.token, corp.header, corp.key = {}, {}, EC
    corp.token = {"aud": ["us-at-corp", "project"], "azp": "us-at-corp"}
    assert world.sign_in(browser).path == f"{BASE}/account"


def test_an_answer_of_one_provider_is_not_taken_for_anothers(
    world: World, browser: Browser
) -> None:
    """Mix-up: the code of the honest provider must never go to the attacker's."""
    there = world.start(browser, "evil")
    # The attacker's provider sends the browser on to the honest one, which sends it back with its
    # own code, to the redirect URI that it knows: that of the honest one.
    answer = world.corp.authorize(world.start(Browser(world.app)))
    state = world.evil.authorize(there).partition("state=")[2].partition("&")[0]
    for path in ("corp", "evil"):
        mixed = answer.replace("/corp?", f"/{path}?").partition("&state=")[0]
        page = browser.open(f"{mixed}&state={state}&iss=https://corp.example")
        assert page.status == 400
    assert not any(url.endswith("/token") for url, _ in world.evil.asked)
    # Without `iss`, though the provider promises one; with it twice; with another one.
    for iss in (None, "https://corp.example.evil.example"):
        page = browser.open(world.corp.authorize(world.start(browser), iss=iss))
        assert page.status == 400
    assert not any(url.endswith("/token") for url, _ in world.corp.asked)
    assert world.signed_in(browser) is None


def test_an_answer_of_another_server_though_none_was_promised(
    world: World, browser: Browser
) -> None:
    """A provider that does not say whether it sends `iss` may do so; then it has to be its own."""
    world.corp.metadata = {"authorization_response_iss_parameter_supported": None}
    for iss in ("https://evil.example", "https://corp.example/"):
        page = browser.open(world.corp.authorize(world.start(browser), iss=iss))
        assert "did not succeed" in page.html
    assert not any(url.endswith("/token") for url, _ in world.corp.asked)
    for own in (None, "https://corp.example"):
        visitor = Browser(world.app)
        visitor.open(world.corp.authorize(world.start(visitor), iss=own))
        assert world.signed_in(visitor) == "dana@example.com"


def test_a_malicious_provider_speaks_for_itself_alone(world: World, browser: Browser) -> None:
    """It claims another's issuer, sub, or email: none of these leads into an account."""
    assert world.sign_in(Browser(world.app)).path == f"{BASE}/account"  # Dana, by the honest one
    world.evil.token = {"iss": "https://corp.example"}
    assert world.sign_in(browser, world.evil).status == 400
    world.evil.token = {}
    world.configure(
        provider(), provider("evil", trust_email=False), provider("third", domains=("x.example",))
    )
    assert "Sign in once with your account" in world.sign_in(browser, world.evil).html
    # Trusted for its own domain, it says nothing of another one's people.
    world.configure(provider(), provider("evil", domains=("evil.example",)))
    assert "Sign in once with your account" in world.sign_in(browser, world.evil).html
    assert world.signed_in(browser) is None
    assert world.identities() == 1
    # Userinfo is about somebody else than the identity token.
    world.corp.token = {"email": None}
    world.corp.answers["/userinfo"] = answered({"sub": "2", "email": "erin@example.com"})
    assert world.sign_in(browser).status == 400


def test_an_email_is_verified_only_with_its_own_word(world: World, browser: Browser) -> None:
    """The address is from the identity token, the word from userinfo, about another address."""
    world.corp.token = {"sub": "66", "email_verified": None, "name": None}
    world.corp.answers["/userinfo"] = answered(
        {"sub": "66", "email": "mallory@example.com", "email_verified": True, "name": "M"}
    )
    assert "Sign in once with your account" in world.sign_in(browser).html
    assert world.identities() == 0


@pytest.mark.parametrize(
    "claim", [{"email": "dana@example.com", "email_verified": True}, {"sub": "1"}, {"iss": "x"}]
)
def test_userinfo_replaces_nothing_of_the_identity_token(
    world: World, browser: Browser, claim: dict[str, Any]
) -> None:
    """It is asked for the name alone, and answers with more."""
    world.configure(provider(sign_up=True))
    assert world.sign_in(Browser(world.app)).path == f"{BASE}/account"  # Dana, sub 1
    world.corp.token = {"sub": "66", "email": "mallory@example.com", "name": None}
    world.corp.answers["/userinfo"] = answered({"sub": "66", "name": "M", **claim})
    world.sign_in(browser)
    with world.app.app_context():
        rows = db.session.execute(
            select(User.email, Identity.issuer, Identity.subject).join(
                Identity, Identity.user_id == User.id
            )
        ).all()
    mallory = [("mallory@example.com", world.corp.issuer, "66")] if "sub" not in claim else []
    assert sorted(map(tuple, rows)) == [("dana@example.com", world.corp.issuer, "1"), *mallory]


def test_an_account_made_before_its_owner_comes(world: World, browser: Browser) -> None:
    """Pre-hijacking, from both sides."""
    # Somebody set up an account with the victim's address, and knows its password.
    make_user(world.app, "erin@example.com", email_verified=False)
    world.corp.says |= {"sub": "9", "email": "erin@example.com"}
    world.configure(provider(sign_up=True))
    assert "Sign in once with your account" in world.sign_in(browser).html
    assert world.identities() == 0
    # The attacker comes first, with the victim's address, which the provider has not verified.
    world.corp.says |= {"sub": "10", "email": "victim@example.com", "email_verified": False}
    world.sign_in(Browser(world.app))
    with world.app.app_context():
        assert db.session.scalar(select(User.id).where(User.email == "victim@example.com")) is None


def test_a_state_counts_once_and_in_its_browser(
    world: World, browser: Browser, clock: Clock
) -> None:
    """Login CSRF: the attacker's answer in the victim's browser; and replays."""
    attacker = Browser(world.app)
    world.evil.says["sub"] = "66"
    answer = world.corp.authorize(world.start(attacker))
    world.start(browser)  # the victim has begun one, too
    page = browser.open(answer)
    assert (page.status, page.path) == (400, f"{CALLBACK}/corp")
    assert "another browser" in page.html
    assert world.signed_in(browser) is None
    # It still counts where it was begun, once.
    cookies = attacker.http._cookies or {}
    kept, codes = dict(cookies), dict(world.corp.codes)
    assert attacker.open(answer).path == f"{BASE}/account"
    cookies.update(kept)  # as before the answer
    world.corp.codes.update(codes)  # the provider would accept the code once more
    assert attacker.open(answer).status == 400
    # Not after a quarter of an hour.
    answer = world.corp.authorize(world.start(browser))
    clock.move(minutes=16)
    assert browser.open(answer).status == 400
    # Two tabs at once do not disturb each other.
    one, two = (world.corp.authorize(world.start(browser)) for _ in range(2))
    assert browser.open(one).path == f"{BASE}/account"
    assert two != one


def test_an_identity_token_is_not_replayed(world: World, browser: Browser) -> None:
    """One that was issued for another sign-in has another nonce."""
    old = world.corp.id_token("nonce of another sign-in")
    world.corp.answers["/token"] = answered(
        {"access_token": "x", "token_type": "Bearer", "id_token": old}
    )
    assert world.sign_in(browser).status == 400
    assert world.signed_in(browser) is None


def test_a_provider_that_is_away_names_itself_and_nothing_else(
    world: World, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = counted(monkeypatch)
    for trouble in (
        {"/token": OSError("no route")},
        {"/token": answered(["x"])},
        {"/token": answered({}, 500)},
        {"/token": answered({}, 302)},
    ):
        world.configure(replace(provider(), name="Example Corp"))  # another client each time
        world.corp.answers = dict(trouble)
        page = world.sign_in(browser)
        assert page.status == 503
        assert "Example Corp cannot be reached" in page.html
    world.corp.answers = {}
    browser.open(f"{BASE}/sign-in?local=1")
    assert browser.sign_in().path == f"{BASE}/account"
    world.sign_in(Browser(world.app))
    world.evil.token = {"iss": "https://corp.example"}
    world.configure(provider(), provider("evil"))
    world.sign_in(Browser(world.app), world.evil)
    outcomes = {("corp", "unavailable"): 4, ("corp", "ok"): 1, ("evil", "refused"): 1}
    assert read() == outcomes


def test_a_failing_provider_is_left_alone_for_a_while(
    world: World, browser: Browser, clock: Clock
) -> None:
    world.corp.answers = {"/token": OSError("no route")}
    for _ in range(5):
        assert world.sign_in(browser).status == 503
    assert sum(url.endswith("/token") for url, _ in world.corp.asked) == 3
    assert world.signed_in(browser) is None
    world.corp.answers = {}
    clock.move(seconds=40)
    assert world.sign_in(browser).path == f"{BASE}/account"


def test_rotated_keys_and_changed_endpoints_are_picked_up(
    world: World, browser: Browser, clock: Clock
) -> None:
    world.sign_in(Browser(world.app))
    clock.move(minutes=1)
    world.corp.key, world.corp.kid = OTHER_EC, "k2"
    assert world.sign_in(browser).path == f"{BASE}/account"
    world.corp.metadata = {"token_endpoint": "https://corp.example/token2"}
    world.corp.answers = {"/token": OSError("gone"), "/token2": answered({"error": "x"}, 400)}
    clock.move(minutes=1)
    for _ in range(10):  # its metadata is read again in the background
        world.sign_in(Browser(world.app))
        if world.corp.sent_to("/token2"):
            break
        time.sleep(0.05)
    assert world.corp.sent_to("/token2")


def test_metadata_that_leads_elsewhere(app: Flask, user: User, browser: Browser) -> None:
    """Server-side request forgery by discovery: private addresses are refused."""
    for issuer in ("http://127.0.0.1:9", "https://[::1]:9", "http://localhost:9"):
        app.extensions["sso.upstreams"] = Upstreams([provider(issuer=issuer)])
        browser.open(f"{BASE}/sign-in")
        page = browser.submit(upstream="corp")
        assert page.status == 503, issuer
        client = app.extensions["sso.upstream_clients"]["corp"]
        entry = client.discovered._metadata._entries[client.provider.discovery_url]
        assert "private" in str(entry.trouble), issuer


def test_endpoints_that_lead_elsewhere(
    world: World, browser: Browser, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metadata is public; what it names, or a redirect, is not. Nothing private is called.

    Each request looks the name up once, so that another address later changes nothing.
    """
    called: list[Any] = []
    corp, real, inside = world.corp, REAL_CALL, "https://inside.example"
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 443))
        for address in ("10.0.0.7", "127.0.0.1", "169.254.169.254")
    ])  # fmt: skip
    monkeypatch.setattr(socket.socket, "connect", lambda _, address: called.append(address))
    internet = http_call.call

    def call(method: str, url: str, *given: Any, **more: Any) -> http_call.Answer:
        stands_for = internet if url.startswith(corp.issuer) else real
        return stands_for(method, url, *given, **more)

    monkeypatch.setattr(http_call, "call", call)
    corp.says |= {"email": None}  # so that userinfo is asked
    for name in ("jwks_uri", "token_endpoint", "userinfo_endpoint"):
        world.configure(provider())
        corp.metadata = {name: f"{inside}/x"}
        assert world.sign_in(browser).status == 503, name
        client = world.app.extensions["sso.upstream_clients"]["corp"]
        keys = client.discovered._keys._entries.get(f"{inside}/x")
        assert "ForbiddenPeer" in f"{client.caller.trouble} {keys and keys.trouble}", name
    corp.metadata = {}
    moved = http_call.Answer(302, {"location": f"{inside}/x"}, {}, b"")
    for path in ("/.well-known/openid-configuration", "/jwks", "/token", "/userinfo"):
        world.configure(provider())
        corp.answers = {path: moved}
        browser.open(f"{BASE}/sign-in?local=1")
        page = browser.submit(upstream="corp")
        if page.url.startswith(corp.issuer):
            page = browser.open(corp.authorize(page.url))
        assert page.status == 503, path
    assert called == []
    assert world.identities() == 0


def test_metadata_of_another_issuer_or_with_odd_urls(world: World, browser: Browser) -> None:
    for odd in (
        {"issuer": "https://evil.example"},
        {"token_endpoint": "file:///etc/passwd"},
        {"token_endpoint": "http://corp.example/token"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"jwks_uri": None},
    ):
        world.configure(provider())
        world.corp.metadata = odd
        browser.open(f"{BASE}/sign-in")
        assert browser.submit(upstream="corp").status == 503, odd


def test_a_key_of_one_tenant_signs_for_no_other(world: World) -> None:
    keys = [public(EC, "k1", issuer="https://corp.example/other")]
    world.corp.answers["/jwks"] = answered({"keys": keys})
    assert world.sign_in(Browser(world.app)).status == 400
    assert sign({"a": 1})  # of the same key, which is fine by itself
