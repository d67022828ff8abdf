"""Roles of applications and APIs: what tokens and userinfo say, and how long it holds."""

import json
from typing import Any

import pytest
from flask import Flask

from sso import audit
from sso.extensions import db
from sso.models import User
from sso.services import accounts, apis, clients, group_editing
from sso.services.changes import ListEdit
from sso.services.checks import Invalid
from sso.store import apis as stored_apis
from sso.store import named_groups
from tests.support.actors import ISSUER, Browser, RelyingParty, claims_of
from tests.support.exchanges import MAPS, Chain
from tests.support.factories import change_api, make_api, make_client, make_user
from tests.support.services import API, make_resource_server, make_service
from tests.support.statements import watched

DOCS = "https://docs.example"
ENTRIES = ["admin=owners", "editor=staff", "reader=all"]
OLGA = audit.Actor("olga")


@pytest.fixture
def user(app: Flask) -> User:
    return make_user(app, groups=["staff", "all"])


def set_groups(app: Flask, user: User, *groups: str) -> None:
    with app.app_context():
        accounts.update(audit.SYSTEM, user.id, memberships=ListEdit(whole=groups))
        db.session.commit()


def tokens_of(browser: Browser, client: RelyingParty, **more: Any) -> dict[str, Any]:
    answer = client.exchange(browser.approve(client, **more).code)
    assert answer.status_code == 200, answer.text
    tokens: dict[str, Any] = answer.get_json()
    return tokens


@pytest.mark.parametrize(
    ("shape", "claim"),
    [
        ({}, ["editor", "reader"]),
        ({"roles_shape": "string"}, "editor"),
        ({"roles_shape": "object"}, {"editor": True, "reader": True}),
    ],
)
def test_an_application_gets_them_in_its_shape(
    app: Flask, browser: Browser, user: User, shape: dict[str, str], claim: Any
) -> None:
    client = make_client(app, roles=ENTRIES, **shape)
    tokens = tokens_of(browser, client)
    assert client.userinfo(tokens["access_token"]).get_json()["roles"] == claim
    assert "roles" not in claims_of(tokens["id_token"])
    assert "roles" not in claims_of(tokens["access_token"])
    both = make_client(app, roles=ENTRIES, id_token_claims="all", **shape)
    assert claims_of(tokens_of(browser, both)["id_token"])["roles"] == claim


def test_a_lost_group_takes_its_role_at_the_next_request(
    app: Flask, browser: Browser, user: User
) -> None:
    client = make_client(app, roles=ENTRIES)
    token = tokens_of(browser, client)["access_token"]
    set_groups(app, user, "owners")
    assert client.userinfo(token).get_json()["roles"] == ["admin"]
    set_groups(app, user)
    assert client.userinfo(token).get_json()["roles"] == []


def test_the_page_of_consent_says_so(app: Flask, browser: Browser, user: User) -> None:
    make_api(app, DOCS, roles=["writer=staff", "owner=owners"])
    client = make_client(app, roles=ENTRIES, apis=[DOCS])
    browser.authorize(client, resource=[DOCS], scope="openid read")
    page = browser.sign_in().html.replace("<bdi>", "").replace("</bdi>", "")
    assert "Books also learns your role there: editor, reader" in page
    assert "Documents also learns your role there: writer" in page
    set_groups(app, user)
    browser.authorize(client, resource=[DOCS], scope="openid read")
    page = browser.page.html.replace("<bdi>", "").replace("</bdi>", "")
    assert "Books also learns that you have no role there." in page


def test_the_page_of_consent_is_silent_where_userinfo_is(
    app: Flask, browser: Browser, user: User
) -> None:
    """An application learns its roles at userinfo, which takes no token without its scopes."""
    client = make_client(app, roles=ENTRIES, scope="openid groups")
    browser.authorize(client, scope="groups")
    assert "your role there" not in browser.sign_in().html
    token = client.exchange(browser.allow().code).get_json()["access_token"]
    assert client.userinfo(token).status_code == 403
    other = make_client(app, roles=ENTRIES, scope="openid groups")
    browser.approve(other, scope="openid")
    page = browser.authorize(other, scope="openid groups")  # openid was allowed before
    assert "scope_groups" in page.fields
    assert "your role there" in page.html


@pytest.mark.parametrize("shape", ["list", "object"])
def test_an_api_gets_them_in_access_tokens(
    app: Flask, browser: Browser, user: User, shape: str
) -> None:
    """RFC 9068 §2.2.3.1; without its groups, and nothing of the roles of the application."""
    api = make_resource_server(app, roles=["writer=staff", "owner=owners"], roles_shape=shape)
    client = make_client(app, roles=ENTRIES, apis=[API])
    tokens = tokens_of(browser, client, resource=API, scope="openid read")
    expected: Any = {"writer": True} if shape == "object" else ["writer"]
    claims = claims_of(tokens["access_token"])
    assert (claims["roles"], "groups" in claims) == (expected, False)
    assert api.introspect(tokens["access_token"]).get_json()["roles"] == expected
    assert "roles" not in client.introspect(tokens["access_token"]).get_json()
    set_groups(app, user, "owners")
    now: Any = {"owner": True} if shape == "object" else ["owner"]
    assert api.introspect(tokens["access_token"]).get_json()["roles"] == now
    token = client.refresh(tokens["refresh_token"]).get_json()["access_token"]
    assert claims_of(token)["roles"] == now


def test_an_exchanged_token_has_the_roles_of_its_own_api(app: Flask, browser: Browser) -> None:
    user = make_user(app)
    chain = Chain(app, browser)
    set_groups(app, user, "staff")
    change_api(app, DOCS, roles=["author=staff"])
    change_api(app, MAPS, roles=["cartographer=staff"])
    assert claims_of(chain.exchanged())["roles"] == ["cartographer"]


def test_a_service_has_no_roles(app: Flask) -> None:
    api = make_resource_server(app, roles=["writer=staff"])
    service = make_service(app, roles=["writer=staff"], default_api=API)
    token = service.token()
    assert "roles" not in claims_of(token)
    assert "roles" not in api.introspect(token).get_json()


def test_it_costs_no_statement(app: Flask, browser: Browser, user: User) -> None:
    """Of code exchange, refresh and userinfo."""
    make_api(app, DOCS, roles=["writer=staff"])
    make_api(app, MAPS)
    plain = make_client(app, apis=[MAPS])
    client = make_client(app, roles=ENTRIES, apis=[DOCS], id_token_claims="all")
    with app.app_context():
        engine = db.engine

    def count(party: RelyingParty, api: str) -> int:
        code = browser.approve(party, resource=api, scope="openid read").code
        names: list[str] = []
        with watched(engine, lambda statement, _: names.append(statement)):
            tokens = party.exchange(code).get_json()
            tokens = party.refresh(tokens["refresh_token"], resource=ISSUER).get_json()
            assert party.userinfo(tokens["access_token"]).status_code == 200
        return len(names)

    count(plain, MAPS), count(client, DOCS)  # what is cached, is cached
    assert count(client, DOCS) == count(plain, MAPS)


def test_a_renamed_group_takes_its_roles_along(app: Flask, browser: Browser, user: User) -> None:
    """Somebody who gets the old name of a group gets none of its roles."""
    make_api(app, DOCS, roles=["writer=staff"])
    client = make_client(app, roles=ENTRIES, apis=[DOCS])
    token = tokens_of(browser, client)["access_token"]
    with app.app_context():
        group = named_groups.find_by_name("staff")
        assert group is not None
        group_editing.change(OLGA, group.id, name="employees")
        db.session.commit()
    assert client.userinfo(token).get_json()["roles"] == ["editor", "reader"]
    set_groups(app, user, "staff")
    assert client.userinfo(token).get_json()["roles"] == []
    with app.app_context():
        api = stored_apis.find(DOCS)
        assert api is not None
        assert (api.roles, api.groups) == (["writer=employees"], [])


@pytest.mark.parametrize(
    "entries", [["a b=staff"], ["editor="], ["editor=a,b"], ["editor=" + "g" * 201], ["\0=staff"]]
)
def test_roles_that_cannot_be(app: Flask, entries: list[str]) -> None:
    with app.app_context():
        with pytest.raises(Invalid):
            apis.register(OLGA, {"identifier": DOCS, "name": "Documents", "roles": entries})
        with pytest.raises(Invalid):
            clients.register(
                OLGA,
                {"client_name": "Books", "redirect_uris": ["https://b.example/"], "roles": entries},
            )
        fields = {"identifier": DOCS, "name": "Documents", "roles_shape": "xml"}
        with pytest.raises(Invalid):
            apis.register(OLGA, fields)


def test_commands(app: Flask, user: User) -> None:
    make_api(app, DOCS)
    client = make_client(app, apis=[DOCS])
    run = app.test_cli_runner().invoke
    options = ["--add-role", "editor", "--role-of", "editor=staff", "--roles-shape", "string"]
    result = run(args=["client", "update", client.client_id, *options, "--json"])
    shown = json.loads(result.stdout)
    assert (shown["roles"], shown["roles_shape"]) == (["editor=staff"], "string")
    result = run(args=["api", "update", DOCS, "--role-of", "writer=all users", "--json"])
    assert json.loads(result.stdout)["roles"] == ["writer=all users"]
    make_user(app, "erin@example.com", groups=["all users", "staff"])
    args = ["client", "preview", client.client_id, "--resource", DOCS]
    text = run(args=[*args, "--user", "erin@example.com"]).stdout
    assert "Roles at Books, and the groups that give them\n  editor  staff\n" in text
    assert "Roles at Documents, and the groups that give them\n  writer  all users\n" in text
    preview = json.loads(run(args=[*args, "--user", user.email, "--json"]).stdout)
    assert preview["roles"] == {client.client_id: {"editor": ["staff"]}, DOCS: {}}
    assert preview["access_token"]["payload"]["roles"] == []
    result = run(args=["client", "update", client.client_id, "--remove-role", "editor", "--json"])
    assert json.loads(result.stdout)["roles"] == []
