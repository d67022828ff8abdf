"""The scenarios: the requests, what a right answer is, and what the next one needs of it."""

import json
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import KeySet

from tests.bench.transport import Answer, Request
from tests.support.actors import pkce
from tests.support.proofs import DPoP

BASE = "/api/auth"
SCOPE = "openid profile email"


@dataclass
class LiveGrant:
    """What the client's backend keeps of one authorization request."""

    user_id: str
    state: str
    nonce: str
    verifier: str
    request_uri: str = ""
    code: str = ""
    tokens: dict[str, Any] = field(default_factory=dict)


@dataclass
class World:
    """The client, who is signed in (user id -> cookie), and where each approval stands."""

    issuer: str
    client_id: str
    client_secret: str
    redirect_uri: str
    keys: KeySet
    cookies: dict[str, str]
    resume: str = ""
    approvals: list[LiveGrant] = field(default_factory=list)
    key: DPoP = field(default_factory=DPoP)
    bank: "World | None" = None  # the same with a client of the profile fapi2
    assertion: Callable[[], dict[str, str]] | None = None
    alg: str = "RS256"

    def authorization(self, state: str, nonce: str, challenge: str) -> str:
        """The address that a client sends the browser to."""
        return f"{BASE}/oauth2/authorize?{urlencode(self.parameters(state, nonce, challenge))}"

    def parameters(self, state: str, nonce: str, challenge: str) -> dict[str, str]:
        """Those of an authorization request."""
        return {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": self.redirect_uri,
            "scope": SCOPE,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }

    def proof(self, path: str, **more: Any) -> dict[str, str]:
        """The header with a proof of the client's key."""
        return self.key.header(path, htu=self.issuer + path, **more)

    def credentials(self) -> dict[str, str]:
        if self.assertion:
            return self.assertion()
        return {"client_id": self.client_id, "client_secret": self.client_secret}


class Scenario(NamedTuple):
    """`make` gives so many requests; `check` raises AssertionError and notes what is needed."""

    name: str
    make: Callable[[World, int], list[Request]]
    check: Callable[[World, list[Answer]], None]


def _approve(world: World, count: int) -> Iterator[tuple[LiveGrant, str]]:
    """Begin so many authorizations; gives each one with its code_challenge."""
    world.approvals, signed_in = [], list(world.cookies)
    for number in range(count):
        user_id = signed_in[number % len(signed_in)]
        verifier, challenge = pkce()
        approval = LiveGrant(user_id, secrets.token_hex(8), secrets.token_hex(8), verifier)
        world.approvals.append(approval)
        yield approval, challenge


def _authorize(world: World, count: int) -> list[Request]:
    requests = []
    for one, challenge in _approve(world, count):
        target = world.authorization(one.state, one.nonce, challenge)
        requests.append(Request("GET", target, {"Cookie": world.cookies[one.user_id]}))
    return requests


def _push(world: World, count: int) -> list[Request]:
    requests = []
    for one, challenge in _approve(world, count):
        form = world.parameters(one.state, one.nonce, challenge) | world.credentials()
        requests.append(Request("POST", f"{BASE}/oauth2/par", form=form))
    return requests


def _check_push(world: World, answers: list[Answer]) -> None:
    for approval, answer in zip(world.approvals, answers, strict=True):
        assert answer.status == 201, answer
        approval.request_uri = json.loads(answer.body)["request_uri"]


def _authorize_pushed(world: World, _: int) -> list[Request]:
    requests = []
    for one in world.approvals:
        query = {"client_id": world.client_id, "request_uri": one.request_uri}
        target = f"{BASE}/oauth2/authorize?{urlencode(query)}"
        requests.append(Request("GET", target, {"Cookie": world.cookies[one.user_id]}))
    return requests


def _check_authorize(world: World, answers: list[Answer]) -> None:
    for approval, answer in zip(world.approvals, answers, strict=True):
        assert answer.status == 303, answer
        address = urlsplit(answer.headers["location"])
        assert address._replace(query="").geturl() == world.redirect_uri
        query = parse_qs(address.query)
        assert query["state"] == [approval.state]
        assert query["iss"] == [world.issuer]
        approval.code = query["code"][0]


def _exchange(world: World, _: int, dpop: bool = False) -> list[Request]:
    return [
        _token(
            world,
            dpop,
            grant_type="authorization_code",
            code=approval.code,
            redirect_uri=world.redirect_uri,
            code_verifier=approval.verifier,
        )
        for approval in world.approvals
    ]


def _refresh(world: World, _: int, dpop: bool = False) -> list[Request]:
    return [
        _token(world, dpop, grant_type="refresh_token", refresh_token=one.tokens["refresh_token"])
        for one in world.approvals
    ]


def _token(world: World, dpop: bool, **form: str) -> Request:
    headers = world.proof("/oauth2/token") if dpop else {}
    return Request("POST", f"{BASE}/oauth2/token", headers, {**form, **world.credentials()})


def _check_exchange(world: World, answers: list[Answer], kind: str = "Bearer") -> None:
    _check_tokens(world, answers, with_nonce=True, kind=kind)


def _check_refresh(world: World, answers: list[Answer], kind: str = "Bearer") -> None:
    _check_tokens(world, answers, with_nonce=False, kind=kind)


def _check_tokens(world: World, answers: list[Answer], with_nonce: bool, kind: str) -> None:
    for approval, answer in zip(world.approvals, answers, strict=True):
        assert answer.status == 200, answer
        tokens = json.loads(answer.body)
        assert (tokens["token_type"], tokens["scope"]) == (kind, SCOPE)
        assert tokens["refresh_token"] != approval.tokens.get("refresh_token")
        claims = jwt.decode(tokens["id_token"], world.keys, algorithms=[world.alg]).claims
        assert (claims["iss"], claims["aud"]) == (world.issuer, world.client_id)
        assert claims["sub"] == approval.user_id
        assert claims.get("nonce") == (approval.nonce if with_nonce else None)
        access = jwt.decode(tokens["access_token"], world.keys, algorithms=["ES256"]).claims
        assert access["sub"] == approval.user_id
        approval.tokens = tokens


def _userinfo(world: World, _: int) -> list[Request]:
    return [
        Request(
            "GET",
            f"{BASE}/oauth2/userinfo",
            {"Authorization": f"Bearer {approval.tokens['access_token']}"},
        )
        for approval in world.approvals
    ]


def _userinfo_dpop(world: World, _: int) -> list[Request]:
    requests = []
    for approval in world.approvals:
        token = approval.tokens["access_token"]
        headers = {"Authorization": f"DPoP {token}", **world.proof("/oauth2/userinfo", token=token)}
        requests.append(Request("GET", f"{BASE}/oauth2/userinfo", headers))
    return requests


def _check_userinfo(world: World, answers: list[Answer]) -> None:
    for approval, answer in zip(world.approvals, answers, strict=True):
        assert answer.status == 200, answer
        profile = json.loads(answer.body)
        assert profile["sub"] == profile["id"] == approval.user_id
        assert profile["name"]
        assert profile["emailVerified"] is True


def _sign_in(world: World, count: int) -> list[Request]:
    return [Request("GET", world.resume)] * count


def _check_sign_in(_: World, answers: list[Answer]) -> None:
    for answer in answers:
        assert answer.status == 200, answer
        assert b'name="password"' in answer.body
        assert b'name="csrf_token"' in answer.body


def _bare(_: World, count: int) -> list[Request]:
    return [Request("GET", "/bare")] * count


def _check_bare(_: World, answers: list[Answer]) -> None:
    assert all(json.loads(answer.body)["name"] == "Dana Demo" for answer in answers)


BARE = Scenario("bare Flask route", _bare, _check_bare)
AUTHORIZE = Scenario("authorize", _authorize, _check_authorize)
EXCHANGE = Scenario("code exchange", _exchange, _check_exchange)
REFRESH = Scenario("refresh", _refresh, _check_refresh)
USERINFO = Scenario("userinfo", _userinfo, _check_userinfo)
SIGN_IN = Scenario("sign-in page", _sign_in, _check_sign_in)

PUSH = Scenario("push", _push, _check_push)
AUTHORIZE_PUSHED = Scenario("authorize, pushed", _authorize_pushed, _check_authorize)
EXCHANGE_DPOP = Scenario(
    "code exchange, DPoP", partial(_exchange, dpop=True), partial(_check_exchange, kind="DPoP")
)
REFRESH_DPOP = Scenario(
    "refresh, DPoP", partial(_refresh, dpop=True), partial(_check_refresh, kind="DPoP")
)
USERINFO_DPOP = Scenario("userinfo, DPoP", _userinfo_dpop, _check_userinfo)


def _by_bank(scenario: Scenario, like: str) -> Scenario:
    """The same by the client of the profile fapi2."""

    def of(world: World) -> World:
        assert world.bank
        return world.bank

    return Scenario(
        like,
        lambda world, count: scenario.make(of(world), count),
        lambda world, answers: scenario.check(of(world), answers),
    )


# Each one uses what the one before it gave.
MAIN = 5  # a sign-in, and what follows
SCENARIOS = (
    *(AUTHORIZE, EXCHANGE, REFRESH, USERINFO, SIGN_IN),
    *(PUSH, AUTHORIZE_PUSHED, EXCHANGE_DPOP, REFRESH_DPOP, USERINFO_DPOP),
    _by_bank(PUSH, "push, fapi2"),
    _by_bank(AUTHORIZE_PUSHED, "authorize, fapi2"),
    _by_bank(EXCHANGE_DPOP, "code exchange, fapi2"),
    BARE,
)
