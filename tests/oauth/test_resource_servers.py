"""Introspection by an API (RFC 7662): with its own credentials, of the tokens that are for it."""

import base64
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from flask import Flask

from sso import audit
from sso.extensions import db
from sso.models import User
from sso.services import apis, clients
from tests.conftest import Clock, Statements
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty, claims_of
from tests.support.events import events
from tests.support.factories import change_api, make_client
from tests.support.proofs import DPoP
from tests.support.services import (
    API,
    OTHER_API,
    ResourceServer,
    Service,
    make_resource_server,
    make_service,
)

Count = Callable[[], AbstractContextManager[Statements]]
OFFLINE = "openid email offline_access"


@pytest.fixture
def api(app: Flask) -> ResourceServer:
    return make_resource_server(app)


@pytest.fixture
def other(app: Flask) -> ResourceServer:
    return make_resource_server(app, OTHER_API)


@pytest.fixture
def service(app: Flask, api: ResourceServer) -> Service:
    return make_service(app, default_api=API)


@pytest.fixture
def books(app: Flask, api: ResourceServer) -> RelyingParty:
    return make_client(app, apis=[API], scope=OFFLINE)


def tokens_of(browser: Browser, client: RelyingParty, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = client.exchange(
        browser.approve(client, **{"resource": API, "scope": "openid read write", **more}).code
    ).get_json()
    return found


def join_staff(app: Flask, user: User) -> None:
    add = ["user", "update", user.email, "--add-group", "staff"]
    assert app.test_cli_runner().invoke(args=add).exit_code == 0


def inactive(api: ResourceServer, token: str) -> bool:
    answer = api.introspect(token)
    return (answer.status_code, answer.get_json()) == (200, {"active": False})


def scope_of(api: ResourceServer, token: str) -> str:
    found = api.introspect(token).get_json()
    assert found["active"]
    return str(found["scope"])


def test_a_token_of_a_person(
    browser: Browser, api: ResourceServer, books: RelyingParty, user: User
) -> None:
    """Nothing that identifies the person but the subject."""
    token = tokens_of(browser, books)["access_token"]
    claims = claims_of(token)
    names = ("iss", "aud", "sub", "client_id", "iat", "exp", "jti", "auth_time", "scope")
    assert api.introspect(token).get_json() == {
        **{name: claims[name] for name in names},
        "active": True,
        "token_type": "Bearer",
    }
    assert claims["sub"] == str(user.id)
    assert claims["aud"] == API


def test_a_token_of_a_service(api: ResourceServer, service: Service) -> None:
    token = service.token(scope="read")
    found = api.introspect(token).get_json()
    assert found["sub"] == found["client_id"] == service.client_id
    assert (found["scope"], found["aud"], found["active"]) == ("read", API, True)


def test_by_basic(api: ResourceServer, service: Service) -> None:
    pair = base64.b64encode(f"{api.api_id}:{api.secret}".encode()).decode()
    party = RelyingParty(api.app, api.api_id, api.secret, "")
    form, headers = {"token": service.token()}, {"Authorization": f"Basic {pair}"}
    answer = party.post("/oauth2/introspect", form, headers=headers)
    assert answer.get_json()["active"] is True
    assert party.post("/oauth2/introspect", {}, headers=headers).status_code == 400


def test_its_cost(
    browser: Browser, api: ResourceServer, books: RelyingParty, service: Service,
    user: User, statements: Count,
) -> None:  # fmt: skip
    """One statement finds the API, and one the token, with all that it depends on."""
    for token in (service.token(), tokens_of(browser, books)["access_token"]):
        api.introspect(token)
        with statements() as seen:
            assert api.introspect(token).get_json()["active"]
        assert len(seen) == 2


def test_bound_to_a_key(api: ResourceServer, service: Service) -> None:
    key = DPoP()
    found = api.introspect(service.token(key.header())).get_json()
    assert (found["cnf"], found["token_type"]) == ({"jkt": key.jkt}, "DPoP")


def test_groups_only_if_it_may_have_them(
    app: Flask, browser: Browser, api: ResourceServer, books: RelyingParty, service: Service,
    user: User,
) -> None:  # fmt: skip
    """They are those of now."""
    token = tokens_of(browser, books)["access_token"]
    assert "groups" not in api.introspect(token).get_json()
    change_api(app, API, roles=["editor=staff"])
    join_staff(app, user)
    members = api.introspect(token).get_json()
    assert ("groups" in members, members["roles"]) == (False, ["editor"])
    change_api(app, API, includes_groups=True)
    assert api.introspect(token).get_json()["groups"] == ["staff"]
    assert "groups" not in api.introspect(service.token()).get_json()


def test_tokens_that_are_not_for_it(
    app: Flask, browser: Browser, api: ResourceServer, other: ResourceServer,
    books: RelyingParty, service: Service, user: User,
) -> None:  # fmt: skip
    tokens = tokens_of(browser, books, scope=f"{OFFLINE} read")
    for_issuer = books.exchange(browser.approve(books).code).get_json()["access_token"]
    for token in (tokens["access_token"], service.token()):
        assert inactive(other, token)
        assert not inactive(api, token)
        assert inactive(api, token[:-4] + "AAAA")
    for token in (for_issuer, tokens["refresh_token"], tokens["id_token"], "", "x", "a.b.c"):
        if token:
            assert inactive(api, token), token
    told = events(app, "token_refused")
    assert {one["api"] for one in told} == {API, OTHER_API}
    assert {one["client"] for one in told} == {None}


def test_narrowed(
    app: Flask, browser: Browser, api: ResourceServer, books: RelyingParty, user: User
) -> None:
    token = tokens_of(browser, books)["access_token"]
    with app.app_context():
        clients.change(audit.SYSTEM, books.client_id, {"apis": [f"{API}=read"]})
        db.session.commit()
    assert scope_of(api, token) == "read"
    change_api(app, API, groups=["staff"])
    assert inactive(api, token)
    join_staff(app, user)
    assert scope_of(api, token) == "read"
    change_api(app, API, scopes={"write": "Write"})
    assert inactive(api, token)


@pytest.mark.parametrize("how", ["client", "user", "session", "revoked", "mfa", "consent"])
def test_ended(
    app: Flask, browser: Browser, api: ResourceServer, books: RelyingParty, user: User, how: str
) -> None:
    token = tokens_of(browser, books)["access_token"]
    run = app.test_cli_runner().invoke
    if how == "client":
        assert run(args=["client", "disable", books.client_id]).exit_code == 0
    elif how == "user":
        assert run(args=["user", "disable", user.email]).exit_code == 0
    elif how == "revoked":
        books.revoke(token)
    elif how == "session":
        browser.open(f"{ORIGIN}{BASE}/sign-out")
        browser.submit(decision="sign_out")
    elif how == "mfa":
        assert run(args=["client", "update", books.client_id, "--require-mfa"]).exit_code == 0
    else:
        with app.app_context():
            clients.change(audit.SYSTEM, books.client_id, {"groups": ["staff"]})
            db.session.commit()
    assert inactive(api, token)


def test_expired(clock: Clock, api: ResourceServer, service: Service) -> None:
    clock.stand_still()
    token = service.token()
    clock.move(seconds=3599)
    assert not inactive(api, token)
    clock.move(seconds=1)
    assert inactive(api, token)


def test_a_disabled_api(app: Flask, api: ResourceServer, service: Service) -> None:
    token = service.token()
    change_api(app, API, disabled=True)
    answer = api.introspect(token)
    assert (answer.status_code, answer.get_json()["error"]) == (401, "invalid_client")
    (told,) = events(app, "client_authentication_failed")
    assert (told["reason"], told["client"]) == ("disabled API", api.api_id)


def test_credentials_that_were_replaced_or_taken_away(
    app: Flask, api: ResourceServer, service: Service
) -> None:
    token = service.token()
    with app.app_context():
        _, secret = apis.rotate_secret(audit.SYSTEM, api.api_id)
        db.session.commit()
    assert api.introspect(token).status_code == 401
    api.secret = secret
    assert api.introspect(token).status_code == 200
    change_api(app, API, introspection=False)
    assert api.introspect(token).status_code == 401


def test_wrong_secrets_are_counted_and_slowed_down(app: Flask, api: ResourceServer) -> None:
    right, api.secret = api.secret, "wrong"
    statuses = [api.introspect("t").status_code for _ in range(23)]
    assert statuses[:20] == [401] * 20
    assert 429 in statuses[20:]
    told = events(app, "client_authentication_failed")
    assert {one["reason"] for one in told} == {"wrong secret of an API"}
    api.secret = right
    assert api.introspect("t").status_code == 200  # strangers do not shut it out


def test_without_a_secret(api: ResourceServer, service: Service) -> None:
    token = service.token()
    for secret in ("", " ", api.secret + "x", api.secret[:-1], service.client_secret):
        api.secret = secret
        assert api.introspect(token).status_code == 401, secret


def test_its_secret_is_good_for_nothing_else(
    app: Flask, api: ResourceServer, service: Service
) -> None:
    token = service.token()
    for path, form in (
        ("/oauth2/token", {"grant_type": "client_credentials", "resource": API}),
        ("/oauth2/token", {"grant_type": "refresh_token", "refresh_token": "x"}),
        ("/oauth2/token", {"grant_type": "authorization_code", "code": "x",
                           "redirect_uri": "https://x.example"}),
        ("/oauth2/revoke", {"token": token}),
        ("/oauth2/par", {"response_type": "code"}),
    ):  # fmt: skip
        answer = api.post(path, form)
        assert (answer.status_code, answer.get_json()["error"]) == (401, "invalid_client"), path
    reasons = {one["reason"] for one in events(app, "client_authentication_failed")}
    assert reasons == {"the credentials of an API, which can only introspect"}
    assert not inactive(api, token)


def test_unknown_and_known_apis_cost_the_same(
    app: Flask, api: ResourceServer, statements: Count
) -> None:
    """Who has no secret learns nothing from the time."""
    known = ResourceServer(app, api.api_id, API, "wrong")
    unknown = ResourceServer(app, "api-" + "x" * 22, API, "wrong")
    texts = []
    for one in (known, unknown, known, unknown):
        with statements() as seen:
            answer = one.introspect("t")
        assert answer.status_code == 401
        texts.append((len(seen), answer.get_json()))
    assert texts[2] == texts[3]


def test_a_client_whose_id_looks_like_that_of_an_api(app: Flask, api: ResourceServer) -> None:
    client = make_client(app, client_id="api-" + "y" * 22)
    assert client.introspect("t").get_json() == {"active": False}
    twin = RelyingParty(app, client.client_id, api.secret, "")
    assert twin.introspect("t").status_code == 401
