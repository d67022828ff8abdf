"""The APIs of this server itself, for services: provisioning and registration."""

import json
from typing import Any

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from sso import audit
from sso.extensions import db
from sso.flow import own_apis
from sso.models import User
from sso.services import api_tokens, apis, clients
from sso.services.changes import ListEdit
from sso.services.checks import Invalid
from sso.store import clients as stored_clients
from tests.conftest import Clock
from tests.support.actors import BASE, ISSUER, ORIGIN, claims_of
from tests.support.events import events
from tests.support.factories import make_client, make_user
from tests.support.proofs import DPoP
from tests.support.services import API, Service, make_resource_server, make_service

SCIM, REGISTRATION = f"{ISSUER}/scim", f"{ISSUER}/api"
USERS, CLIENTS = "/scim/v2/Users", "/oauth2/register"
NEW = {"client_name": "Wiki", "redirect_uris": ["https://wiki.example/cb"]}
PERSON = {
    "schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"],
    "userName": "erin@example.com",
    "name": {"formatted": "Erin"},
}


def call(
    app: Flask, token: str, path: str, body: Any = None, scheme: str = "Bearer",
    method: str | None = None, **headers: str,
) -> TestResponse:  # fmt: skip
    kind = "application/scim+json" if "scim" in path else "application/json"
    return app.test_client(use_cookies=False).open(
        BASE + path,
        method=method or ("POST" if body else "GET"),
        base_url=ORIGIN,
        data=json.dumps(body) if body else None,
        content_type=kind,
        headers={"Authorization": f"{scheme} {token}", **headers},
    )


def make(app: Flask, *entries: str, **more: Any) -> Service:
    return make_service(app, *entries, **more)


def change(app: Flask, service: Service, **fields: Any) -> None:
    with app.app_context():
        clients.change(audit.SYSTEM, service.client_id, fields)
        db.session.commit()


def test_the_scopes_are_those_of_api_tokens() -> None:
    every = own_apis.every("https://id.example.com").values()
    assert sorted(scope for api in every for scope in api.scopes) == sorted(api_tokens.SCOPES)


def test_identifiers() -> None:
    every = own_apis.every("https://ID.example.com/sso")
    assert list(every) == ["https://id.example.com/sso/scim", "https://id.example.com/sso/api"]


def test_a_service_provisions(app: Flask, user: User) -> None:
    service = make(app, f"{SCIM}=scim:read,scim:write", default_api=SCIM)
    token = service.token()
    assert claims_of(token)["aud"] == SCIM
    assert call(app, token, USERS).get_json()["totalResults"] == 1
    assert call(app, token, USERS, PERSON).status_code == 201
    (told,) = events(app, "user_created")
    assert (told["operator"], told["service"]) == ("service Reports", service.client_id)
    assert "api_token" not in told


def test_a_service_registers_clients(app: Flask) -> None:
    service = make(app, f"{REGISTRATION}=clients:write", default_api=REGISTRATION)
    token = service.token()
    assert call(app, token, CLIENTS, NEW).status_code == 201
    assert len(call(app, token, CLIENTS).get_json()["clients"]) == 2
    (told,) = events(app, "client_created")
    assert told["service"] == service.client_id


def test_each_api_has_its_tokens(app: Flask) -> None:
    everything = (f"{SCIM}=scim:read", f"{REGISTRATION}=clients:read", API)
    make_resource_server(app)
    service = make(app, *everything)
    tokens = {resource: service.token(resource=resource) for resource in (SCIM, REGISTRATION, API)}
    for path, right in ((USERS, SCIM), (CLIENTS, REGISTRATION)):
        for resource, token in tokens.items():
            status = 200 if resource == right else 401
            answer = call(app, token, path)
            assert answer.status_code == status, (path, resource)
            if status == 401:
                assert 'error="invalid_token"' in answer.headers["WWW-Authenticate"]


def test_scopes(app: Flask, user: User) -> None:
    service = make(app, f"{SCIM}=scim:read", f"{REGISTRATION}=clients:read")
    assert call(app, service.token(resource=SCIM), USERS, PERSON).status_code == 403
    assert call(app, service.token(resource=REGISTRATION), CLIENTS, NEW).status_code == 403
    for scope in ("scim:write", "scim:privileged", "clients:write"):
        for resource in (SCIM, REGISTRATION):
            assert service.ask(resource=resource, scope=scope).status_code == 400
    (told, other) = events(app, "api_token_refused")
    assert told["client"] == other["client"] == service.client_id


def test_only_privileged_services_change_administrators(app: Flask) -> None:
    boss = make_user(app, "boss@example.com", groups=["sso-administrators"])
    path = f"{USERS}/{boss.id}"
    few = make(app, f"{SCIM}=scim:read,scim:write", default_api=SCIM)
    privileged = make(
        app, f"{SCIM}=scim:read,scim:write,scim:privileged", default_api=SCIM, name="All"
    )
    make_user(app, "other@example.com", groups=["sso-administrators"])
    body = {
        "schemas": ["urn:ietf:params:scim:api:messages:2.0:PatchOp"],
        "Operations": [{"op": "replace", "path": "active", "value": False}],
    }
    assert call(app, few.token(), path, body, method="PATCH").status_code == 403
    assert call(app, privileged.token(), path, body, method="PATCH").status_code == 200


def test_ended(app: Flask, clock: Clock, user: User) -> None:
    service = make(app, f"{SCIM}=scim:read", default_api=SCIM)
    revoked, token = service.token(), service.token()
    service.revoke(revoked)
    assert call(app, revoked, USERS).status_code == 401
    assert call(app, token[:-4] + "AAAA", USERS).status_code == 401
    assert call(app, token, USERS).status_code == 200
    change(app, service, apis=[], default_api=None)
    assert call(app, token, USERS).status_code == 401
    change(app, service, apis=[f"{SCIM}=scim:read"])
    assert call(app, token, USERS).status_code == 200
    clock.move(hours=1)
    assert call(app, token, USERS).status_code == 401
    last = service.token(resource=SCIM)
    change(app, service, disabled=True)
    assert call(app, last, USERS).status_code == 401


def test_bound_to_a_key(app: Flask, user: User) -> None:
    service, key = make(app, f"{SCIM}=scim:read", default_api=SCIM), DPoP()
    token, unbound = service.token(key.header()), service.token()

    def proof(**claims: Any) -> dict[str, str]:
        return {"DPoP": key.proof(USERS, token=token, **{"htm": "GET", **claims})}

    header = proof()
    assert call(app, token, USERS, scheme="DPoP", **header).status_code == 200
    assert call(app, token, USERS, scheme="DPoP", **header).status_code == 401  # used
    assert call(app, token, USERS).status_code == 401
    assert call(app, token, USERS, **proof()).status_code == 401  # as Bearer (RFC 9449 §7.1)
    assert call(app, token, USERS, scheme="DPoP").status_code == 401
    assert call(app, unbound, USERS, scheme="DPoP", **proof()).status_code == 401
    wrong = {"DPoP": DPoP().proof(USERS, token=token, htm="GET")}
    assert call(app, token, USERS, scheme="DPoP", **wrong).status_code == 401
    for claims in ({"htm": "POST"}, {"htu": f"{ISSUER}/scim/v2/Groups"}):
        answer = call(app, token, USERS, scheme="DPoP", **proof(**claims))
        assert answer.status_code == 401
    change(app, service, dpop_bound_access_tokens=True)
    assert call(app, unbound, USERS).status_code == 401


@pytest.mark.parametrize("user_id", ["%22", "%5C", "%C3%BC", "a%20b"])
def test_a_proof_for_another_url_than_this_one(app: Flask, user: User, user_id: str) -> None:
    """The description names the URL, whatever characters it has."""
    service, key = make(app, f"{SCIM}=scim:read", default_api=SCIM), DPoP()
    token, path = service.token(key.header()), f"{USERS}/{user_id}"
    other, right = (
        {"DPoP": key.proof(each, token=token, htm="GET")} for each in (f"{USERS}/1", path)
    )
    assert call(app, token, path, scheme="DPoP", **other).status_code == 401
    assert call(app, token, path, scheme="DPoP", **right).status_code == 404


CODE = {"grant_types": ["authorization_code"], "redirect_uris": ["https://a.example/cb"]}
BOTH = {**CODE, "grant_types": ["authorization_code", "client_credentials"]}


@pytest.mark.parametrize(
    ("entry", "fields", "words"),
    [
        (SCIM, {}, "name the scopes"),
        (f"{SCIM}=", {}, "name the scopes"),
        (f"{SCIM}=clients:read", {}, "has no scope clients:read"),
        (f"{SCIM}=scim:invite", {}, "needs scim:write"),
        (f"{SCIM}=scim:read,scim:privileged", {}, "needs scim:write"),
        (f"{SCIM}=scim:read", CODE, "is for clients whose only grant type"),
        (f"{SCIM}=scim:read", BOTH, "is for clients whose only grant type"),
        (f"{SCIM}2=scim:read", {}, "there is no API"),
    ],
)
def test_what_is_not_registered(app: Flask, entry: str, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make(app, entry, **fields)


def test_a_service_that_is_to_sign_people_in_has_to_give_them_up(app: Flask) -> None:
    service = make(app, f"{SCIM}=scim:read")
    with pytest.raises(Invalid, match="is for clients whose only grant type"):
        change(app, service, **BOTH)


def test_their_identifiers_are_taken(app: Flask) -> None:
    for identifier in (SCIM, REGISTRATION, SCIM.replace("http:", "HTTP:")):
        with app.app_context(), pytest.raises(Invalid, match="of this server itself"):
            apis.register(audit.SYSTEM, {"identifier": identifier, "name": "Mine"})


def test_only_the_command_line_gives_and_changes_them(app: Flask, user: User) -> None:
    """What the service may do would outlive the rights of who gave it."""
    service, plain = make(app, f"{SCIM}=scim:read,scim:write"), make_service(app, apis=[])
    books = make_client(app)
    program = audit.Actor("API token x", "api", token="1")
    person = audit.Actor("dana@example.com", "admin", user_id=user.id)
    with_service = audit.Actor("service x", "api", service=plain.client_id)
    wanted = {"apis": [f"{SCIM}=scim:read"]}
    for actor in (program, person, with_service):
        for act in (
            lambda actor=actor: clients.register(
                actor, {"client_name": "x", "grant_types": ["client_credentials"], **wanted}
            ),
            lambda actor=actor: clients.change(actor, plain.client_id, wanted),
            lambda actor=actor: clients.change(
                actor, plain.client_id, {"apis": [f"{SCIM.replace('http:', 'HTTP:')}=scim:read"]}
            ),
            lambda actor=actor: clients.change(
                actor, plain.client_id, {"apis": [f" {SCIM}=scim:read"]}
            ),
            lambda actor=actor: clients.change(
                actor, plain.client_id, {}, lists={"apis": ListEdit(added=(f"{SCIM}=scim:read",))}
            ),
            lambda actor=actor: clients.change(
                actor, plain.client_id, {}, lists={"apis": ListEdit(whole=(f"{SCIM}=scim:read",))}
            ),
            lambda actor=actor: clients.change(
                actor, service.client_id, {}, lists={"apis": ListEdit(whole=())}
            ),
            lambda actor=actor: clients.change(actor, service.client_id, {"client_name": "x"}),
            lambda actor=actor: clients.change(
                actor, service.client_id, {"jwks_uri": "https://x.example/keys"}
            ),
            lambda actor=actor: clients.rotate_secret(actor, service.client_id),
            lambda actor=actor: clients.limit_secret(actor, service.client_id, "2099-01-01"),
        ):
            with app.app_context(), pytest.raises(Invalid, match="only by commands"):
                act()
        with app.app_context():
            clients.change(actor, books.client_id, {"client_name": actor.operator})
            clients.disable(actor, plain.client_id)
            db.session.commit()
    assert service.ask(resource=SCIM).status_code == 200


def test_only_the_command_line_enables_them_again(app: Flask, user: User) -> None:
    service = make(app, f"{SCIM}=scim:read,scim:write,scim:privileged", default_api=SCIM)
    person = audit.Actor("dana@example.com", "admin", user_id=user.id)
    with app.app_context():
        clients.disable(person, service.client_id)
        db.session.commit()
    with app.app_context(), pytest.raises(Invalid, match="only by commands"):
        clients.enable(person, service.client_id)
    assert service.ask().status_code == 401
    with app.app_context():
        clients.enable(audit.operator(), service.client_id)
        db.session.commit()
    assert service.ask().status_code == 200


def test_a_group_that_such_a_service_names_is_renamed(app: Flask) -> None:
    """The groups of a client are of people: it may do no more than before."""
    service = make(app, f"{SCIM}=scim:read", default_api=SCIM, groups=["staff"])
    other = make(app, f"{SCIM}=scim:read,scim:write", default_api=SCIM, name="Directory").token()
    (group,) = call(app, other, "/scim/v2/Groups").get_json()["Resources"]
    rename = {"op": "replace", "path": "displayName", "value": "crew"}
    body = {
        "schemas": ["urn:ietf:params:scim:api:messages:2.0:PatchOp"],
        "Operations": [rename],
    }
    answer = call(app, other, f"/scim/v2/Groups/{group['id']}", body, method="PATCH")
    assert answer.status_code == 204, answer.text
    with app.app_context():
        client = stored_clients.find(service.client_id)
        assert client is not None
        assert client.groups == ["crew"]


def test_a_program_cannot_raise_its_rights(app: Flask) -> None:
    """By registering a service that has more rights, or by taking over one."""
    rights = f"{SCIM}=scim:read,scim:write,scim:privileged"
    service = make(app, rights, name="Provisioning")
    token = make(app, f"{REGISTRATION}=clients:write", default_api=REGISTRATION).token()
    body = {"client_name": "Mine", "grant_types": ["client_credentials"], "apis": [rights]}
    answer = call(app, token, CLIENTS, body)
    assert (answer.status_code, answer.get_json()["error"]) == (400, "invalid_client_metadata")
    path = f"{CLIENTS}/{service.client_id}"
    assert call(app, token, f"{path}/secret", {"keep_old": 1}).status_code == 400
    assert call(app, token, path, {**body, "apis": []}, method="PUT").status_code == 400
    assert service.ask(resource=SCIM).status_code == 200
