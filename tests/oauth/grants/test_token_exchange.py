"""Token exchange (RFC 8693): a backend calls the next API on behalf of its user."""

from typing import Any

import pytest
from flask import Flask

from sso import audit
from sso.config.client_fields import TOKEN_EXCHANGE
from sso.extensions import db
from sso.models import User
from sso.services import apis, clients
from sso.store import apis as stored_apis
from tests.conftest import Clock
from tests.support.actors import ISSUER, ORIGIN, Browser, claims_of, header_of
from tests.support.events import events
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
from tests.support.factories import change_api, make_api, make_client, make_user
from tests.support.proofs import DPoP


@pytest.fixture
def chain(app: Flask, browser: Browser, user: User) -> Chain:
    return Chain(app, browser)


def error_of(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.get_json()["error"]


def flask(app: Flask, *arguments: str) -> None:
    result = app.test_cli_runner().invoke(args=arguments)
    assert result.exit_code == 0, result.stderr


def test_a_token_for_the_next_api(chain: Chain, user: User) -> None:
    answer = exchange(chain.docs, chain.subject, resource=MAPS)
    body = answer.get_json()
    assert answer.status_code == 200
    assert answer.headers["Cache-Control"] == "no-store"
    assert body.keys() == {
        *("access_token", "issued_token_type", "token_type", "expires_in", "scope"),
    }
    assert body["issued_token_type"] == ACCESS_TOKEN
    assert body["token_type"] == "Bearer"
    token, before = claims_of(body["access_token"]), claims_of(chain.subject)
    assert header_of(body["access_token"])["typ"] == "at+jwt"
    assert token["iss"] == ISSUER
    assert token["aud"] == MAPS
    assert token["sub"] == str(user.id)
    assert token["client_id"] == chain.docs.client_id
    assert token["act"] == {"sub": chain.docs.client_id}
    assert token["scope"] == body["scope"] == "read draw"
    assert token["auth_time"] == before["auth_time"]
    assert token["exp"] <= before["exp"]
    assert token["jti"] != before["jti"]


@pytest.mark.parametrize("name", ["resource", "audience"])
def test_either_name_of_the_target(chain: Chain, name: str) -> None:
    body = exchange(chain.docs, chain.subject, **{name: MAPS}).get_json()
    assert claims_of(body["access_token"])["aud"] == MAPS


def test_both_names_have_to_agree(app: Flask, chain: Chain) -> None:
    """Also two that the client is registered for."""
    both = exchange(chain.docs, chain.subject, resource=MAPS, audience=MAPS)
    assert both.status_code == 200
    backend = make_backend(app, DOCS, MAPS, MAIL)
    for client in (chain.docs, backend):
        for resource, audience in ((MAPS, MAIL), (MAIL, MAPS)):
            differ = exchange(client, chain.subject, resource=resource, audience=audience)
            assert error_of(differ) == (400, "invalid_target")


def test_the_default_api_is_meant_without_a_target(app: Flask, chain: Chain) -> None:
    assert error_of(exchange(chain.docs, chain.subject)) == (400, "invalid_target")
    backend = make_backend(app, DOCS, MAPS, default_api=MAPS)
    body = exchange(backend, chain.subject).get_json()
    assert claims_of(body["access_token"])["aud"] == MAPS


@pytest.mark.parametrize("target", [ISSUER, MAIL, "https://unknown.example", f"{MAPS}#x", "x"])
def test_targets_that_the_client_is_not_registered_for(chain: Chain, target: str) -> None:
    for name in ("resource", "audience"):
        answer = exchange(chain.docs, chain.subject, **{name: target})
        assert error_of(answer) == (400, "invalid_target")


def test_the_scope_narrows(chain: Chain) -> None:
    body = exchange(chain.docs, chain.subject, resource=MAPS, scope="draw").get_json()
    assert body["scope"] == claims_of(body["access_token"])["scope"] == "draw"
    for scope in ("draw write", "openid", "nothing", f"{MAPS}#draw"):
        answer = exchange(chain.docs, chain.subject, resource=MAPS, scope=scope)
        assert error_of(answer) == (400, "invalid_scope"), scope


def test_a_scope_of_the_same_name_needs_that_of_the_subject_token(chain: Chain) -> None:
    write = chain.approve(scope="openid write")["access_token"]
    body = exchange(chain.docs, write, resource=MAPS).get_json()
    assert body["scope"] == "draw"
    answer = exchange(chain.docs, write, resource=MAPS, scope="read")
    assert error_of(answer) == (400, "invalid_scope")


def test_a_scope_that_the_subject_token_lost_counts_no_more(app: Flask, chain: Chain) -> None:
    """The application may no longer read; so nobody may for it, at the next API, either."""
    subject = chain.approve(scope="openid read write")["access_token"]
    assert exchange(chain.docs, subject, resource=MAPS).get_json()["scope"] == "read draw"
    with app.app_context():
        clients.change(audit.SYSTEM, chain.books.client_id, {"apis": [f"{DOCS}=write", MAPS]})
        db.session.commit()
    assert exchange(chain.docs, subject, resource=MAPS).get_json()["scope"] == "draw"
    answer = exchange(chain.docs, subject, resource=MAPS, scope="read")
    assert error_of(answer) == (400, "invalid_scope")


def test_at_the_same_api_the_scope_only_shrinks(app: Flask, chain: Chain) -> None:
    backend = make_backend(app, DOCS, DOCS)
    body = exchange(backend, chain.subject, resource=DOCS).get_json()
    assert body["scope"] == "read"
    answer = exchange(backend, chain.subject, resource=DOCS, scope="write")
    assert error_of(answer) == (400, "invalid_scope")
    without = chain.approve(scope="openid")["access_token"]
    token = claims_of(exchange(backend, without, resource=DOCS).get_json()["access_token"])
    assert "scope" not in token


def test_the_registration_bounds_the_scope(app: Flask, chain: Chain) -> None:
    backend = make_backend(app, DOCS, f"{MAPS}=read")
    assert exchange(backend, chain.subject, resource=MAPS).get_json()["scope"] == "read"
    answer = exchange(backend, chain.subject, resource=MAPS, scope="draw")
    assert error_of(answer) == (400, "invalid_scope")


def test_an_application_exchanges_its_own_token(app: Flask, chain: Chain, user: User) -> None:
    own = make_client(
        app, apis=[DOCS, MAIL], grant_types=["authorization_code", "refresh_token", TOKEN_EXCHANGE]
    )
    code = chain.browser.approve(own, resource=DOCS, scope="openid read").code
    subject = own.exchange(code).get_json()["access_token"]
    token = claims_of(exchange(own, subject, resource=MAIL).get_json()["access_token"])
    assert (token["aud"], token["scope"]) == (MAIL, "send")
    assert token["act"] == {"sub": own.client_id}
    # Also one that is for this server's userinfo.
    plain = own.exchange(chain.browser.approve(own).code).get_json()["access_token"]
    assert claims_of(plain)["aud"] == ISSUER
    assert exchange(own, plain, resource=MAIL).status_code == 200


def test_what_the_user_declined_at_its_own_grant_stays_declined(
    app: Flask, chain: Chain, user: User
) -> None:
    own = make_client(
        app, apis=[DOCS, MAPS], grant_types=["authorization_code", "refresh_token", TOKEN_EXCHANGE]
    )
    chain.browser.authorize(own, resource=[DOCS, MAPS], scope="openid read write draw")
    page = chain.browser.page
    page.fields["api_scope"] = [f"{DOCS}#read", f"{DOCS}#write", f"{MAPS}#read"]
    tokens = own.exchange(chain.browser.allow().code, resource=DOCS).get_json()
    body = exchange(own, tokens["access_token"], resource=MAPS).get_json()
    assert body["scope"] == "read"
    # All of an API: it is in no grant then.
    page = chain.browser.authorize(own, resource=[DOCS, MAPS], scope="openid read draw",
                                   prompt="consent")  # fmt: skip
    page.fields["api_scope"] = [f"{DOCS}#read"]
    tokens = own.exchange(chain.browser.allow().code, resource=DOCS).get_json()
    answer = exchange(own, tokens["access_token"], resource=MAPS)
    assert error_of(answer) == (400, "invalid_target")


def test_it_lives_no_longer_than_the_subject_token(clock: Clock, app: Flask, chain: Chain) -> None:
    change_api(app, MAPS, access_token_lifetime=7200)
    tokens = chain.approve()
    clock.move(seconds=tokens["expires_in"] - 60)
    body = exchange(chain.docs, tokens["access_token"], resource=MAPS).get_json()
    assert 58 <= body["expires_in"] <= 60
    assert claims_of(body["access_token"])["exp"] == claims_of(tokens["access_token"])["exp"]


def test_a_shorter_lifetime_of_the_api_counts(app: Flask, chain: Chain) -> None:
    change_api(app, MAPS, access_token_lifetime=120)
    body = exchange(chain.docs, chain.subject, resource=MAPS).get_json()
    assert body["expires_in"] == 120


def test_the_claim_act_names_each_client_that_acts(chain: Chain) -> None:
    for_maps = chain.exchanged()
    for_mail = exchange(chain.maps, for_maps, resource=MAIL).get_json()["access_token"]
    assert claims_of(for_mail)["act"] == {
        "sub": chain.maps.client_id,
        "act": {"sub": chain.docs.client_id},
    }
    for_store = exchange(chain.mail, for_mail, resource=STORE).get_json()["access_token"]
    assert claims_of(for_store)["act"]["act"]["act"] == {"sub": chain.docs.client_id}
    fourth = exchange(chain.store, for_store, resource=DOCS)
    assert error_of(fourth) == (400, "invalid_request")
    assert "three times" in fourth.get_json()["error_description"]


@pytest.mark.parametrize(
    "more",
    [
        {"subject_token": None},
        {"subject_token_type": None},
        {"subject_token_type": "urn:ietf:params:oauth:token-type:refresh_token"},
        {"subject_token_type": "urn:ietf:params:oauth:token-type:id_token"},
        {"subject_token_type": "urn:ietf:params:oauth:token-type:jwt"},
        {"requested_token_type": "urn:ietf:params:oauth:token-type:refresh_token"},
        {"requested_token_type": "urn:ietf:params:oauth:token-type:id_token"},
        {"actor_token": "x", "actor_token_type": ACCESS_TOKEN},
        {"actor_token_type": ACCESS_TOKEN},
        {"subject_token": "☃"},
        {"subject_token": "x" * 5000},
        {"subject_token": "a.b.c"},
        {"resource": [MAPS, MAIL]},
        {"audience": [MAPS, MAPS]},
    ],
    ids=str,
)
def test_requests_that_are_not_valid(chain: Chain, more: dict[str, Any]) -> None:
    answer = exchange(chain.docs, chain.subject, **{"resource": MAPS, **more})
    assert error_of(answer) == (400, "invalid_request")


def test_the_type_may_be_named(chain: Chain) -> None:
    answer = exchange(chain.docs, chain.subject, resource=MAPS, requested_token_type=ACCESS_TOKEN)
    assert answer.status_code == 200


def test_only_clients_that_are_registered_for_it(app: Flask, chain: Chain) -> None:
    answer = exchange(chain.books, chain.subject, resource=MAPS)
    assert error_of(answer) == (400, "unauthorized_client")
    flask(app, "client", "update", chain.docs.client_id, "--no-exchange")
    answer = exchange(chain.docs, chain.subject, resource=MAPS)
    assert error_of(answer) == (400, "unauthorized_client")


def test_introspection_and_revocation_by_the_client_that_exchanged(
    app: Flask, chain: Chain, user: User
) -> None:
    token = chain.exchanged(scope="draw")
    members = chain.docs.introspect(token).get_json()
    claims = claims_of(token)
    assert members["active"] is True
    for name in ("sub", "aud", "scope", "client_id", "act", "exp", "jti"):
        assert members[name] == claims[name], name
    for other in (chain.books, chain.maps):
        assert other.introspect(token).get_json() == {"active": False}
        assert other.revoke(token).status_code == 200
    assert chain.docs.introspect(token).get_json()["active"] is True
    assert chain.docs.revoke(token).status_code == 200
    assert chain.docs.introspect(token).get_json() == {"active": False}
    # The subject token is another one.
    assert chain.books.introspect(chain.subject).get_json()["active"] is True
    assert error_of(exchange(chain.maps, token, resource=MAIL)) == (400, "invalid_request")


def credentials_of(app: Flask, identifier: str) -> tuple[str, str]:
    """The credentials with which an API introspects."""
    with app.app_context():
        [api] = stored_apis.matching(identifier).rows
        _, secret = apis.rotate_secret(audit.SYSTEM, api.api_id)
        db.session.commit()
        return api.api_id, secret


def introspected(app: Flask, identifier: str, token: str) -> dict[str, Any]:
    api_id, secret = credentials_of(app, identifier)
    form = {"token": token, "client_id": api_id, "client_secret": secret}
    backend = app.test_client(use_cookies=False)
    answer = backend.post("/api/auth/oauth2/introspect", data=form, base_url=ORIGIN)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.get_json()
    return found


def test_introspection_by_the_api(app: Flask, chain: Chain) -> None:
    token = chain.exchanged()
    members = introspected(app, MAPS, token)
    assert members["active"] is True
    for name in ("sub", "aud", "client_id", "act", "exp", "scope"):
        assert members[name] == claims_of(token)[name], name
    assert introspected(app, DOCS, token) == {"active": False}
    revoked = chain.exchanged()
    assert chain.docs.revoke(revoked).status_code == 200
    assert introspected(app, MAPS, revoked) == {"active": False}
    flask(app, "client", "update", chain.docs.client_id, "--set-apis", f"{MAPS}=draw")
    assert introspected(app, MAPS, token)["scope"] == "draw"
    flask(app, "client", "update", chain.docs.client_id, "--no-exchange")
    assert introspected(app, MAPS, token) == {"active": False}


def test_userinfo_is_not_for_it(chain: Chain) -> None:
    assert chain.docs.userinfo(chain.exchanged()).status_code == 401


def test_the_audit_trail_names_who_exchanged(app: Flask, chain: Chain, user: User) -> None:
    chain.exchanged()
    [event] = events(app, "tokens_exchanged")
    assert event["user"] == str(user.id)
    assert event["client"] == chain.docs.client_id
    assert event["audience"] == MAPS
    assert event["scope"] == "read draw"


def end(app: Flask, chain: Chain, user: User, how: str) -> None:
    books, docs = chain.books.client_id, chain.docs.client_id
    commands = {
        "user disabled": ("user", "disable", user.email),
        "user signed out": ("user", "sign-out", user.email),
        "application disabled": ("client", "disable", books),
        "application deleted": ("client", "delete", books, "--yes"),
        "backend disabled": ("client", "disable", docs),
        "backend deleted": ("client", "delete", docs, "--yes"),
        "exchange withdrawn": ("client", "update", docs, "--no-exchange"),
        "API withdrawn": ("client", "update", docs, "--remove-api", MAPS),
        "group of the application": ("client", "update", books, "--add-group", "staff"),
        "group of the backend": ("client", "update", docs, "--add-group", "staff"),
        "second factor": ("client", "update", docs, "--require-mfa"),
        "DPoP": ("client", "update", docs, "--require-dpop"),
    }
    if how == "API disabled":
        change_api(app, MAPS, disabled=True)
    elif how == "API for a group":
        change_api(app, MAPS, groups=["staff"])
    elif how == "refresh token revoked":
        assert chain.books.revoke(chain.tokens["refresh_token"]).status_code == 200
    else:
        flask(app, *commands[how])


ENDS = [
    *("user disabled", "application disabled", "application deleted", "backend disabled"),
    *("exchange withdrawn", "API withdrawn", "API disabled", "API for a group", "DPoP"),
    *("refresh token revoked", "group of the application", "group of the backend"),
    *("second factor", "backend deleted"),
]


@pytest.mark.parametrize("how", ENDS)
def test_what_ends_exchanged_tokens(app: Flask, chain: Chain, user: User, how: str) -> None:
    token = chain.exchanged()
    for_mail = exchange(chain.maps, token, resource=MAIL).get_json()["access_token"]
    end(app, chain, user, how)
    answer = chain.docs.introspect(token)
    assert answer.status_code == 401 or answer.get_json() == {"active": False}
    refused = exchange(chain.maps, token, resource=MAIL)
    assert error_of(refused) == (400, "invalid_request")
    # What was exchanged from it ends with whoever may not act any more, and with the grant.
    is_of_api = how in ("API withdrawn", "API disabled", "API for a group", "DPoP")
    is_of_client = how in ("group of the backend", "second factor")
    active = chain.maps.introspect(for_mail).get_json()["active"]
    assert active is (is_of_api or is_of_client)
    if how not in ("backend disabled", "backend deleted", "exchange withdrawn", "DPoP"):
        refused = exchange(chain.docs, chain.subject, resource=MAPS)
        assert error_of(refused)[1] in ("invalid_request", "invalid_target")


def test_a_backend_that_is_enabled_again_does_not_bring_tokens_back(
    app: Flask, chain: Chain
) -> None:
    token = chain.exchanged()
    for_mail = exchange(chain.maps, token, resource=MAIL).get_json()["access_token"]
    flask(app, "client", "disable", chain.docs.client_id)
    flask(app, "client", "enable", chain.docs.client_id)
    assert chain.docs.introspect(token).get_json() == {"active": False}
    assert chain.maps.introspect(for_mail).get_json() == {"active": False}
    assert chain.docs.introspect(chain.exchanged()).get_json()["active"] is True


def test_revoking_the_subject_token_alone_ends_that_token_alone(chain: Chain) -> None:
    token = chain.exchanged()
    chain.books.revoke(chain.subject)
    assert chain.docs.introspect(token).get_json()["active"] is True
    refused = exchange(chain.docs, chain.subject, resource=MAPS)
    assert error_of(refused) == (400, "invalid_request")


def test_the_session_rule_holds(app: Flask, chain: Chain, user: User) -> None:
    tokens = chain.approve(scope="openid read")
    token = exchange(chain.docs, tokens["access_token"], resource=MAPS).get_json()["access_token"]
    offline = chain.exchanged()
    chain.browser.open("/api/auth/sign-out")
    chain.browser.submit(decision="sign_out")
    assert chain.docs.introspect(token).get_json() == {"active": False}
    assert chain.docs.introspect(offline).get_json()["active"] is True


def test_an_api_that_includes_groups(app: Flask, browser: Browser) -> None:
    make_user(app, groups=["staff"])
    chain = Chain(app, browser)
    change_api(app, MAPS, includes_groups=True, groups=["staff"])
    assert claims_of(chain.exchanged())["groups"] == ["staff"]


def test_the_groups_of_the_api_decide(app: Flask, chain: Chain, user: User) -> None:
    change_api(app, MAPS, groups=["staff"])
    answer = exchange(chain.docs, chain.subject, resource=MAPS)
    assert error_of(answer) == (400, "invalid_target")
    assert "group" in answer.get_json()["error_description"]
    flask(app, "user", "update", user.email, "--add-group", "staff")
    assert exchange(chain.docs, chain.subject, resource=MAPS).status_code == 200


def test_an_api_that_is_deleted_is_in_no_registration(app: Flask, chain: Chain) -> None:
    change_api(app, DOCS, deleted=True)
    make_api(app, DOCS)
    answer = exchange(chain.docs, chain.subject, resource=MAPS)
    assert error_of(answer) == (400, "invalid_request")


def test_an_api_that_takes_the_identifier_of_a_deleted_one(
    app: Flask, browser: Browser, user: User
) -> None:
    """Even if nobody is asked, and all are registered for it again: the token was for another."""
    chain = Chain(app, browser, first_party=True)
    exchanged = chain.exchanged()
    change_api(app, DOCS, deleted=True)
    make_api(app, DOCS)
    entry = {"apis": [DOCS, MAPS]}
    with app.app_context():
        clients.change(audit.SYSTEM, chain.books.client_id, entry)
        clients.change(audit.SYSTEM, chain.docs.client_id, {"exchange_from": [DOCS], **entry})
        db.session.commit()
    answer = exchange(chain.docs, chain.subject, resource=MAPS)
    assert error_of(answer) == (400, "invalid_request")
    assert chain.docs.introspect(exchanged).get_json()["active"]  # it is for the maps
    answer = exchange(chain.docs, chain.approve()["access_token"], resource=MAPS)
    assert answer.status_code == 200


def test_tokens_bound_to_a_key(app: Flask, chain: Chain) -> None:
    dpop = DPoP()
    bound = chain.approve(dpop.header())["access_token"]
    answer = exchange(chain.docs, bound, dpop.header(), resource=MAPS)
    body = answer.get_json()
    assert body["token_type"] == "DPoP"
    assert claims_of(body["access_token"])["cnf"] == {"jkt": dpop.jkt}
    assert chain.docs.introspect(body["access_token"]).get_json()["cnf"] == {"jkt": dpop.jkt}
    # One that is not bound gets bound to the key of the request.
    own = DPoP()
    body = exchange(chain.docs, chain.subject, own.header(), resource=MAPS).get_json()
    assert claims_of(body["access_token"])["cnf"] == {"jkt": own.jkt}


def test_the_metadata_name_it(app: Flask) -> None:
    document = app.test_client().get("/api/auth/.well-known/openid-configuration").get_json()
    assert TOKEN_EXCHANGE in document["grant_types_supported"]


@pytest.mark.parametrize(
    "entry", ["https://unknown.example", f"{DOCS}=read", "x", f"{DOCS}#read"], ids=str
)
def test_a_client_acts_as_apis_that_there_are(app: Flask, chain: Chain, entry: str) -> None:
    arguments = ("client", "update", chain.docs.client_id, "--add-exchange-from", entry)
    result = app.test_cli_runner().invoke(args=arguments)
    assert result.exit_code != 0
    assert "Traceback" not in result.output


def test_the_command_registers_it(app: Flask, chain: Chain) -> None:
    backend = make_client(app, apis=[MAPS])
    flask(
        app, "client", "update", backend.client_id, "--exchange", "--add-exchange-from", f"{DOCS}/"
    )
    assert exchange(backend, chain.subject, resource=MAPS).status_code == 200
    flask(app, "client", "update", backend.client_id, "--remove-exchange-from", DOCS)
    answer = exchange(backend, chain.subject, resource=MAPS)
    assert error_of(answer) == (400, "invalid_request")
