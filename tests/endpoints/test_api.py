"""Registrations by API: RFC 7591 and RFC 7592 with an API token."""

import json
from typing import Any

import pytest
from flask import Flask
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from werkzeug.test import TestResponse

from sso.config.client_fields import FIELDS, IN_API, METADATA
from sso.extensions import db
from sso.services import clients
from sso.services.checks import Invalid
from sso.store.groups import NewGroups, replace_groups
from tests.scim.conftest import make_token
from tests.support.actors import BASE, Browser
from tests.support.events import events
from tests.support.factories import make_client, make_user
from tests.support.signing import EC, public

BODY = {"client_name": "Wiki", "redirect_uris": ["https://wiki.example/cb"], "unknown": 7}


class Api:
    def __init__(self, app: Flask, *scopes: str) -> None:
        self.http = app.test_client()
        self.headers = {"Authorization": f"Bearer {make_token(app, *scopes, name=scopes[0])}"}

    def __call__(self, method: str, path: str = "", body: Any = None, **more: str) -> TestResponse:
        headers = {**self.headers, **{name.replace("_", "-"): one for name, one in more.items()}}
        url = f"{BASE}/oauth2/register{path}"
        data = body if isinstance(body, bytes) else json.dumps(body) if body is not None else None
        kind = "application/json" if body is not None else None
        return self.http.open(url, method=method, headers=headers, data=data, content_type=kind)


@pytest.fixture
def api(app: Flask) -> Api:
    return Api(app, "clients:write")


def test_a_life(app: Flask, api: Api) -> None:
    answer = api("POST", body={**BODY, "require_pkce": True, "groups": ["staff"]})
    made = answer.get_json()
    assert answer.status_code == 201
    assert answer.headers["Location"] == made["registration_client_uri"]
    assert made["client_secret"].startswith("sso_cs_")
    assert made["client_secret_expires_at"] == 0
    assert (made["client_name"], made["require_pkce"], made["groups"]) == ("Wiki", True, ["staff"])
    path = f"/{made['client_id']}"
    read = api("GET", path)
    assert read.get_json() == {
        name: value for name, value in made.items() if not name.startswith("client_secret")
    }
    assert [one["client_id"] for one in api("GET").get_json()["clients"]] == [made["client_id"]]

    changed = {**read.get_json(), "client_name": "Books", "home_url": "https://wiki.example/"}
    put = api("PUT", path, changed, If_Match=read.headers["ETag"])
    assert put.get_json() == changed
    assert put.headers["ETag"] != read.headers["ETag"]
    assert api("PUT", path, changed, If_Match=read.headers["ETag"]).status_code == 412
    assert api("DELETE", path, If_Match=read.headers["ETag"]).status_code == 412
    bare = api("PUT", path, BODY).get_json()
    assert "home_url" not in bare
    assert (bare["groups"], bare["require_pkce"]) == ([], False)

    rotated = api("POST", f"{path}/secret", {"keep_old": 24}).get_json()
    assert rotated["client_secret"] != made["client_secret"]
    assert api("DELETE", path).status_code == 204
    assert api("GET", path).status_code == 404
    names = ("client_created", "client_changed", "client_secret_rotated", "client_deleted")
    found = events(app, *names)
    assert {one["name"] for one in found} == set(names)
    assert {one["operator"] for one in found} == {"API token clients:write"}
    assert made["client_secret"] not in str(found)


@pytest.mark.parametrize(
    ("hours", "status"),
    [(0, 200), (1, 200), (8760, 200), (8761, 400), (-1, 400), (True, 400), (False, 400),
     ("1", 400), (1.5, 400), (None, 400), ([1], 400)],
)  # fmt: skip
def test_for_how_long_the_old_secret_is_kept(api: Api, hours: Any, status: int) -> None:
    client_id = api("POST", body=BODY).get_json()["client_id"]
    answer = api("POST", f"/{client_id}/secret", {"keep_old": hours})
    assert answer.status_code == status, answer.text


def test_a_disabled_client_stays_disabled(app: Flask, api: Api, browser: Browser) -> None:
    client = make_client(app)
    make_user(app)
    code = browser.approve(client).code
    tokens = client.exchange(code).get_json()
    path = f"/{client.client_id}"
    shown = api("GET", path).get_json()
    api("PUT", path, {**shown, "disabled": True})
    assert client.userinfo(tokens["access_token"]).status_code == 401
    del shown["disabled"]
    assert api("PUT", path, shown).get_json()["disabled"] is True


REFUSED: list[tuple[Any, str]] = [
    ({**BODY, "redirect_uris": ["http://wiki.example/cb"]}, "invalid_redirect_uri"),
    ({"client_name": "Wiki"}, "invalid_redirect_uri"),
    ({**BODY, "redirect_uris": "https://wiki.example/cb"}, "invalid_client_metadata"),
    ({**BODY, "redirect_uris": [7]}, "invalid_client_metadata"),
    ({**BODY, "client_name": ""}, "invalid_client_metadata"),
    ({**BODY, "scope": "root"}, "invalid_client_metadata"),
    ({**BODY, "first_party": "yes"}, "invalid_client_metadata"),
    ({**BODY, "grant_types": ["client_credentials"]}, "invalid_redirect_uri"),
    ({**BODY, "grant_types": ["password"]}, "invalid_client_metadata"),
    ({**BODY, "grant_types": []}, "invalid_client_metadata"),
    ({**BODY, "grant_types": "authorization_code"}, "invalid_client_metadata"),
    ({**BODY, "grant_types": 7}, "invalid_client_metadata"),
    ({**BODY, "response_types": True}, "invalid_client_metadata"),
    ({**BODY, "response_types": [["code"]]}, "invalid_client_metadata"),
    ({**BODY, "token_endpoint_auth_method": "magic"}, "invalid_client_metadata"),
    ({**BODY, "jwks": {"keys": [[]]}}, "invalid_client_metadata"),
    ([BODY], "invalid_client_metadata"),
    (b"{", "invalid_client_metadata"),
    (b'{"jwks":' + b"[" * 100_000, "invalid_client_metadata"),
    ({**BODY, "groups": ["a\u0000b"]}, "invalid_client_metadata"),
]


def test_what_is_refused(api: Api) -> None:
    for body, error in REFUSED:
        answer = api("POST", body=body)
        assert (answer.status_code, answer.get_json()["error"]) == (400, error), body
    url, plain = f"{BASE}/oauth2/register", "text/plain"
    answer = api.http.post(url, data=json.dumps(BODY), headers=api.headers, content_type=plain)
    assert (answer.status_code, answer.get_json()["error"]) == (400, "invalid_client_metadata")
    assert api("GET").get_json()["clients"] == []


@pytest.mark.parametrize(
    "fields",
    [
        {"apis": ["a\0b"]},
        {"apis": ["\ud800"]},
        {"apis": ["=", "#", ""]},
        {"apis": ["https://api.example"] * 10_000},
        {"apis": [f"https://api{number}.example" for number in range(5000)]},
        {"apis": ["x" * 100_000]},
        {"apis": "https://api.example"},
        {"default_api": "\ud800"},
    ],
    ids=lambda fields: str(fields)[:30],
)
def test_apis_that_cannot_be(api: Api, fields: dict[str, Any]) -> None:
    answer = api("POST", body={**BODY, **fields})
    assert (answer.status_code, answer.get_json()["error"]) == (400, "invalid_client_metadata")
    assert len(answer.data) < 20_000
    made = api("POST", body=BODY).get_json()
    answer = api("PUT", f"/{made['client_id']}", {**BODY, **fields})
    assert answer.status_code == 400


def test_who_may(app: Flask) -> None:
    client = make_client(app)
    for scopes, status in ((("clients:read",), 403), (("scim:write",), 403)):
        api = Api(app, *scopes)
        for method, path in (("POST", ""), ("PUT", f"/{client.client_id}"),
                             ("DELETE", f"/{client.client_id}"),
                             ("POST", f"/{client.client_id}/secret")):  # fmt: skip
            answer = api(method, path, BODY)
            assert answer.status_code == status, method
            assert 'scope="clients:write"' in answer.headers["WWW-Authenticate"]
        expected = 200 if scopes == ("clients:read",) else 403
        assert api("GET", f"/{client.client_id}").status_code == expected
    as_dpop = api.headers["Authorization"].replace("Bearer", "DPoP")
    for headers in ({}, {"Authorization": as_dpop}):
        api.headers = headers
        assert api("POST", body=BODY).status_code == 401
    assert "registration_endpoint" not in (
        app.test_client().get(f"{BASE}/.well-known/openid-configuration").get_json()
    )


def test_ids_of_others(app: Flask, api: Api) -> None:
    client = make_client(app)
    for path in ("/nobody", "/nobody/secret", "/%00", f"/{client.client_id}/../x"):
        method = "POST" if path.endswith("secret") else "DELETE"
        assert api(method, path).status_code in (404, 405), path
    other = api("PUT", f"/{client.client_id}", {**BODY, "client_id": "other"})
    assert other.get_json()["error"] == "invalid_client_metadata"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from([field.name for field in IN_API]), JSON))
def test_any_json_is_registered_or_refused(body: Any) -> None:
    try:
        fields = clients.parsed_registration({**BODY, **body})
    except Invalid:
        return
    for name, value in fields.items():
        assert isinstance(value, FIELDS[name].json_type)


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from([field.name for field in METADATA]), JSON, max_size=4))
def test_no_json_is_a_fault(api: Api, body: Any) -> None:
    assert api("POST", body={**BODY, **body}).status_code in (201, 400)


def names(count: int, first: int = 0) -> list[str]:
    return [f"g{n}" for n in range(first, first + count)]


def test_lists_are_bounded(app: Flask, api: Api) -> None:
    """At most 100, whichever list it is and however it comes; what is there may stay."""
    urls = [f"https://wiki.example/{n}" for n in range(101)]
    options = {f"o{n}": "x" for n in range(101)}
    for name, values in (
        ("groups", names(101)),
        ("redirect_uris", urls),
        ("post_logout_redirect_uris", urls),
        ("scope", " ".join(names(101))),
        ("jwks", {"keys": [{"kty": "EC"}] * 101}),
        ("preset", {"name": "x", "options": options}),
    ):
        assert api("POST", body={**BODY, name: values}).status_code == 400, name
    many = api("POST", body={**BODY, "groups": names(15_000)})
    assert many.get_json()["error_description"] == "there are more than 100 groups"
    made = api("POST", body={**BODY, "groups": names(100) + names(100)}).get_json()
    path = f"/{made['client_id']}"
    assert made["groups"] == names(100)
    assert api("PUT", path, {**BODY, "groups": names(101)}).status_code == 400
    assert api("PUT", path, {**BODY, "groups": names(100, 1)}).status_code == 200


def test_too_many_groups_may_become_fewer(app: Flask) -> None:
    user = make_user(app)
    with app.app_context():  # a directory may have put them there one by one
        replace_groups({user.id: NewGroups(names(120), {}, {})})
        db.session.commit()
    run = app.test_cli_runner().invoke
    more = run(args=["user", "update", str(user.id), "--add-group", "more"])
    assert "there are more than 100 groups" in more.output
    less = run(args=["user", "update", str(user.id), "--remove-group", "g0"])
    assert less.exit_code == 0, less.output
    args = [part for name in names(101) for part in ("--group", name)]
    args = ["user", "create", "--email", "f@x.ch", "--name", "F", *args]
    made = run(args=args, input="a long pass phrase here\n" * 2)
    assert "there are more than 100 groups" in made.output


@pytest.mark.parametrize("profile_before", [True, False])
def test_a_replacement_gets_what_the_profile_implies(api: Api, profile_before: bool) -> None:
    """As a new registration, whether the client has had the profile before or not."""
    jwks = {"keys": [public(EC)]}
    keys = {"jwks": jwks, "token_endpoint_auth_method": "private_key_jwt"}
    fapi = {**BODY, "jwks": jwks, "profile": "fapi2"}
    made = api("POST", body=fapi if profile_before else {**BODY, **keys}).get_json()
    answer = api("PUT", f"/{made['client_id']}", fapi)
    assert answer.status_code == 200, answer.get_json()
    replaced = answer.get_json()
    assert replaced["token_endpoint_auth_method"] == "private_key_jwt"
    implied = ("require_pushed_authorization_requests", "dpop_bound_access_tokens", "require_pkce")
    assert all(replaced[name] is True for name in implied)
    contradiction = {**fapi, "token_endpoint_auth_method": "client_secret_basic"}
    assert api("PUT", f"/{made['client_id']}", contradiction).status_code == 400


SENDING = {**BODY, "groups": ["staff"], "scim_url": "https://scim.example/v2"}


@pytest.mark.parametrize(
    ("scopes", "status"),
    [(["clients:write"], 400), (["clients:write", "scim:read"], 201),
     (["clients:write", "scim:write"], 201)],
)  # fmt: skip
def test_who_may_have_people_sent_elsewhere(app: Flask, scopes: list[str], status: int) -> None:
    """With `clients:write` alone, a program would read everybody at a server of its own."""
    api = Api(app, *scopes)
    answer = api("POST", body=SENDING)
    assert answer.status_code == status, answer.text
    client_id = make_client(app, groups=["staff"]).client_id
    change = {"client_id": client_id, **SENDING}
    assert api("PUT", f"/{client_id}", change).status_code == (400 if status == 400 else 200)
    assert ("scim:read" in answer.get_json().get("error_description", "")) is (status == 400)


def test_a_program_keeps_the_url_that_an_operator_has_set(app: Flask, api: Api) -> None:
    """It changes other fields of the registration without reading people."""
    client_id = make_client(app, groups=["staff"], scim_url=SENDING["scim_url"]).client_id
    body = {"client_id": client_id, **SENDING, "client_name": "Notes"}
    assert api("PUT", f"/{client_id}", body).get_json()["client_name"] == "Notes"
    other = {**body, "scim_url": "https://other.example/v2"}
    assert api("PUT", f"/{client_id}", other).status_code == 400
    assert api("PUT", f"/{client_id}", {**body, "scim_url": None}).status_code == 200
