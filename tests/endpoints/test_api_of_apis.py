"""APIs administered by programs, as JSON with an API token."""

import json
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from tests.conftest import Statements
from tests.scim.conftest import make_token
from tests.support.actors import BASE
from tests.support.events import events
from tests.support.factories import make_api, make_client

BODY = {"identifier": "https://api.example/", "name": "Orders", "scopes": {"read": "Read orders"}}


class Program:
    def __init__(self, app: Flask, *scopes: str) -> None:
        self.http = app.test_client()
        self.headers = {"Authorization": f"Bearer {make_token(app, *scopes, name=scopes[0])}"}

    def __call__(self, method: str, path: str = "", body: Any = None, **more: str) -> TestResponse:
        headers = {**self.headers, **{name.replace("_", "-"): text for name, text in more.items()}}
        data = body if isinstance(body, bytes) else json.dumps(body) if body is not None else None
        kind = "application/json" if body is not None else None
        url = f"{BASE}/apis{path}"
        return self.http.open(url, method=method, headers=headers, data=data, content_type=kind)


@pytest.fixture
def program(app: Flask) -> Program:
    return Program(app, "apis:write")


def test_a_life(app: Flask, program: Program) -> None:
    answer = program("POST", body={**BODY, "introspection": True, "unknown": 7})
    made = answer.get_json()
    assert answer.status_code == 201
    path = f"/{made['api_id']}"
    assert answer.headers["Location"].endswith(f"/apis{path}")
    secret = made.pop("secret")
    assert secret.startswith("sso_cs_")
    assert made["identifier"] == "https://api.example"
    read = program("GET", path)
    assert read.get_json() == made
    assert program("GET").get_json()["apis"] == [made]

    changed = {**made, "name": "Books", "groups": ["staff"], "access_token_lifetime": 300}
    put = program("PUT", path, changed, If_Match=read.headers["ETag"])
    assert put.get_json() == changed
    assert put.headers["ETag"] != read.headers["ETag"]
    assert program("PUT", path, changed, If_Match=read.headers["ETag"]).status_code == 412
    assert program("DELETE", path, If_Match=read.headers["ETag"]).status_code == 412
    bare = program("PUT", path, {"name": "Orders"}).get_json()
    assert (bare["scopes"], bare["groups"], bare["access_token_lifetime"]) == ({}, [], None)
    assert bare["introspection"] is True  # its secret stays

    rotated = program("POST", f"{path}/secret").get_json()
    assert rotated["secret"] not in ("", secret)
    assert program("DELETE", path).status_code == 204
    assert program("GET", path).status_code == 404
    names = ("api_created", "api_changed", "api_secret_rotated", "api_deleted")
    found = events(app, *names)
    assert {event["name"] for event in found} == set(names)
    assert {event["operator"] for event in found} == {"API token apis:write"}
    assert secret not in str(found)


REFUSED = [
    {},
    {**BODY, "identifier": "http://api.example"},
    {**BODY, "identifier": 7},
    {**BODY, "name": ""},
    {**BODY, "name": "x" * 300},
    {**BODY, "scopes": ["read"]},
    {**BODY, "scopes": {"read": 7}},
    {**BODY, "scopes": {"openid": "x"}},
    {**BODY, "scopes": {"": "x"}},
    {**BODY, "scopes": {f"s{number}": "x" for number in range(101)}},
    {**BODY, "translations": {"de": "x"}},
    {**BODY, "translations": {"de": {"write": "x"}}},
    {**BODY, "translations": {"klingon": {"read": "x"}}},
    {**BODY, "groups": "staff"},
    {**BODY, "groups": [7]},
    {**BODY, "access_token_lifetime": 1},
    {**BODY, "access_token_lifetime": True},
    {**BODY, "access_token_lifetime": "300"},
    {**BODY, "introspection": "yes"},
    {**BODY, "disabled": 1},
    [BODY],
    b"{",
    b'{"scopes":' + b"[" * 100_000,
]


@pytest.mark.parametrize("body", REFUSED)
def test_what_is_refused(program: Program, body: Any) -> None:
    answer = program("POST", body=body)
    assert (answer.status_code, answer.get_json()["error"]) == (400, "invalid_request")
    assert program("GET").get_json()["apis"] == []


def test_an_identifier_stays_and_is_registered_once(app: Flask, program: Program) -> None:
    make_api(app, "https://api.example")
    answer = program("POST", body=BODY)
    assert "already an API" in answer.get_json()["error_description"]
    path = f"/{program('GET').get_json()['apis'][0]['api_id']}"
    answer = program("PUT", path, {**BODY, "identifier": "https://else.example"})
    assert "the identifier of an API stays" in answer.get_json()["error_description"]


def test_an_unknown_id_is_not_found(
    program: Program, statements: Callable[[], AbstractContextManager[Statements]]
) -> None:
    for path in ("/nothing", "/%00", "/" + "x" * 3000):
        for method in ("GET", "PUT", "DELETE"):
            with statements() as ran:
                answer = program(method, path, BODY if method == "PUT" else None)
            assert answer.status_code == 404
            # PostgreSQL takes no NUL.
            assert path != "/%00" or not re.search(r"(FROM|UPDATE) apis\b", " ".join(ran))


def test_deleting_an_api_takes_it_from_its_clients(app: Flask, program: Program) -> None:
    identifier = make_api(app)
    client = make_client(app, apis=[identifier], default_api=identifier)
    path = f"/{program('GET').get_json()['apis'][0]['api_id']}"
    assert program("DELETE", path).status_code == 204
    (row,) = json.loads(app.test_cli_runner().invoke(args=["client", "list", "--json"]).stdout)
    assert (row["client_id"], row["apis"]) == (client.client_id, [])


def test_who_may(app: Flask) -> None:
    for scopes, status in (("apis:read", 200), ("clients:write", 403)):
        program = Program(app, scopes)
        assert program("GET").status_code == status
        for method, path in (("POST", ""), ("PUT", "/x"), ("DELETE", "/x"), ("POST", "/x/secret")):
            answer = program(method, path, BODY)
            assert answer.status_code == 403
            assert 'scope="apis:write"' in answer.headers["WWW-Authenticate"]
    assert app.test_client().get(f"{BASE}/apis").status_code == 401
