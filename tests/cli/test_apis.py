"""`flask api`: APIs are registered, found, changed and deleted by command."""

import json
from typing import Any

import pytest
from flask import Flask

from sso.store import apis
from tests.support.events import events
from tests.support.factories import make_api, make_client

ORDERS = "https://orders.example"
CREATE = ("api", "create", "--identifier", f"{ORDERS}/", "--name", "Orders")


def run(app: Flask, *arguments: str) -> Any:
    return app.test_cli_runner().invoke(args=arguments)


def answer(app: Flask, *arguments: str) -> Any:
    result = run(app, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_an_api_is_registered_with_all_its_fields(app: Flask) -> None:
    api = answer(
        app, *CREATE, "--scope", "read=Read orders", "--scope", "write=Change orders",
        "--translation", "de:read=Bestellungen lesen", "--group", "buyers", "--lifetime", "300",
        "--include-groups", "--introspection",
    )  # fmt: skip
    assert api.pop("api_id").startswith("api-")
    assert api.pop("created_at")
    assert api.pop("secret").startswith("sso_cs_")
    assert api == {
        "identifier": ORDERS,
        "name": "Orders",
        "scopes": {"read": "Read orders", "write": "Change orders"},
        "translations": {"de": {"read": "Bestellungen lesen"}},
        "groups": ["buyers"],
        "access_token_lifetime": 300,
        "includes_groups": True,
        "agents": False,
        "roles": [],
        "roles_shape": "list",
        "introspection": True,
        "disabled": False,
    }
    assert "secret" not in answer(app, "api", "show", ORDERS)
    assert [event["api"] for event in events(app, "api_created")] == [ORDERS]


def test_entries_of_lists_are_added_and_removed(app: Flask) -> None:
    make_api(app, ORDERS, translations={"de": {"read": "Lesen", "write": "Ändern"}})
    result = answer(
        app, "api", "update", ORDERS, "--add-scope", "purge=Delete all", "--remove-scope", "write",
        "--add-group", "staff",
    )  # fmt: skip
    assert result["scopes"] == {"read": "Read documents", "purge": "Delete all"}
    assert result["translations"] == {"de": {"read": "Lesen"}}  # the other scope is gone
    assert result["changes"].keys() == {"scopes", "translations", "groups"}
    result = answer(app, "api", "update", ORDERS, "--set-scopes", "read=Read", "--set-groups", "")
    assert (result["scopes"], result["groups"]) == ({"read": "Read"}, [])


def test_the_description_of_a_scope_is_replaced_in_its_place(app: Flask) -> None:
    make_api(app, ORDERS)
    result = answer(app, "api", "update", ORDERS, "--add-scope", "read=Read it")
    assert list(result["scopes"].items()) == [("read", "Read it"), ("write", "Change documents")]


def test_a_secret_comes_and_goes_with_introspection(app: Flask) -> None:
    make_api(app, ORDERS)
    assert "secret" in answer(app, "api", "update", ORDERS, "--introspection")
    assert "secret" not in answer(app, "api", "update", ORDERS, "--introspection")
    assert "secret" in answer(app, "api", "rotate-secret", ORDERS)
    assert not answer(app, "api", "update", ORDERS, "--no-introspection")["introspection"]


def test_values_are_removed(app: Flask) -> None:
    make_api(app, ORDERS, access_token_lifetime=300)
    assert answer(app, "api", "update", ORDERS, "--no-lifetime")["access_token_lifetime"] is None


def test_an_api_is_shown_with_its_clients(app: Flask) -> None:
    make_api(app, ORDERS)
    shop = make_client(app, name="Shop", apis=[f"{ORDERS}=read"], default_api=ORDERS)
    make_client(app, name="Else")
    assert answer(app, "api", "show", ORDERS)["clients"] == [shop.client_id]
    shown = run(app, "api", "show", ORDERS).stdout
    assert f"{shop.client_id}  Shop  read    yes      no" in shown


def test_an_api_is_found_by_name_or_prefix_if_nothing_is_lost(app: Flask) -> None:
    identifier = make_api(app, ORDERS, name="Orders")
    make_api(app, "https://ordinary.example", name="Else")
    assert answer(app, "api", "show", "order")["identifier"] == identifier
    assert answer(app, "api", "show", "HTTPS://Orders.example/")["identifier"] == identifier
    result = run(app, "api", "show", "https://ord")
    assert result.exit_code == 1
    assert "https://orders.example (Orders), https://ordinary.example (Else)" in result.stderr
    for verb in ("disable", "delete", "rotate-secret"):
        result = run(app, "api", verb, "order", *(["--yes"] if verb == "delete" else []))
        assert "needs the identifier in full" in result.stderr
    assert run(app, "api", "show", "nothing").stderr == (
        "Error: there is no api nothing; see: flask api list\n"
    )


def test_an_api_is_disabled_enabled_and_deleted(app: Flask) -> None:
    make_api(app, ORDERS)
    client = make_client(app, apis=[ORDERS], default_api=ORDERS)
    assert answer(app, "api", "disable", ORDERS)["disabled"] is True
    assert answer(app, "api", "enable", ORDERS)["disabled"] is False
    assert answer(app, "api", "delete", ORDERS, "--yes") == {"identifier": ORDERS, "deleted": True}
    shown = answer(app, "client", "show", client.client_id)
    assert (shown["apis"], "default_api" in shown) == ([], False)
    with app.app_context():
        assert apis.every() == []


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--scope", "read"), "the description of the scope read is empty"),
        (("--scope", "openid=Sign in"), "the scope openid is one of this server"),
        (("--scope", "a b=Read"), "the scope 'a b' is refused"),
        (("--scope", "read="), "the description of the scope read is empty"),
        (("--translation", "read=Lesen"), "the language 'read' is none of"),
        (("--translation", "xx:read=x"), "the language 'xx' is none of"),
        (("--translation", "de:read=x"), "which is no scope of the API"),
        (("--lifetime", "5"), "not between 60 and 86400 seconds"),
        (("--group", "a,b"), "has a comma"),
        (("--name", ""), "the name is empty"),
        (("--identifier", "http://api.example"), "neither an https URL nor a URN"),
        (("--identifier", "ftp://localhost/api"), "neither an https URL nor a URN"),
        (("--identifier", "https://a.example/#x"), "it has a fragment"),
        (("--identifier", "https://me@a.example"), "it carries a user name"),
        (("--identifier", "urn:x"), "not a complete URN"),
        (("--identifier", f"https://{'a' * 300}.example"), "longer than 200 characters"),
    ],
)
def test_what_is_refused(app: Flask, options: tuple[str, ...], error: str) -> None:
    result = run(app, *CREATE, *options)
    assert result.exit_code == 1
    assert error in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_an_identifier_is_registered_once(app: Flask) -> None:
    make_api(app, ORDERS)
    assert "there is already an API with the identifier" in run(app, *CREATE).stderr


def test_an_update_without_options_says_so(app: Flask) -> None:
    make_api(app, ORDERS)
    assert run(app, "api", "update", ORDERS).exit_code == 2
    result = run(app, "api", "update", ORDERS, "--lifetime", "90", "--no-lifetime")
    assert "--no-lifetime contradicts --lifetime" in result.stderr
