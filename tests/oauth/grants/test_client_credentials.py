"""The client credentials grant (RFC 6749 §4.4): tokens of services, for one API each."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import func, select

from sso import audit
from sso.extensions import db
from sso.jobs import upkeep
from sso.models import ServiceToken, User
from sso.ratelimit import limiting
from sso.services import clients
from tests.conftest import ON_POSTGRESQL, Clock, Statements
from tests.support.actors import ISSUER, claims_of, header_of
from tests.support.events import events
from tests.support.factories import change_api, make_api, make_client
from tests.support.proofs import DPoP
from tests.support.services import (
    API,
    OTHER_API,
    ResourceServer,
    Service,
    make_keyed_service,
    make_resource_server,
    make_service,
)

Count = Callable[[], AbstractContextManager[Statements]]


@pytest.fixture
def api(app: Flask) -> ResourceServer:
    return make_resource_server(app)


@pytest.fixture
def service(app: Flask, api: ResourceServer) -> Service:
    return make_service(app, default_api=API)


def refused(answer: Any, error: str, words: str = "", status: int = 400) -> bool:
    body = answer.get_json()
    assert (answer.status_code, body["error"]) == (status, error), body
    assert words in body["error_description"], body
    assert "access_token" not in body
    return True


def change(app: Flask, service: Service, **fields: Any) -> None:
    with app.app_context():
        clients.change(audit.SYSTEM, service.client_id, fields)
        db.session.commit()


def scope_of(service: Service, token: str) -> str | None:
    """The scope that the token has at introspection; `None` if it is inactive."""
    found = service.introspect(token).get_json()
    if not found["active"]:
        assert found == {"active": False}
        return None
    return str(found.get("scope", ""))


def test_a_token(service: Service) -> None:
    answer = service.ask()
    assert answer.status_code == 200
    assert answer.headers["Cache-Control"] == "no-store"
    tokens = answer.get_json()
    token = tokens.pop("access_token")
    assert tokens == {"token_type": "Bearer", "expires_in": 3600, "scope": "read write"}
    assert header_of(token)["typ"] == "at+jwt"
    claims = claims_of(token)
    assert claims["exp"] - claims.pop("iat") == 3600
    assert claims.pop("jti")
    del claims["exp"]
    assert claims == {
        "iss": ISSUER,
        "aud": API,
        "sub": service.client_id,
        "client_id": service.client_id,
        "scope": "read write",
    }


def test_its_cost(service: Service, statements: Count) -> None:
    """As an exchange: one statement finds the client, and one stores the token."""
    service.token()
    with statements() as seen:
        service.token()
    assert (len(seen), seen.commits) == ((2, 0) if ON_POSTGRESQL else (2, 1))


@pytest.mark.parametrize(
    ("asked", "granted"),
    [
        (None, "read write"),
        ("read", "read"),
        ("write read write", "write read"),
        ("read openid offline_access delete", "read"),
    ],
)
def test_scopes(service: Service, asked: str | None, granted: str) -> None:
    token = service.ask(scope=asked).get_json()
    assert token["scope"] == claims_of(token["access_token"])["scope"] == granted
    assert scope_of(service, token["access_token"]) == granted


@pytest.mark.parametrize("asked", ["delete", "openid", "READ", "read\u00a0write", "x" * 2000])
def test_no_scope_that_it_may_have(service: Service, asked: str) -> None:
    answer = service.ask(scope=asked)
    assert answer.status_code == 400
    assert answer.get_json()["error"] in ("invalid_scope", "invalid_request")


def test_only_registered_scopes(app: Flask, api: ResourceServer) -> None:
    service = make_service(app, f"{API}=read")
    assert claims_of(service.token(resource=API))["scope"] == "read"
    assert refused(service.ask(resource=API, scope="write"), "invalid_scope", API)


def test_an_api_without_scopes(app: Flask) -> None:
    make_resource_server(app, OTHER_API, scopes={})
    service = make_service(app, OTHER_API, default_api=OTHER_API)
    answer = service.ask().get_json()
    assert answer["scope"] == ""
    assert "scope" not in claims_of(answer["access_token"])
    assert service.introspect(answer["access_token"]).get_json()["active"]
    assert refused(service.ask(scope="read"), "invalid_scope")


def test_the_resource_chooses_the_audience(app: Flask, service: Service) -> None:
    make_resource_server(app, OTHER_API, access_token_lifetime=60)
    change(app, service, apis=[API, OTHER_API])
    assert claims_of(service.token())["aud"] == API
    answer = service.ask(resource="HTTPS://Other.Example.com/").get_json()
    assert claims_of(answer["access_token"])["aud"] == OTHER_API
    assert answer["expires_in"] == 60


@pytest.mark.parametrize(
    ("resource", "words"),
    [
        (ISSUER, "A service needs an API"),
        (OTHER_API, f"The resource {OTHER_API} is not an API"),
        (API + "/v1", "is not an API"),
        (API + "#read", "(unreadable)"),
        ('a"\\\u00e9', "(unreadable)"),
    ],
)
def test_no_api_that_it_may_use(app: Flask, service: Service, resource: str, words: str) -> None:
    assert refused(service.ask(resource=resource), "invalid_target", words)
    (told,) = events(app, "tokens_refused")
    assert (told["error"], told["client"]) == ("invalid_target", service.client_id)


def test_without_any_api(app: Flask, api: ResourceServer) -> None:
    words = "A service needs an API"
    assert refused(make_service(app).ask(), "invalid_target", words)
    assert refused(make_service(app, apis=[]).ask(), "invalid_target", words)
    assert refused(make_service(app, apis=[]).ask(resource=ISSUER), "invalid_target", words)


def test_two_resources(service: Service) -> None:
    form = {"grant_type": "client_credentials", **service.credentials(), "resource": [API, API]}
    assert refused(service.post("/oauth2/token", form), "invalid_request")


def test_groups_of_an_api_are_of_people(app: Flask, service: Service) -> None:
    change_api(app, API, groups=["staff"], includes_groups=True)
    token = service.token()
    assert "groups" not in claims_of(token)
    assert scope_of(service, token) == "read write"


def test_clients_of_other_grants(app: Flask, api: ResourceServer) -> None:
    books = make_client(app, apis=[API], default_api=API)
    form = {"grant_type": "client_credentials", **books.credentials()}
    assert refused(books.post("/oauth2/token", form), "unauthorized_client")


def test_by_key(app: Flask, api: ResourceServer) -> None:
    service = make_keyed_service(app, default_api=API)
    assert claims_of(service.token())["sub"] == service.client_id
    assert refused(replace(service, kid="k2").ask(), "invalid_client", status=401)


def test_bound_to_a_key(app: Flask, service: Service) -> None:
    key = DPoP()
    answer = service.ask(key.header()).get_json()
    assert answer["token_type"] == "DPoP"
    assert claims_of(answer["access_token"])["cnf"] == {"jkt": key.jkt}
    found = service.introspect(answer["access_token"]).get_json()
    assert (found["cnf"], found["token_type"]) == ({"jkt": key.jkt}, "DPoP")
    unbound = service.token()
    change(app, service, dpop_bound_access_tokens=True)
    assert refused(service.ask(), "invalid_request", "DPoP")
    assert scope_of(service, unbound) is None
    assert scope_of(service, answer["access_token"]) == "read write"
    header = key.header()
    service.token(header)
    assert refused(service.ask(header), "invalid_dpop_proof", "used before")


def test_what_a_client_is_told_of_its_token(service: Service) -> None:
    token = service.token(scope="read")
    claims = claims_of(token)
    assert service.introspect(token).get_json() == {
        **{name: claims[name] for name in ("iss", "aud", "sub", "client_id", "iat", "exp", "jti")},
        "active": True,
        "scope": "read",
        "token_type": "Bearer",
    }


def test_a_token_of_another_client(app: Flask, service: Service) -> None:
    other, token = make_service(app, default_api=API), service.token()
    assert scope_of(other, token) is None
    assert other.revoke(token).status_code == 200
    assert scope_of(service, token) == "read write"
    named = [(one["client"], one["at"]) for one in events(app, "token_refused")]
    assert named == [(other.client_id, "introspection"), (other.client_id, "revocation")]


def test_a_token_that_was_altered(service: Service) -> None:
    token = service.token()
    for altered in (token[:-4] + "AAAA", token + ".", token.replace(".", "..", 1), token[:-1]):
        assert scope_of(service, altered) is None


def test_revoked(app: Flask, service: Service) -> None:
    token, other = service.token(), service.token()
    for _ in range(2):
        assert service.revoke(token).status_code == 200
    assert (scope_of(service, token), scope_of(service, other)) == (None, "read write")
    told = events(app, "token_revoked")
    assert [(one["client"], one["audience"], one["user"]) for one in told] == [
        (service.client_id, API, None)
    ]


def test_expired(app: Flask, clock: Clock, service: Service) -> None:
    clock.stand_still()
    token = service.token()
    clock.move(seconds=3599)
    assert scope_of(service, token) == "read write"
    clock.move(seconds=1)
    assert scope_of(service, token) is None
    clock.move(minutes=2)
    with app.app_context():
        list(upkeep.batches())
        assert db.session.scalar(select(func.count()).select_from(ServiceToken)) == 0


def test_shown_at_userinfo(app: Flask, service: Service) -> None:
    answer = service.userinfo(service.token())
    assert refused(answer, "invalid_token", status=401)
    (told,) = events(app, "access_token_refused")
    assert (told["reason"], told["client"]) == ("issued to a service", service.client_id)


CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], str | None]] = {
    "a scope of the API": ({"scopes": {"read": "Read"}}, {}, "read"),
    "all scopes of the API": ({"scopes": {"delete": "Delete"}}, {}, None),
    "the API": ({"disabled": True}, {}, None),
    "the registration": ({}, {"apis": [], "default_api": None}, None),
    "a scope of the registration": ({}, {"apis": [f"{API}=write"]}, "write"),
    "the grant type": (
        {},
        {"grant_types": ["authorization_code"], "redirect_uris": ["https://a.example/cb"]},
        None,
    ),
    "deleted": ({"deleted": True}, {}, None),
}


@pytest.mark.parametrize("what", CHANGES)
def test_narrowed(app: Flask, api: ResourceServer, service: Service, what: str) -> None:
    of_api, of_client, left = CHANGES[what]
    token = service.token()
    if of_api:
        change_api(app, API, **of_api)
    if of_client:
        change(app, service, **of_client)
    assert scope_of(service, token) == left
    if not of_api.get("disabled") and not of_api.get("deleted"):
        assert api.introspect(token).get_json().get("scope") == left


def test_a_token_for_an_earlier_api_of_the_same_identifier(
    app: Flask, service: Service, clock: Clock
) -> None:
    token = service.token()
    change_api(app, API, deleted=True)
    clock.move(seconds=2)
    make_api(app, API)
    change(app, service, apis=[API])
    assert scope_of(service, token) is None
    assert scope_of(service, service.token(resource=API)) == "read write"


@pytest.mark.parametrize("how", ["disable", "change"])
def test_disabling_ends_tokens_for_good(
    app: Flask, api: ResourceServer, service: Service, how: str
) -> None:
    """The client's tokens stay ended when it is enabled again, as those of people do."""
    token = service.token()
    run = app.test_cli_runner().invoke
    if how == "change":
        change(app, service, disabled=True)
    else:
        assert run(args=["client", "disable", service.client_id]).exit_code == 0
    assert api.introspect(token).get_json() == {"active": False}
    assert refused(service.ask(), "invalid_client", status=401)
    assert run(args=["client", "enable", service.client_id]).exit_code == 0
    assert api.introspect(token).get_json() == {"active": False}
    assert scope_of(service, service.token()) == "read write"
    change(app, service, disabled=True)
    assert run(args=["client", "delete", service.client_id, "--yes"]).exit_code == 0
    with app.app_context():
        assert db.session.scalar(select(func.count()).select_from(ServiceToken)) == 0


def test_what_does_not_end_them(app: Flask, service: Service) -> None:
    token = service.token()
    with app.app_context():
        _, secret = clients.rotate_secret(audit.SYSTEM, service.client_id)
        db.session.commit()
    service.client_secret = secret
    assert scope_of(service, token) == "read write"
    issuer = {"trust_issuer": "https://ci.example", "trust_subject": "job:1"}
    change(app, service, **issuer)
    change(app, service, trust_issuer=None, token_endpoint_auth_method="any")
    with app.app_context():
        _, service.client_secret = clients.rotate_secret(audit.SYSTEM, service.client_id)
        db.session.commit()
    assert scope_of(service, token) == "read write"


def test_its_event_has_a_budget(
    app: Flask, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "OWN_EVENTS_AN_HOUR", 2)
    for _ in range(4):
        service.token(scope="read")
    told = events(app, "service_token_issued")
    assert len(told) == 2
    assert {key: told[0][key] for key in ("client", "user", "audience", "scope")} == {
        "client": service.client_id, "user": None, "audience": API, "scope": "read",
    }  # fmt: skip
    (end,) = events(app, "service_token_issued_limited")
    assert (end["client"], end["count"]) == (service.client_id, "of client")


def test_few_tokens_an_hour(app: Flask, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = replace(limiting.SERVICE_TOKENS, most=2)
    monkeypatch.setattr(limiting, "SERVICE_TOKENS", rule)
    assert [service.ask().status_code for _ in range(4)] == [200, 200, 429, 429]
    other = make_service(app, default_api=API)
    assert other.ask().status_code == 200
    (told,) = events(app, "service_tokens_limited")
    assert told["client"] == service.client_id


def test_what_commands_show(app: Flask, service: Service, user: User) -> None:
    service.token()
    service.revoke(service.token())
    run = app.test_cli_runner().invoke
    shown = run(args=["client", "show", service.client_id, "--json"])
    assert '"live_service_tokens": 1' in shown.output
    assert "live_service_tokens" in run(args=["client", "show", service.client_id]).output
    books = make_client(app)
    assert "service" not in run(args=["client", "show", books.client_id]).output


def test_a_public_client_is_not_registered(app: Flask, api: ResourceServer) -> None:
    with pytest.raises(ValueError, match="a public client cannot have the grant type"):
        make_service(app, auth_method="none")
