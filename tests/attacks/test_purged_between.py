"""The attacker keeps what was used, waits until the note of its use is purged, and uses it again.

It ends at a note that outlives what it is about.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from flask import Flask

from sso import audit
from sso.config.upstream.file import Upstreams
from sso.extensions import db
from sso.jobs import upkeep
from sso.models import User
from sso.process import http_call
from sso.ratelimit.storage import LimitStorage
from sso.services import mail_links, sign_in_codes
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty
from tests.support.factories import make_client
from tests.support.proofs import DPoP
from tests.support.second_factors import code_of, enrol_totp
from tests.support.signing import make_keyed_client
from tests.support.upstreams import Internet, Upstream, provider

pytestmark = pytest.mark.slow

Use = Callable[[], bool]


@dataclass
class World:
    app: Flask
    user: User
    clock: Clock
    browser: Browser
    client: RelyingParty
    monkeypatch: pytest.MonkeyPatch

    def upstream(self) -> Upstream:
        corp = Upstream()
        self.monkeypatch.setattr(http_call, "call", Internet(corp).call)
        self.app.extensions["sso.upstreams"] = Upstreams((provider(),))
        return corp


def assertion(world: World, **claims: Any) -> Use:
    bank = make_keyed_client(world.app)
    text = bank.assertion(**claims)
    form = {**bank.credentials(), "client_assertion": text, "token": "t"}
    return lambda: bank.post("/oauth2/introspect", form).status_code == 200


def limited_by_exp(world: World) -> Use:
    now = int(world.clock.now().timestamp())
    return assertion(world, exp=now + 100, iat=now)


def limited_by_iat(world: World) -> Use:
    """Its clock is as far ahead as is tolerated."""
    now = int(world.clock.now().timestamp())
    return assertion(world, exp=now + 3600, iat=now + 10)


def without_iat(world: World) -> Use:
    now = int(world.clock.now().timestamp())
    return assertion(world, exp=now + 3600, iat=None)


def proof(world: World, **claims: Any) -> Use:
    key = DPoP()
    header = key.header("/oauth2/par", **claims)
    return lambda: world.client.push(header).status_code == 201


def proof_ahead(world: World) -> Use:
    return proof(world, iat=int(world.clock.now().timestamp()) + 60)


def proof_with_nonce(world: World) -> Use:
    settings = world.app.extensions["sso.settings"]
    world.app.extensions["sso.settings"] = replace(settings, dpop_nonce="required")
    answer = world.client.push(DPoP().header("/oauth2/par"))
    return proof(world, nonce=answer.headers["DPoP-Nonce"])


def upstream_state(world: World) -> Use:
    corp = world.upstream()
    world.browser.open(f"{BASE}/sign-in?local=1")
    answer = corp.authorize(world.browser.submit(upstream="corp").url)
    cookies = dict(world.browser.http._cookies or {})
    issued = dict(corp.codes)

    def use() -> bool:
        thief = Browser(world.app)
        assert thief.http._cookies is not None
        thief.http._cookies.update(cookies)
        corp.codes.update(issued)  # another one, with the same nonce
        return thief.open(answer).path == f"{BASE}/account"

    return use


def logout_token(world: World, ahead: int = 0) -> Use:
    corp = world.upstream()
    now = int(world.clock.now().timestamp())
    form = {"logout_token": corp.logout_token(iat=now + ahead, exp=now + 86400)}
    return lambda: world.client.post("/backchannel-logout/corp", form).status_code == 200


def logout_token_ahead(world: World) -> Use:
    return logout_token(world, 60)


def code(world: World) -> Use:
    text = world.browser.approve(world.client).code
    return lambda: world.client.exchange(text).status_code == 200


def refresh_token(world: World) -> Use:
    """Rotated tokens of a public client have no leeway; the newest one stays in use."""
    public = make_client(world.app, public=True)
    text = public.exchange(world.browser.approve(public).code).get_json()["refresh_token"]
    return lambda: public.refresh(text).status_code == 200


def pushed_request(world: World) -> Use:
    world.browser.approve(world.client)
    uri = world.client.push().get_json()["request_uri"]
    query = {"client_id": world.client.client_id, "request_uri": uri}
    return lambda: "code" in world.browser.open_authorize(query).parameters


def reset_link(world: World) -> Use:
    with world.app.app_context():
        user = db.session.get_one(User, world.user.id)
        _, link = mail_links.make(mail_links.RESET, user.email, user)
        db.session.commit()

    def use() -> bool:
        browser = Browser(world.app)
        page = browser.open(link)
        return page.status == 200 and browser.submit(new_password="hunter2 hunter3").status == 200

    return use


def sign_in_code(world: World) -> Use:
    with world.app.app_context():
        user = db.session.get_one(User, world.user.id)
        token_id = sign_in_codes.request(audit.USER, user.email, None)
        code = sign_in_codes.make(token_id, user)
        assert code
        db.session.commit()

    def use() -> bool:
        with world.app.app_context():
            user = sign_in_codes.redeem(audit.USER, token_id, code)
            db.session.commit()
            return user is not None

    return use


def one_time_code(world: World) -> Use:
    setting_up = Browser(world.app)
    setting_up.sign_in()
    secret, _ = enrol_totp(setting_up)
    world.clock.move(seconds=30)
    text = code_of(secret)

    def use() -> bool:
        browser = Browser(world.app)
        browser.sign_in()
        browser.submit(code=text)
        return browser.open(f"{ORIGIN}{BASE}/account").path == f"{BASE}/account"

    return use


# Each with the seconds for which it could be used, if it had not been.
CASES: dict[Callable[[World], Use], int] = {
    limited_by_exp: 100,
    limited_by_iat: 310,
    without_iat: 3600,
    proof: 60,
    proof_ahead: 120,
    proof_with_nonce: 180,
    upstream_state: 900,
    logout_token: 600,
    logout_token_ahead: 660,
    code: 60,
    refresh_token: 86400,
    pushed_request: 60,
    reset_link: 3600,
    sign_in_code: 600,
    one_time_code: 30,
}


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


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_what_was_used_is_refused_whenever_the_purge_runs(
    world: World, case: Callable[[World], Use]
) -> None:
    use, life, began = case(world), CASES[case], world.clock.time
    assert use()
    for after in (0, life / 2, life - 1, life, life + 1, life + 61, life + 86402):
        world.clock.time = began + timedelta(seconds=after)
        with world.app.app_context():
            upkeep.purge()
        # Pauses after failures would refuse it, too.
        world.app.extensions["sso.limits"] = LimitStorage(None)
        assert not use(), after


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_what_was_not_used_works_until_then(world: World, case: Callable[[World], Use]) -> None:
    use = case(world)
    world.clock.move(seconds=CASES[case] - 2)
    with world.app.app_context():
        upkeep.purge()
    assert use()
