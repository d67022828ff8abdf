"""RFC 8693 §5: the attacker exchanges a token for more scope, a longer life, or another person.

The attacker is a backend that is registered for token exchange, or has stolen the secret of one. It
ends at what the backend is a party to, at the registration, and at the rights of the user.
"""

import base64
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import func, select

from sso.extensions import db
from sso.models import Token, User
from sso.ratelimit import limiting
from sso.store import exchanges
from tests.conftest import Clock
from tests.support.actors import ISSUER, Browser, claims_of
from tests.support.exchanges import (
    ACCESS_TOKEN,
    DOCS,
    MAIL,
    MAPS,
    STORE,
    Chain,
    exchange,
    make_backend,
)
from tests.support.factories import make_client, make_user
from tests.support.proofs import DPoP


@pytest.fixture
def chain(app: Flask, browser: Browser, user: User) -> Chain:
    return Chain(app, browser)


def refused(answer: Any, *errors: str) -> bool:
    assert answer.status_code in (400, 401), answer.text
    assert "access_token" not in answer.get_json()
    return answer.get_json()["error"] in (errors or ("invalid_request",))


def exchanged_rows(app: Flask) -> int:
    with app.app_context():
        rows = select(func.count()).select_from(Token).where(Token.client_id.is_not(None))
        return db.session.scalar(rows) or 0


def test_more_scope(app: Flask, chain: Chain) -> None:
    """By asking for it, by going round in a circle, and by another API's name for it."""
    round_trip = make_backend(app, MAPS, DOCS)
    for scope in ("write", "read write", "openid", "offline_access", f"{DOCS}#write"):
        answer = exchange(chain.docs, chain.subject, resource=MAPS, scope=scope)
        assert refused(answer, "invalid_scope"), scope
    # The user approved to read documents. No other API gives more, and back.
    assert exchange(round_trip, chain.exchanged(), resource=DOCS).get_json()["scope"] == "read"
    # The token for maps lacks `read`, so it is lost on the way back.
    there = chain.exchanged(scope="draw")
    assert exchange(round_trip, there, resource=DOCS).get_json()["scope"] == ""
    for scope in ("read", "write"):
        assert refused(exchange(round_trip, there, resource=DOCS, scope=scope), "invalid_scope")


def test_more_than_the_user_approved_at_the_next_api(app: Flask, chain: Chain) -> None:
    """The grant names both APIs: `draw` was not among what the user approved."""
    page = chain.browser.approve(chain.books, resource=[DOCS, MAPS], scope="openid read")
    subject = chain.books.exchange(page.code, resource=DOCS).get_json()["access_token"]
    assert exchange(chain.docs, subject, resource=MAPS).get_json()["scope"] == "read"
    assert refused(exchange(chain.docs, subject, resource=MAPS, scope="draw"), "invalid_scope")


def test_a_longer_life(clock: Clock, app: Flask, chain: Chain) -> None:
    """By exchanging again and again, to oneself, just before the end."""
    own = make_backend(app, DOCS, DOCS)
    token = chain.approve()["access_token"]
    end = claims_of(token)["exp"]
    for _ in range(3):
        clock.move(seconds=1000)
        body = exchange(own, token, resource=DOCS).get_json()
        token = body["access_token"]
        assert claims_of(token)["exp"] == end
        assert "refresh_token" not in body
    clock.move(seconds=601)
    assert refused(exchange(own, token, resource=DOCS))
    assert own.introspect(token).get_json() == {"active": False}


def test_an_expired_token(clock: Clock, chain: Chain) -> None:
    tokens = chain.approve()
    clock.move(seconds=tokens["expires_in"])
    assert refused(exchange(chain.docs, tokens["access_token"], resource=MAPS))


def altered(token: str, **claims: Any) -> str:
    head, _, signature = token.split(".")
    text = json.dumps({**claims_of(token), **claims}).encode()
    return f"{head}.{base64.urlsafe_b64encode(text).rstrip(b'=').decode()}.{signature}"


@pytest.mark.parametrize("how", ["sub", "aud", "scope", "exp", "jti", "act", "alg", "signature"])
def test_an_altered_token(app: Flask, chain: Chain, how: str) -> None:
    other = make_user(app, "erin@example.com")
    there = chain.exchanged()
    forged = {
        "sub": altered(chain.subject, sub=str(other.id)),
        "aud": altered(chain.subject, aud=MAPS),
        "scope": altered(chain.subject, scope="read write"),
        "exp": altered(chain.subject, exp=4_000_000_000),
        "jti": altered(chain.subject, jti=claims_of(there)["jti"]),
        "act": altered(there, act={}),
        "alg": "eyJhbGciOiJub25lIn0." + chain.subject.split(".")[1] + ".",
        "signature": chain.subject[:-4] + "AAAA",
    }[how]
    for client in (chain.docs, chain.maps):
        assert refused(exchange(client, forged, resource=MAIL))
        assert refused(exchange(client, forged, resource=MAPS))
    assert exchanged_rows(app) == 1


def test_another_person(app: Flask, chain: Chain, user: User) -> None:
    """Nothing in the request names the person but the token."""
    make_user(app, "erin@example.com")
    answer = exchange(
        chain.docs,
        chain.subject,
        resource=MAPS,
        subject="erin@example.com",
        requested_subject="erin@example.com",
        login_hint="erin@example.com",
    )
    assert claims_of(answer.get_json()["access_token"])["sub"] == str(user.id)


def test_a_chain_of_four(app: Flask, chain: Chain) -> None:
    """Also with the same client several times, and to an API that was there already."""
    own = make_backend(app, DOCS, DOCS)
    token = chain.subject
    for depth in (1, 2, 3):
        token = exchange(own, token, resource=DOCS).get_json()["access_token"]
        act, length = claims_of(token)["act"], 0
        while act:
            act, length = act.get("act"), length + 1
        assert length == depth
    assert refused(exchange(own, token, resource=DOCS))
    assert exchanged_rows(app) == 3


def test_a_token_of_somebody_elses_application(app: Flask, chain: Chain) -> None:
    """An application that knows the token of another one, because it serves another API."""
    stranger = make_client(
        app, grant_types=["urn:ietf:params:oauth:grant-type:token-exchange"],
        redirect_uris=[], apis=[DOCS, MAPS],
    )  # fmt: skip
    for token in (chain.subject, chain.exchanged()):
        for target in (DOCS, MAPS):
            assert refused(exchange(stranger, token, resource=target))
    # The backend of the wrong API, and the one that got the token before.
    assert refused(exchange(chain.maps, chain.subject, resource=MAIL))
    assert refused(exchange(chain.mail, chain.exchanged(), resource=STORE))


def test_a_token_for_userinfo(app: Flask, chain: Chain, user: User) -> None:
    """Neither is one taken from another application, nor can one be had."""
    plain = chain.books.exchange(chain.browser.approve(chain.books).code).get_json()
    assert claims_of(plain["access_token"])["aud"] == ISSUER
    assert refused(exchange(chain.docs, plain["access_token"], resource=MAPS))
    for name in ("resource", "audience"):
        answer = exchange(chain.docs, chain.subject, **{name: ISSUER})
        assert refused(answer, "invalid_target")
    assert chain.docs.userinfo(chain.exchanged()).status_code == 401


@pytest.mark.parametrize("kind", ["refresh_token", "id_token"])
def test_another_kind_of_token(chain: Chain, kind: str) -> None:
    token = chain.tokens[kind]
    for name in (ACCESS_TOKEN, f"urn:ietf:params:oauth:token-type:{kind}"):
        for client in (chain.docs, chain.books):
            answer = exchange(client, token, resource=MAPS, subject_token_type=name)
            assert refused(answer, "invalid_request", "unauthorized_client")
    # The refresh token was not used up by it.
    assert chain.books.refresh(chain.tokens["refresh_token"]).status_code == 200


def test_a_token_of_a_service(chain: Chain) -> None:
    """It claims that its client is its subject. There is no person who could have approved."""
    token = altered(chain.subject, sub=chain.books.client_id, client_id=chain.books.client_id)
    answer = exchange(chain.docs, token, resource=MAPS)
    assert refused(answer)
    assert "service" in answer.get_json()["error_description"]


def test_a_real_token_of_a_service(app: Flask, chain: Chain) -> None:
    job = make_backend(app, DOCS, DOCS, service=True)
    form = {"grant_type": "client_credentials", "resource": DOCS, **job.credentials()}
    token = job.post("/oauth2/token", form).get_json()["access_token"]
    for client in (job, chain.docs):
        assert refused(exchange(client, token, resource=DOCS))


def test_a_stolen_token_that_is_bound_to_a_key(app: Flask, chain: Chain) -> None:
    dpop, thief = DPoP(), DPoP()
    bound = chain.approve(dpop.header())["access_token"]
    assert refused(exchange(chain.docs, bound, resource=MAPS))
    assert refused(exchange(chain.docs, bound, thief.header(), resource=MAPS))
    wrong = {"DPoP": dpop.proof("/oauth2/par")}
    assert refused(exchange(chain.docs, bound, wrong, resource=MAPS), "invalid_dpop_proof")
    proof = dpop.header()
    assert exchange(chain.docs, bound, proof, resource=MAPS).status_code == 200
    again = exchange(chain.docs, bound, proof, resource=MAPS)
    assert refused(again, "invalid_dpop_proof")
    assert exchanged_rows(app) == 1


def test_an_unbound_token_where_a_key_is_required(app: Flask, chain: Chain) -> None:
    """Exchange does not turn a token that the client may no longer have into one with a key."""
    arguments = ("client", "update", chain.books.client_id, "--require-dpop")
    assert app.test_cli_runner().invoke(args=arguments).exit_code == 0
    assert refused(exchange(chain.docs, chain.subject, DPoP().header(), resource=MAPS))


@pytest.mark.parametrize("way", ["public client", "wrong secret", "no secret", "other client"])
def test_without_the_credentials_of_the_backend(app: Flask, chain: Chain, way: str) -> None:
    public = make_client(app, public=True, apis=[MAPS])
    forms: dict[str, dict[str, Any]] = {
        "public client": {"client_id": public.client_id, "client_secret": None},
        "wrong secret": {"client_secret": "wrong"},
        "no secret": {"client_secret": None},
        "other client": {"client_id": chain.maps.client_id},
    }
    answer = exchange(chain.docs, chain.subject, resource=MAPS, **forms[way])
    assert refused(answer, "invalid_client", "unauthorized_client")


def test_a_public_client_is_not_registered_for_it(app: Flask) -> None:
    public = make_client(app, public=True)
    result = app.test_cli_runner().invoke(args=["client", "update", public.client_id, "--exchange"])
    assert result.exit_code != 0
    assert "public client" in result.stderr


@pytest.mark.parametrize("ending", ["refresh token revoked", "backend disabled", "signed out"])
def test_after_the_grant_ended_at_the_same_instant(
    app: Flask, chain: Chain, user: User, ending: str
) -> None:
    """However they interleave: afterwards no token gives anything, and nothing is a 500."""
    commands = {
        "backend disabled": ("client", "disable", chain.docs.client_id),
        "signed out": ("user", "sign-out", user.email),
    }
    for _ in range(3):
        tokens = chain.approve(scope="openid read")
        subject, both = tokens["access_token"], Barrier(5)

        def act(_: int, subject: str = subject, both: Barrier = both) -> Any:
            both.wait(30)
            return exchange(chain.docs, subject, resource=MAPS)

        def end(secret: str = tokens["refresh_token"], both: Barrier = both) -> None:
            both.wait(30)
            if ending == "refresh token revoked":
                assert chain.books.revoke(secret).status_code == 200
            else:
                result = app.test_cli_runner().invoke(args=commands[ending])
                assert result.exit_code == 0, result.output

        with ThreadPoolExecutor(5) as pool:
            ended, answers = pool.submit(end), list(pool.map(act, range(4)))
        ended.result()
        if ending == "backend disabled":
            again = ("client", "enable", chain.docs.client_id)
            assert app.test_cli_runner().invoke(args=again).exit_code == 0
        assert {answer.status_code for answer in answers} <= {200, 400, 401}
        for answer in answers:
            if answer.status_code == 200:
                token = answer.get_json()["access_token"]
                assert chain.docs.introspect(token).get_json() == {"active": False}
                assert refused(exchange(chain.maps, token, resource=MAIL))
        if ending != "backend disabled":
            assert refused(exchange(chain.docs, subject, resource=MAPS))


@pytest.mark.parametrize(
    ("ending", "error"),
    [
        ("client disable DOCS", "invalid_client"),
        ("client update DOCS --no-exchange", "invalid_client"),
        ("user disable dana@example.com", "invalid_request"),
        ("client disable BOOKS", "invalid_request"),
    ],
)
def test_what_ends_just_before_the_token_is_stored(
    app: Flask, chain: Chain, monkeypatch: pytest.MonkeyPatch, ending: str, error: str
) -> None:
    add = exchanges.add
    ids = {"DOCS": chain.docs.client_id, "BOOKS": chain.books.client_id}

    def end_and_add(*arguments: Any) -> bool:
        args = [ids.get(word, word) for word in ending.split()]
        with ThreadPoolExecutor(1) as pool:  # with a connection of its own
            result = pool.submit(app.test_cli_runner().invoke, args=args).result()
        assert result.exit_code == 0, result.output
        return add(*arguments)

    monkeypatch.setattr(exchanges, "add", end_and_add)
    assert refused(exchange(chain.docs, chain.subject, resource=MAPS), error)
    assert exchanged_rows(app) == 0


def test_a_flood(app: Flask, chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each token is a row: a backend has a budget."""
    few = replace(limiting.EXCHANGED_TOKENS, most=3)
    monkeypatch.setattr(limiting, "EXCHANGED_TOKENS", few)
    codes = [exchange(chain.docs, chain.subject, resource=MAPS).status_code for _ in range(5)]
    assert codes == [200, 200, 200, 429, 429]
    assert exchanged_rows(app) == 3
