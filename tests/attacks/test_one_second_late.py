"""The attacker is late, by a second: with a code, a link, a session, a page that was left open.

Each lifetime is tried one second before it ends, at that very moment, and one second after it.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest
from flask import Flask

from sso import audit
from sso import clock as sso_clock
from sso.crypto import client_jwt, dpop
from sso.endpoints import upstream_sign_in
from sso.extensions import db
from sso.flow.decision import Facts, Policy, Session
from sso.mfa import policy, totp
from sso.models import User
from sso.oauth.grants import authorization_code
from sso.ratelimit.limiting import Pauses
from sso.services import api_tokens, clients, mail_links, second_factors
from sso.store import expired, factors, mail_tokens
from sso.store.sessions import CurrentSession
from sso.upstream import id_tokens
from sso.upstream.identity import UpstreamRefused
from tests.attacks.test_purged_between import Use, World
from tests.conftest import Clock
from tests.oauth.test_signed_requests import made, send
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty
from tests.support.assertions import ask_assertion, make_asserting
from tests.support.each import each
from tests.support.factories import make_client
from tests.support.proofs import DPoP
from tests.support.second_factors import code_of, enrol_totp
from tests.support.signing import make_keyed_client

SECOND = timedelta(seconds=1)


class Still(Clock):
    """All readings of a moment are the same, so that a bound can be met exactly."""

    def now(self) -> datetime:
        return self.time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    still = Still()
    monkeypatch.setattr(sso_clock, "source", still.now)
    return still


@pytest.fixture
def world(
    app: Flask,
    user: User,
    clock: Clock,
    browser: Browser,
    client: RelyingParty,
    monkeypatch: pytest.MonkeyPatch,
) -> World:
    return World(app, user, clock, browser, client, monkeypatch)


def configure(world: World, **more: Any) -> None:
    settings = world.app.extensions["sso.settings"]
    world.app.extensions["sso.settings"] = replace(settings, **more)


def is_account(browser: Browser) -> bool:
    return browser.open(f"{ORIGIN}{BASE}/account").path == f"{BASE}/account"


def code(world: World) -> Use:
    text = world.browser.approve(world.client).code
    return lambda: world.client.exchange(text).status_code == 200


def code_is_repeated(world: World) -> Use:
    """A double click ends nothing, a later reuse does."""
    text = world.browser.approve(world.client).code
    token = world.client.exchange(text).get_json()["access_token"]

    def use() -> bool:
        assert world.client.exchange(text).status_code == 400
        return world.client.userinfo(token).status_code == 200

    return use


def access_token(world: World) -> Use:
    tokens = world.client.exchange(world.browser.approve(world.client).code).get_json()
    return lambda: world.client.userinfo(tokens["access_token"]).status_code == 200


def access_token_introspected(world: World) -> Use:
    tokens = world.client.exchange(world.browser.approve(world.client).code).get_json()
    return lambda: bool(world.client.introspect(tokens["access_token"]).get_json()["active"])


def refresh_token(world: World) -> Use:
    configure(world, refresh_token_lifetime=5000)
    text = world.client.exchange(world.browser.approve(world.client).code).get_json()
    return lambda: world.client.refresh(text["refresh_token"]).status_code == 200


def refresh_tokens_of_a_grant(world: World) -> Use:
    configure(world, refresh_token_absolute_lifetime=5000)
    text = world.client.exchange(world.browser.approve(world.client).code).get_json()
    return lambda: world.client.refresh(text["refresh_token"]).status_code == 200


def refresh_is_repeated(world: World) -> Use:
    text = world.client.exchange(world.browser.approve(world.client).code).get_json()
    assert world.client.refresh(text["refresh_token"]).status_code == 200
    return lambda: world.client.refresh(text["refresh_token"]).status_code == 200


def pushed_request(world: World) -> Use:
    uri = world.client.push().get_json()["request_uri"]
    query = {"client_id": world.client.client_id, "request_uri": uri}
    return lambda: "code" in world.browser.open_authorize(query).parameters


def idle_session(world: World) -> Use:
    configure(world, session_lifetime=5000)
    browser = Browser(world.app)
    browser.sign_in()
    return lambda: is_account(browser)


def session_at_its_end(world: World) -> Use:
    configure(world, session_absolute_lifetime=5000)
    browser = Browser(world.app)
    browser.sign_in()
    return lambda: is_account(browser)


def page_left_open(world: World) -> Use:
    browser = Browser(world.app)
    browser.authorize(world.client)

    def use() -> bool:
        page = browser.sign_in()
        return ("decision", "allow") in page.buttons or not page.is_at_server

    return use


def second_step(world: World) -> Use:
    """The password was right; the code follows."""
    with world.app.app_context():
        enrolled = factors.has_any(db.session.connection(), world.user.id)
    if not enrolled:
        setting_up = Browser(world.app)
        setting_up.sign_in()
        world.secret = enrol_totp(setting_up)[0]  # type: ignore[attr-defined]
    browser = Browser(world.app)
    browser.sign_in()

    def use() -> bool:
        browser.submit(code=code_of(world.secret))  # type: ignore[attr-defined]
        return is_account(browser)

    return use


def mailed(purpose: str) -> Callable[[World], Use]:
    def make(world: World) -> Use:
        with world.app.app_context():
            user = db.session.get_one(User, world.user.id)
            secret = mail_links.make(purpose, user.email, user)[1].partition("token=")[2]
            db.session.commit()

        def use() -> bool:
            with world.app.app_context():
                if not mail_links.find(secret, purpose):
                    # Nor by somebody who had looked it up before.
                    assert mail_links.redeem(secret, purpose) is None
                    return False
                return mail_links.redeem(secret, purpose) is not None

        return use

    make.__name__ = f"link_to_{purpose}"
    return make


def link_that_was_looked_up(world: World) -> Use:
    with world.app.app_context():
        user = db.session.get_one(User, world.user.id)
        token = mail_links.make(mail_links.RESET, user.email, user)[0]
        db.session.commit()
        db.session.refresh(token)
        db.session.expunge(token)

    def use() -> bool:
        with world.app.app_context():
            return mail_tokens.use(token)

    return use


def emailed(world: World) -> Use:
    session_id = uuid4()
    with world.app.app_context():
        user = db.session.get_one(User, world.user.id)
        text = second_factors.make_emailed_code(user, session_id)[1]
        db.session.commit()

    def use() -> bool:
        with world.app.app_context():
            user = db.session.get_one(User, world.user.id)
            return second_factors.accept_emailed_code(audit.USER, user, session_id, text)

    return use


def identity_token(world: World) -> Use:
    client = make_asserting(world.app)
    text = client.exchange(world.browser.approve(client).code).get_json()["id_token"]
    return lambda: ask_assertion(client, text).status_code == 200


def api_token(world: World) -> Use:
    with world.app.app_context():
        _, secret = api_tokens.create(
            audit.SYSTEM, uuid4().hex, ["scim:read"], timedelta(seconds=5000)
        )
        db.session.commit()

    def use() -> bool:
        with world.app.app_context():
            try:
                api_tokens.accept(secret, None)
            except api_tokens.Refused:
                return False
            return True

    return use


def old_client_secret(world: World) -> Use:
    client = make_client(world.app)
    with world.app.app_context():
        clients.rotate_secret(audit.SYSTEM, client.client_id, timedelta(seconds=5000))
        db.session.commit()
    return lambda: client.introspect("t").status_code == 200


# How long it works, and whether still at the very end.
LIFETIMES: dict[Callable[[World], Use], tuple[int, bool]] = {
    code: (60, False),
    code_is_repeated: (1, True),
    access_token: (3600, False),
    access_token_introspected: (3600, False),
    refresh_token: (5000, False),
    refresh_tokens_of_a_grant: (5000, False),
    refresh_is_repeated: (10, True),
    pushed_request: (60, False),
    idle_session: (5000, False),
    session_at_its_end: (5000, False),
    page_left_open: (86400, True),
    second_step: (600, True),
    mailed(mail_links.RESET): (3600, False),
    mailed(mail_links.VERIFY): (3600, False),
    mailed(mail_links.CHANGE_EMAIL): (3600, False),
    mailed(mail_links.INVITE): (7 * 86400, False),
    link_that_was_looked_up: (3600, False),
    emailed: (600, False),
    identity_token: (3600, False),
    api_token: (5000, False),
    old_client_secret: (5000, False),
}


@pytest.mark.slow
@pytest.mark.parametrize("make", LIFETIMES, ids=lambda make: make.__name__)
def test_a_lifetime(world: World, make: Callable[[World], Use]) -> None:
    seconds, at_the_end = LIFETIMES[make]
    world.browser.approve(world.client)
    world.clock.move(seconds=120)  # sign-in and consent are older than what they give
    began = world.clock.time
    uses = [make(world) for _ in range(3)]
    for use, late, works in zip(uses, (-1, 0, 1), (True, at_the_end, False), strict=True):
        world.clock.time = began + timedelta(seconds=seconds + late)
        assert use() == works, late


def assertion(world: World, **claims: Any) -> bool:
    bank = make_keyed_client(world.app)
    form = {**bank.credentials(), "client_assertion": bank.assertion(**claims), "token": "t"}
    return bank.post("/oauth2/introspect", form).status_code == 200


def proof(world: World, **claims: Any) -> bool:
    return world.client.push(DPoP().header("/oauth2/par", **claims)).status_code == 201


def request_object(world: World, **claims: Any) -> bool:
    bank = make_keyed_client(world.app, request_object_signing_alg="ES256")
    return "password" in send(Browser(world.app), bank, made(bank, **claims)).fields


# What a JWT says, in seconds from now: the last that is accepted, and the first that is not.
CLAIMS: dict[str, tuple[Callable[..., bool], Callable[[int], dict[str, int]], int, int]] = {
    "assertion exp": (assertion, lambda n: {"exp": n}, 1, 0),
    "assertion exp, far": (assertion, lambda n: {"exp": n}, 3645, 3646),
    "assertion iat, old": (assertion, lambda n: {"iat": n}, -300, -301),
    "assertion iat, ahead": (assertion, lambda n: {"iat": n}, 45, 46),
    "assertion nbf": (assertion, lambda n: {"nbf": n}, 45, 46),
    "request exp": (request_object, lambda n: {"exp": n}, 1, 0),
    "request exp, far from nbf": (request_object, lambda n: {"nbf": 0, "exp": n}, 3600, 3601),
    "request nbf, ahead": (request_object, lambda n: {"nbf": n}, 45, 46),
    "proof iat, old": (proof, lambda n: {"iat": n}, -60, -61),
    "proof iat, ahead": (proof, lambda n: {"iat": n}, 60, 61),
    "proof exp": (proof, lambda n: {"exp": n}, 1, 0),
    "proof nbf": (proof, lambda n: {"nbf": n}, 60, 61),
}


@pytest.mark.slow
@each("name", CLAIMS)
def test_the_times_of_a_jwt(world: World, name: str) -> None:
    present, claims, last, first = CLAIMS[name]
    now = int(world.clock.time.timestamp())
    for seconds, works in ((last, True), (first, False)):
        made = {key: now + value for key, value in claims(seconds).items()}
        assert present(world, **made) == works, seconds


def test_the_bounds_are_those_of_the_constants() -> None:
    assert (client_jwt.MAX_LIFETIME, client_jwt.AHEAD) == (3600, 45)
    assert (dpop.OLDEST, dpop.AHEAD) == (60 * SECOND, 60 * SECOND)
    assert authorization_code.BENIGN_REUSE == SECOND
    assert expired.CLOCK_SKEW == 60 * SECOND


@each(
    "claim, last, first",
    [("exp", 1 - id_tokens.SKEW, -id_tokens.SKEW), ("iat", id_tokens.SKEW, id_tokens.SKEW + 1),
     ("nbf", id_tokens.SKEW, id_tokens.SKEW + 1),
     ("iat", -id_tokens.MAX_AGE, -id_tokens.MAX_AGE - 1)],
)  # fmt: skip
def test_the_times_of_a_providers_token(clock: Clock, claim: str, last: int, first: int) -> None:
    now = int(clock.time.timestamp())
    usual = {"iat": now, "exp": now + 60}
    id_tokens._check_times({**usual, claim: now + last})
    with pytest.raises(UpstreamRefused):
        id_tokens._check_times({**usual, claim: now + first})


@each("missing", ["exp", "iat"])
def test_a_providers_token_without_a_time(clock: Clock, missing: str) -> None:
    now = int(clock.time.timestamp())
    usual = {"iat": now, "exp": now + 60, "nbf": now}
    del usual[missing]
    with pytest.raises(UpstreamRefused):
        id_tokens._check_times(usual)


def test_an_authenticator_app_may_be_one_step_off(clock: Clock) -> None:
    secret = totp.new_secret()
    present = int(clock.time.timestamp()) // 30
    assert [totp.matching_step(secret, totp.code(secret, steps)) for steps in range(-2, 3)] == [
        None, present - 1, present, present + 1, None,
    ]  # fmt: skip


def test_a_sign_in_at_a_provider_is_as_new_as_the_clocks_differ(clock: Clock) -> None:
    attempt: Any = SimpleNamespace(began_at=clock.time)
    for late, counts in ((-1, True), (0, True), (1, False)):
        signed_in: Any = SimpleNamespace(auth_time=clock.time - (60 + late) * SECOND)
        assert upstream_sign_in._is_fresh(attempt, signed_in) is counts
    unknown: Any = SimpleNamespace(auth_time=None)
    assert not upstream_sign_in._is_fresh(attempt, unknown)


def visit(clock: Clock, **ago: timedelta | None) -> CurrentSession:
    moments = {name: clock.time - span if span else None for name, span in ago.items()}
    usual = {"auth_time": clock.time - timedelta(days=1), "acr": "1"}
    more = {"second_factor_at": None, "enrolment_allowed_at": None}
    user = SimpleNamespace(id=None, email_changed_at=moments.pop("email_changed_at", None))
    return cast(CurrentSession, SimpleNamespace(session=SimpleNamespace(**usual | more | moments),
                                                user=user))  # fmt: skip


def test_how_long_a_proof_counts_for_changes(
    app: Flask, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(factors, "has_any", lambda *_: True)
    none: Any = ()
    with app.app_context():
        app.extensions["sso.settings"] = replace(
            app.extensions["sso.settings"], smtp_url="smtp://127.0.0.1"
        )
        for late, counts in ((-SECOND, True), (0 * SECOND, False), (SECOND, False)):
            fresh = visit(clock, auth_time=5 * 60 * SECOND + late)
            assert policy.is_fresh(fresh) == counts
            shown = visit(clock, second_factor_at=15 * 60 * SECOND + late)
            assert policy.lacks_second_factor(shown) != counts
            allowed = visit(clock, enrolment_allowed_at=15 * 60 * SECOND + late)
            assert policy.may_change(allowed, none) == counts
            assert policy.asks_for_code(allowed, none) != counts
            setting_up = visit(clock, enrolment_allowed_at=30 * 60 * SECOND + late)
            assert policy.may_finish(setting_up, none) == counts
            changed = visit(clock, email_changed_at=timedelta(days=7) + late)
            assert policy.email_settled(changed.user) != counts
        assert policy.lacks_second_factor(visit(clock, second_factor_at=None))
        assert policy.email_settled(visit(clock, email_changed_at=None).user)


def test_without_a_mail_server_a_fresh_sign_in_is_needed(app: Flask, clock: Clock) -> None:
    """Nobody can be mailed a code then. What was allowed before counts as long as ever."""
    none: Any = ()
    with app.app_context():
        assert app.extensions["sso.settings"].smtp_url is None
        for late, counts in ((-SECOND, True), (0 * SECOND, False), (SECOND, False)):
            fresh = visit(clock, auth_time=5 * 60 * SECOND + late)
            assert not policy.asks_for_code(fresh, none)
            assert policy.may_change(fresh, none) == counts
            allowed = visit(clock, enrolment_allowed_at=15 * 60 * SECOND + late)
            assert policy.may_change(allowed, none) == counts


@pytest.mark.parametrize("smtp_url", [None, "smtp://127.0.0.1"])
def test_one_factor_does_not_add_a_second_one(
    app: Flask, clock: Clock, smtp_url: str | None
) -> None:
    """Whatever was allowed before there was a first one, and although nobody can be mailed."""
    none: Any = ()
    one: Any = ("a passkey",)
    settings = app.extensions["sso.settings"]
    app.extensions["sso.settings"] = replace(settings, smtp_url=smtp_url)
    allowed = {"auth_time": SECOND, "enrolment_allowed_at": SECOND}
    with app.app_context():
        for acr, counts in (("1", False), ("2", True)):
            current = visit(clock, **allowed)
            current.session.acr = acr
            assert policy.may_finish(current, one) is policy.may_change(current, one) is counts
            assert policy.may_finish(current, none)


def test_how_long_a_decision_is_recent(clock: Clock) -> None:
    now = clock.time
    for late, counts in ((-SECOND, True), (0 * SECOND, True), (SECOND, False)):
        moment = now - 10 * 60 * SECOND - late
        request = SimpleNamespace(
            resumed=True, asked_at=moment - SECOND, signed_in_at=moment, max_age=600
        )
        session = SimpleNamespace(auth_time=moment, decisions_used_until=None)
        facts = Facts(cast(Any, request), cast(Session, session), None, Policy(), now)
        assert facts.signed_in_for_this == counts
        assert facts.max_age_is_exceeded != counts
        for change in (
            {"resumed": False}, {"asked_at": moment}, {"signed_in_at": moment - SECOND},
        ):  # fmt: skip
            other = SimpleNamespace(**vars(request) | change)
            assert not replace(facts, request=cast(Any, other)).signed_in_for_this
        for used, still in ((moment, False), (moment - SECOND, counts)):
            used_session = SimpleNamespace(auth_time=moment, decisions_used_until=used)
            assert replace(facts, session=cast(Session, used_session)).signed_in_for_this == still


@each(
    "max_age, age, is_exceeded",
    [
        (None, 10**6, False),
        (0, 0, True),
        (0, 1, True),
        (1, 1, False),
        (1, 2, True),
        (600, 0, False),
    ],
)
def test_the_age_of_a_sign_in(
    clock: Clock, max_age: int | None, age: int, is_exceeded: bool
) -> None:
    """`max_age=0` asks for a new one, however fresh the last one is."""
    session = SimpleNamespace(auth_time=clock.time - age * SECOND)
    request = SimpleNamespace(max_age=max_age)
    facts = Facts(cast(Any, request), cast(Session, session), None, Policy(), clock.time)
    assert facts.max_age_is_exceeded == is_exceeded


def test_pauses_begin_after_the_free_failures_and_stop_growing() -> None:
    pauses = Pauses(free=5, longest=900)
    assert [pauses.after(n) for n in (0, 4, 5, 6, 7)] == [0, 0, 2, 4, 8]
    assert [pauses.after(n) for n in (13, 14, 15, 10_000)] == [512, 900, 900, 900]
