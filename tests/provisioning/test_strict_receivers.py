"""Receivers that refuse what their schemas do not have, as some do against RFC 7644 §3.3."""

import json
from typing import Any

import pytest
from flask import Flask

from sso.flow.scim_people import ENTERPRISE_SCHEMA, USER_SCHEMA
from sso.provisioning.schemas import Schemas
from tests.support.factories import make_user
from tests.support.scim_receivers import (
    Answer,
    Hostile,
    Request,
    answer,
    connect,
    people_of,
    work,
)

pytestmark = pytest.mark.slow

DANA, ERIN = "dana@example.com", "erin@example.com"
USER = {
    "id": USER_SCHEMA,
    "attributes": [
        {"name": "userName"},
        {"name": "active"},
        {"name": "name", "subAttributes": [{"name": "familyName", "required": True}]},
        {"name": "emails", "subAttributes": [{"name": "value"}]},
    ],
}
FIELDS: dict[str, Any] = {
    "schemas": [USER_SCHEMA, ENTERPRISE_SCHEMA],
    "externalId": "1",
    "userName": DANA,
    "name": {"formatted": "Dana Demo", "givenName": "Dana"},
    "emails": [{"value": DANA, "type": "work"}],
    "active": True,
    ENTERPRISE_SCHEMA: {"department": "Care", "division": "North"},
}


def fitted(*schemas: Any) -> dict[str, Any]:
    parsed = Schemas.parsed(json.dumps({"Resources": schemas}).encode())
    assert parsed
    return parsed.fitted(FIELDS)


def test_what_is_left_of_a_person() -> None:
    assert fitted(USER) == {
        "schemas": [USER_SCHEMA],
        "userName": DANA,
        "name": {"familyName": "Dana Demo"},
        "emails": [{"value": DANA}],
        "active": True,
    }
    extension = {"id": ENTERPRISE_SCHEMA.upper(), "attributes": [{"name": "DEPARTMENT"}]}
    assert fitted(USER, extension)[ENTERPRISE_SCHEMA] == {"department": "Care"}
    assert fitted(USER, extension)["schemas"] == FIELDS["schemas"]


def test_no_part_of_a_name_is_required() -> None:
    name = {"name": "name", "subAttributes": [{"name": "givenName"}, {"name": "familyName"}]}
    assert fitted({"id": USER_SCHEMA, "attributes": [name]})["name"] == {"givenName": "Dana"}


@pytest.mark.parametrize(
    "content",
    [
        b"", b"nothing", b"7", b"[]", b"[7]", b'{"Resources": 7}', b'{"Resources": [7]}',
        b"[" * 100_000, b'{"Resources": [{"id": 7, "attributes": "x"}]}',
        json.dumps({"Resources": [{"id": USER_SCHEMA, "attributes": [7]}]}).encode(),
    ],
)  # fmt: skip
def test_schemas_that_are_none(content: bytes) -> None:
    assert Schemas.parsed(content) is None


@pytest.mark.parametrize("schemas", [answer(404), answer(200, b"nothing"), answer(302), None])
def test_a_service_that_refuses_a_person(app: Flask, schemas: Answer | None) -> None:
    """The schemas are requested once, however many people are refused. Without them, what the
    service said is the fault.
    """
    for name in (DANA, ERIN):
        make_user(app, name, groups=["staff"])

    def reply(request: Request) -> Answer:
        if request.path.endswith("/Schemas"):
            return schemas or answer(200, {"Resources": [USER]})
        if request.body["emails"][0].keys() != {"value"}:
            return answer(400)
        return answer(201, {"id": request.body["userName"]})

    hostile = Hostile(reply)
    with hostile.listening() as url:
        client_id = connect(app, url)
        work(app)
        rows = people_of(app, client_id)
    if schemas is None:
        assert [row.is_active for row in rows.values()] == [True, True]
        assert [line.rpartition("/")[2] for line in hostile.lines] == [
            "Users", "Schemas", "Users", "Users",
        ]  # fmt: skip
    else:
        assert {row.last_fault for row in rows.values()} == {"it answered 400"}
        assert len([line for line in hostile.lines if line.endswith("/Schemas")]) == 1
