"""APIs in a file: exported, planned, applied and pruned with the clients that name them."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flask import Flask

from sso.crypto import secrets
from sso.store import apis, clients
from tests.support.factories import make_api, make_client

ORDERS, SECRET = "https://orders.example", "a-random-secret-of-32-characters-or-more"
FILE = f"""
format = 1
[[apis]]
identifier = "{ORDERS}/"
name = "Orders"
scopes = {{ read = "Read orders" }}
translations = {{ de = {{ read = "Bestellungen lesen" }} }}
roles = ["approver=managers"]
access_token_lifetime = 300
introspection = true
secret = "env:ORDERS"
[[clients]]
client_id = "shop"
client_name = "Shop"
redirect_uris = ["https://shop.example/cb"]
apis = ["{ORDERS}=read"]
secret = "env:ORDERS"
"""


@pytest.fixture
def apply(app: Flask, tmp_path: Path) -> Callable[..., Any]:
    def write_and_apply(text: str, *options: str) -> Any:
        path = tmp_path / "sso.toml"
        path.write_text(text)
        arguments = ("apply", str(path), *options)
        return app.test_cli_runner().invoke(args=arguments, env={"ORDERS": SECRET})

    return write_and_apply


def test_an_api_and_its_client_are_declared_together(app: Flask, apply: Callable[..., Any]) -> None:
    result = apply(FILE, "--plan")
    assert f"+ api {ORDERS}\n    identifier: {ORDERS}\n    name: Orders\n" in result.stdout
    assert "+ client shop" in result.stdout
    assert SECRET not in result.output
    with app.app_context():
        assert apis.every() == []
    assert "2 changed." in apply(FILE).stdout
    with app.app_context():
        api, client = apis.find(ORDERS), clients.find("shop")
        assert api is not None
        assert client is not None
        assert (api.name, api.access_token_lifetime) == ("Orders", 300)
        assert secrets.matches(SECRET, api.secret_digest or "")
        assert client.apis == {ORDERS: ("read",)}
    assert "Everything is as the file says." in apply(FILE).stdout


def test_what_is_exported_can_be_applied(app: Flask, apply: Callable[..., Any]) -> None:
    apply(FILE)
    text = app.test_cli_runner().invoke(args=["export"]).stdout
    assert tomllib.loads(text)["apis"] == [
        {
            "identifier": ORDERS,
            "name": "Orders",
            "scopes": {"read": "Read orders"},
            "translations": {"de": {"read": "Bestellungen lesen"}},
            "groups": [],
            "includes_groups": False,
            "agents": False,
            "roles": ["approver=managers"],
            "roles_shape": "list",
            "access_token_lifetime": 300,
            "introspection": True,
            "disabled": False,
        }
    ]
    assert "Everything is as the file says." in apply(text).stdout


def test_only_what_an_entry_names_is_changed(app: Flask, apply: Callable[..., Any]) -> None:
    apply(FILE)
    entry = f'format = 1\n[[apis]]\nidentifier = "{ORDERS}"\n'
    result = apply(f'{entry}scopes = {{ write = "W" }}\naccess_token_lifetime = 0\n')
    assert f"~ api {ORDERS}" in result.stdout
    assert "access_token_lifetime: 300 -> -" in result.stdout
    assert "translations" in result.stdout  # that of the scope that is gone
    assert "name:" not in result.stdout
    result = apply(f'{entry}secret = "env:ORDERS"\n')
    assert "Everything is as the file says." in result.stdout


def test_clients_may_ask_for_scopes_that_the_file_adds(
    app: Flask, apply: Callable[..., Any]
) -> None:
    apply(FILE)
    more = FILE.replace('read = "Read orders" }', 'read = "Read", write = "Write" }')
    more = more.replace("=read", "=read,write")
    assert "2 changed." in apply(more).stdout
    with app.app_context():
        client = clients.find("shop")
        assert client is not None
        assert client.apis == {ORDERS: ("read", "write")}


def test_apis_are_pruned_only_if_the_file_has_some(app: Flask, apply: Callable[..., Any]) -> None:
    apply(FILE)
    make_api(app, "https://else.example")
    client_id = make_client(app, apis=["https://else.example"]).client_id
    assert apply("format = 1\nusers = []", "--plan", "--prune").stdout == (
        "Everything is as the file says.\n"
    )
    entry = f'format = 1\n[[apis]]\nidentifier = "{ORDERS}"\n'
    result = apply(entry, "--prune", "--yes")
    assert "- api https://else.example\n" in result.stdout
    with app.app_context():
        assert [api.identifier for api in apis.every()] == [ORDERS]
        client = clients.find(client_id)
        assert client is not None
        assert client.apis == {}


ENTRY = f'format = 1\n[[apis]]\nidentifier = "{ORDERS}"\n'
CLIENT = """
[[clients]]
client_id = "c"
client_name = "C"
redirect_uris = ["https://c.example/cb"]
secret = "env:ORDERS"
"""


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (ENTRY, f"apis {ORDERS}: the name is empty"),
        (ENTRY + 'name = "O"\nintrospection = true', "it is new and has introspection: give"),
        (ENTRY + 'name = "O"\nsecret = "env:ORDERS"', "an API without introspection has no secret"),
        (ENTRY + "scopes = { read = 7 }", "scopes is not an object of texts"),
        (ENTRY + 'scopes = "read"', "scopes is not an object of texts"),
        (ENTRY + 'translations = { de = "x" }', "not an object of texts by language"),
        (ENTRY + "access_token_lifetime = true", "access_token_lifetime is not a number"),
        (ENTRY + "groups = [1]", "groups is not a list of texts"),
        (ENTRY + 'colour = "red"', "'colour' is unknown"),
        (ENTRY + f'[[apis]]\nidentifier = "{ORDERS}/"', "is there twice"),
        ("format = 1\n[[apis]]\nname = 'x'", "apis 1: identifier is missing"),
        ("format = 1\n[[apis]]\nidentifier = 7", "identifier is not a text"),
        (f'format = 1{CLIENT}apis = ["{ORDERS}"]', f"there is no API '{ORDERS}'"),
        (
            f'{ENTRY}name = "O"\n{CLIENT}apis = ["{ORDERS}=write"]',
            f"the API {ORDERS} has no scope write",
        ),
    ],
)
def test_files_that_do_not_do(app: Flask, apply: Callable[..., Any], text: str, error: str) -> None:
    result = apply(text)
    assert result.exit_code == 1
    assert error in result.stderr


def test_a_client_of_an_api_that_would_be_deleted_is_an_error(
    app: Flask, apply: Callable[..., Any]
) -> None:
    make_api(app, "https://else.example")
    text = f'{ENTRY}name = "O"\n{CLIENT}apis = ["https://else.example"]'
    result = apply(text, "--prune", "--yes")
    assert "clients c: the API https://else.example would be deleted" in result.stderr
