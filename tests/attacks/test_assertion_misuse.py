"""ID-JAG §9: the attacker becomes somebody else, or gets more, by an identity assertion.

The attacker has an assertion that was made for another client or another server, or is an issuer or
a client that may do some of it.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import func, select

from sso import audit, clock
from sso.extensions import db
from sso.models import Consent, Grant, Token, User
from sso.oauth import key_sets
from sso.process import addresses
from sso.services import accounts, clients
from sso.store import approvals, redemption
from tests.conftest import Clock
from tests.support import assertions, platforms
from tests.support.actors import ISSUER, Browser, RelyingParty, claims_of
from tests.support.assertions import Bridge, ask_assertion, make_asserting, present
from tests.support.factories import make_api, make_client, make_user
from tests.support.platforms import Platform
from tests.support.signing import OTHER_EC, RSA, sign, unsigned


@pytest.fixture
def platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Platform]:
    monkeypatch.setattr(addresses, "forbidden", lambda *_: None)
    monkeypatch.setenv("SSL_CERT_FILE", str(platforms.certificate(tmp_path)))
    with platforms.serving(tmp_path) as platform:
        yield platform


@pytest.fixture
def bridge(app: Flask, platform: Platform, user: User) -> Bridge:
    return Bridge(app, platform, user, make_api(app))


def refused(answer: Any, error: str = "invalid_grant") -> bool:
    assert answer.status_code in (400, 401), answer.text
    assert "access_token" not in answer.get_json()
    return bool(answer.get_json()["error"] == error)


def rows(app: Flask) -> int:
    with app.app_context():
        tables = (select(func.count()).select_from(table) for table in (Grant, Token))
        return sum(db.session.scalar(table) or 0 for table in tables)


def test_replay(clock: Clock, bridge: Bridge) -> None:
    """Again, after the assertion has expired, and with another client's credentials."""
    assertion = bridge.assertion()
    assert present(bridge.client, assertion).status_code == 200
    before = rows(bridge.app)
    assert refused(present(bridge.client, assertion))
    other = assertions.make_presenting(bridge.app, bridge.platform.issuer, bridge.api)
    assert refused(present(other, assertion))
    clock.move(seconds=301)
    assert refused(present(bridge.client, assertion))
    assert rows(bridge.app) == before


def test_replay_at_once(bridge: Bridge) -> None:
    """Of several requests with one assertion, one gets a token."""
    assertion, barrier = bridge.assertion(), Barrier(4)
    present(bridge.client, bridge.assertion())  # the keys are read

    def send(_: int) -> int:
        barrier.wait(5)
        return present(bridge.client, assertion).status_code

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(send, range(4))).count(200) == 1


def test_a_failed_request_does_not_use_it_up(bridge: Bridge) -> None:
    assertion = bridge.assertion()
    assert refused(present(bridge.client, assertion, scope="admin"), "invalid_scope")
    assert present(bridge.client, assertion).status_code == 200


@pytest.mark.parametrize(
    "typ", [None, "JWT", "jwt", "at+jwt", "oauth-id-jag", "logout+jwt", ["oauth-id-jag+jwt"]]
)
def test_another_kind_of_jwt(bridge: Bridge, typ: Any) -> None:
    """An identity token or a logout token of the same issuer is no assertion."""
    assert refused(present(bridge.client, bridge.assertion({"typ": typ})))


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": "https://other.example"}, {"aud": [ISSUER, "https://other.example"]}, {"aud": []},
        {"aud": None}, {"aud": {}}, {"aud": ISSUER + "/"}, {"iss": "https://evil.example"},
        {"iss": None}, {"iss": ["x"]}, {"iss": {}}, {"client_id": "somebody-else"},
        {"client_id": None}, {"client_id": ["x"]}, {"client_id": 5}, {"sub": "unknown"},
        {"sub": None}, {"sub": ""}, {"sub": {"a": 1}}, {"sub": ["x"]}, {"sub": 1},
        {"sub": "x\u0000"}, {"sub": "\ud800"}, {"sub": "a" * 100_000}, {"jti": None}, {"jti": ""},
        {"jti": 7}, {"jti": "j" * 300}, {"iat": None}, {"iat": "now"}, {"iat": 1 << 70},
        {"exp": None}, {"exp": 1}, {"exp": "soon"}, {"exp": True}, {"exp": 9_999_999_999},
        {"nbf": 9_999_999_999}, {"cnf": {"jkt": "x"}}, {"cnf": {}},
        {"scope": ["read"]}, {"scope": 1}, {"scope": ""}, {"scope": " "},
        {"resource": 5}, {"resource": {"a": 1}}, {"resource": [5]},
    ],
    ids=str,
)  # fmt: skip
def test_wrong_claims(bridge: Bridge, changes: dict[str, Any]) -> None:
    before = rows(bridge.app)
    assert refused(bridge.ask(**changes))
    assert rows(bridge.app) == before


@pytest.mark.parametrize("resource", ["https://other.example", "", "x" * 5000, "\u0000", ISSUER])
def test_another_api(bridge: Bridge, resource: str) -> None:
    answer = bridge.ask(resource=[resource])
    assert refused(answer, "invalid_target"), answer.text
    assert answer.status_code == 400


def test_forged_signatures(bridge: Bridge) -> None:
    claims = {**assertions.claims(bridge.client, bridge.api), "iss": bridge.platform.issuer}
    forged = [
        sign(claims, OTHER_EC, typ=assertions.TYPE),
        unsigned({"alg": "none", "typ": assertions.TYPE}, claims),
        sign(claims, RSA, alg="RS256", typ=assertions.TYPE, kid="unknown"),
        bridge.assertion()[:-4] + "AAAA",
        "a.b.c", "x" * 20_000, "....", "\u00e9.\u00e9.\u00e9",
    ]  # fmt: skip
    for text in forged:
        assert refused(present(bridge.client, text)), text


def test_an_issuer_that_another_client_lists(app: Flask, bridge: Bridge) -> None:
    """Trust of one client is not trust of another, and the issuer is not even called."""
    stranger = assertions.make_presenting(app, "https://idp.example", bridge.api)
    claims = assertions.claims(stranger, bridge.api)
    jwt = bridge.platform.jwt(claims, typ=assertions.TYPE, kid=None)
    assert refused(present(stranger, jwt))
    assert bridge.platform.asked == []


def test_the_issuer_speaks_for_the_users_of_another(app: Flask, bridge: Bridge) -> None:
    """A subject counts only together with its issuer; neither id nor email stands for it."""
    robin = make_user(app, "robin@example.com")
    assertions.link(app, robin, "https://other.example", "robin")
    for subject in ("robin", str(robin.id), robin.email, str(bridge.user.id), bridge.user.email):
        answer = bridge.ask(sub=subject, email=robin.email, email_verified=True)
        assert refused(answer), subject


def test_a_disabled_user(app: Flask, bridge: Bridge) -> None:
    with app.app_context():
        accounts.disable(audit.SYSTEM, db.session.merge(bridge.user))
        db.session.commit()
    assert refused(bridge.ask())


@pytest.mark.parametrize("what", ["user", "client", "link"])
def test_changed_under_way(
    app: Flask, bridge: Bridge, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """User or client is disabled, or the account unlinked, between the decision and the write."""
    store = approvals.add_by_assertion

    def late(connection: Any, seen: Any, issuer: str, subject: str, **columns: Any) -> bool:
        old = seen.user.replace(year=2000)
        changed = {
            "user": (seen._replace(user=old) if hasattr(seen, "_replace") else
                     approvals.Seen(seen.client, old, None), subject),
            "client": (approvals.Seen(old, seen.user, None), subject),
            "link": (seen, "unlinked"),
        }  # fmt: skip
        new_seen, new_subject = changed[what]
        return store(connection, new_seen, issuer, new_subject, **columns)

    monkeypatch.setattr(approvals, "add_by_assertion", late)
    before = rows(app)
    assert refused(bridge.ask())
    assert rows(app) == before


def test_without_registration(app: Flask, bridge: Bridge) -> None:
    """Neither another confidential client nor one without credentials presents assertions."""
    plain = make_client(app)
    claims = {**assertions.claims(plain, bridge.api)}
    jwt = bridge.platform.jwt(claims, typ=assertions.TYPE, kid=None)
    assert refused(present(plain, jwt), "unauthorized_client")
    assert refused(present(bridge.client, bridge.assertion(), client_secret=None), "invalid_client")
    assert refused(present(bridge.client, bridge.assertion(), client_secret="no"), "invalid_client")


def test_its_token_elsewhere(bridge: Bridge) -> None:
    """At userinfo, as a subject token, and as an identity token."""
    token = bridge.ask().get_json()["access_token"]
    assert bridge.client.userinfo(token).status_code == 401
    assert refused(ask_assertion(bridge.client, token), "unauthorized_client")


def test_anothers_identity_token(app: Flask, browser: Browser, user: User) -> None:
    """Of another client; an access token; a JWT that only looks like one; an unlisted audience."""
    books, desk = make_asserting(app), make_asserting(app, name="Desk")
    tokens = books.exchange(browser.approve(books).code).get_json()
    id_token, access_token = tokens["id_token"], tokens["access_token"]
    assert ask_assertion(books, id_token).status_code == 200
    assert refused(ask_assertion(desk, id_token), "invalid_request")
    for subject in (access_token, tokens["refresh_token"], "x", "a.b.c", id_token[:-4] + "AAAA",
                    sign(claims_of(id_token), typ="JWT")):  # fmt: skip
        assert refused(ask_assertion(books, subject), "invalid_request"), subject
    for audience in ("https://other.example", assertions.AUDIENCE.rstrip("/"), ISSUER):
        assert refused(ask_assertion(books, id_token, audience=audience), "invalid_target")
    assert refused(ask_assertion(books, id_token, audience=None), "invalid_request")
    assert refused(ask_assertion(books, id_token, subject_token_type=None), "invalid_request")
    assert refused(ask_assertion(books, id_token, actor_token=access_token), "invalid_request")
    access = "urn:ietf:params:oauth:token-type:access_token"
    assert refused(ask_assertion(books, access_token, subject_token_type=access), "invalid_request")
    assert refused(ask_assertion(books, id_token, scope="s" * 1001), "invalid_scope")
    for resource in ("a b", "\u0000", "x" * 1000):
        answer = ask_assertion(books, id_token, resource=resource)
        assert answer.status_code == 400
        assert "access_token" not in answer.get_json()


def test_a_signed_authorization_response_is_no_identity_token(
    app: Flask, browser: Browser, user: User
) -> None:
    """It is signed by this server for the same client (JARM), and has no user."""
    books = make_asserting(app, authorization_signed_response_alg="ES256")
    response = browser.approve(books, response_mode="jwt").parameters["response"]
    assert claims_of(response)["aud"] == books.client_id
    assert refused(ask_assertion(books, response), "invalid_request")


def test_an_assertion_of_this_server_at_this_server(
    app: Flask, browser: Browser, user: User
) -> None:
    """It is for another audience, and this server is no issuer that a client lists."""
    api = make_api(app)
    books = make_asserting(app)
    id_token = books.exchange(browser.approve(books).code).get_json()["id_token"]
    assertion = ask_assertion(books, id_token).get_json()["access_token"]
    taker = assertions.make_presenting(app, "https://idp.example", api)
    assert refused(present(taker, assertion))
    assert books.userinfo(assertion).status_code == 401
    assert books.introspect(assertion).get_json() == {"active": False}


def test_another_api_than_the_assertion_names(app: Flask, bridge: Bridge) -> None:
    """One for which the client is registered, too."""
    other = make_api(app, "https://maps.example", name="Maps")
    taker = assertions.make_presenting(
        app, bridge.platform.issuer, bridge.api, apis=[bridge.api, other]
    )
    claims = assertions.claims(taker, bridge.api)

    def ask(resource: str) -> Any:
        new = {**claims, "jti": resource}
        jwt = bridge.platform.jwt(new, typ=assertions.TYPE, kid=None)
        return present(taker, jwt, resource=resource)

    assert refused(ask(other), "invalid_target")
    assert ask(bridge.api).status_code == 200


def test_one_scope_more(app: Flask, browser: Browser, user: User, bridge: Bridge) -> None:
    """One of several is not for the client: none is given."""
    jwt = bridge.assertion(scope="read")
    assert refused(present(bridge.client, jwt, scope="read write"), "invalid_scope")
    books = make_asserting(app, "read", "list")
    id_token = books.exchange(browser.approve(books).code).get_json()["id_token"]
    assert refused(ask_assertion(books, id_token, scope="read write"), "invalid_scope")


def test_an_issuer_that_is_not_listed_any_more(
    app: Flask, bridge: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was when its keys were read, which may take seconds."""
    read, other = key_sets.of_issuer, "https://other.example"

    def unlisted(issuer: str, kid: str | None) -> key_sets.Keys:
        change(app, bridge.client, id_jag_issuers=[other])
        return read(issuer, kid)

    assertion = bridge.assertion()
    monkeypatch.setattr(key_sets, "of_issuer", unlisted)
    assert refused(present(bridge.client, assertion))
    monkeypatch.setattr(key_sets, "of_issuer", read)
    change(app, bridge.client, id_jag_issuers=[other, bridge.platform.issuer])
    assert present(bridge.client, assertion).status_code == 200


def test_what_the_user_declined(app: Flask, bridge: Bridge, user: User) -> None:
    with app.app_context():
        declined = f"{bridge.api}#write"
        ids = {"user_id": user.id, "client_id": bridge.client.client_id}
        db.session.add(Consent(**ids, scope="openid", declined=declined))
        db.session.commit()
    assert bridge.ask(scope="read write").get_json()["scope"] == "read"
    assert refused(bridge.ask(scope="write"), "invalid_target")


def test_what_the_user_declined_elsewhere(app: Flask, bridge: Bridge, user: User) -> None:
    """At another application, or another user at this one."""
    other = make_client(app, name="Other")
    erin = make_user(app, "erin@example.com")
    with app.app_context():
        for user_id, client_id in ((user.id, other.client_id), (erin.id, bridge.client.client_id)):
            ids = {"user_id": user_id, "client_id": client_id}
            db.session.add(Consent(**ids, scope="openid", declined=f"{bridge.api}#write"))
        db.session.commit()
    assert bridge.ask(scope="read write").get_json()["scope"] == "read write"


def test_a_second_factor_that_only_the_issuer_saw(app: Flask, bridge: Bridge) -> None:
    """Nor can the issuer date a sign-in to the future."""
    token = bridge.ask(amr=["mfa"], auth_time=4_000_000_000).get_json()["access_token"]
    assert claims_of(token)["auth_time"] <= claims_of(token)["iat"]
    change(app, bridge.client, require_mfa=True)
    assert refused(bridge.ask(amr=["mfa", "otp"], acr="2"))


def test_one_issuer_uses_up_nothing_of_another(app: Flask, bridge: Bridge) -> None:
    """Each names its own assertions (RFC 7519 §4.1.7)."""
    with app.app_context():
        now = clock.now()
        for namespace in ("https://other.example", None):
            use = redemption.SingleUse(
                "id-jag", bridge.client.client_id, "1", now + timedelta(hours=1), namespace
            )
            assert redemption.use_once(db.session.connection(), use, now=now)
        db.session.commit()
    assert bridge.ask(jti="1").status_code == 200
    assert refused(bridge.ask(jti="1"))


def change(app: Flask, client: RelyingParty, **fields: Any) -> None:
    with app.app_context():
        with audit.dry_run():
            clients.change(audit.SYSTEM, client.client_id, fields)
        db.session.commit()


def test_an_identity_token_that_is_none_or_no_longer_one(
    clock: Clock, app: Flask, browser: Browser, user: User
) -> None:
    """The signed answer of an authorization request; at its last second; with one factor only."""
    books = make_asserting(app, authorization_signed_response_alg="ES256")
    signed = browser.approve(books, response_mode="jwt").parameters["response"]
    assert claims_of(signed)["aud"] == books.client_id
    assert refused(ask_assertion(books, signed), "invalid_request")
    clock.stand_still()
    id_token = books.exchange(browser.authorize(books).code).get_json()["id_token"]
    clock.move(seconds=claims_of(id_token)["exp"] - clock.time.timestamp() - 1)
    assert ask_assertion(books, id_token).status_code == 200
    clock.move(seconds=1)
    assert refused(ask_assertion(books, id_token), "invalid_request")
    id_token = books.exchange(browser.authorize(books).code).get_json()["id_token"]
    change(app, books, require_mfa=True)
    assert refused(ask_assertion(books, id_token), "invalid_request")
