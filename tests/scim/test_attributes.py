"""Attributes that provisioning programs read and change, in a schema of their own."""

from typing import Any

import pytest
from flask import Flask

from sso import audit
from sso.extensions import db
from sso.scim.extension import SCHEMA
from sso.services import accounts
from sso.store import users
from tests.scim.conftest import ENTERPRISE, USER, Provisioner, make_token
from tests.support.events import events
from tests.support.factories import make_attribute, make_user

OWN = str(SCHEMA)


@pytest.fixture(autouse=True)
def defined(app: Flask) -> None:
    make_attribute(app, "cost_center", writers=["scim"], title="Cost center")
    make_attribute(app, "level", "number", writers=["scim", "administrator"])
    make_attribute(app, "ok", "boolean", writers=["scim"])
    make_attribute(app, "tags", "list", writers=["scim"])
    make_attribute(app, "plan", "choice", choices=["gold"], writers=["scim"])
    make_attribute(app, "since", "date", readers=["scim"])
    make_attribute(app, "hidden", readers=["person", "helpdesk"])


def values(app: Flask, email: str = "erin@example.com") -> dict[str, Any]:
    with app.app_context():
        row = users.find_by_email(email)
        assert row is not None
        return row.attributes


def set_values(app: Flask, **edits: Any) -> None:
    with app.app_context():
        row = users.find_by_email("erin@example.com")
        assert row is not None
        accounts.update(audit.operator(), row.id, attributes=edits)
        db.session.commit()


ALL = {"cost_center": "4711", "level": 3, "ok": False, "tags": ["a", "b"], "plan": "gold"}


def test_they_are_written_and_come_back(app: Flask, scim: Provisioner) -> None:
    made = scim.user(**{OWN: ALL, ENTERPRISE: {"department": "Books"}})
    assert made[OWN] == ALL
    assert made[ENTERPRISE] == {"department": "Books"}
    assert {OWN, ENTERPRISE, USER} == set(made["schemas"])
    assert values(app) == ALL
    assert type(values(app)["level"]) is int
    path = f"/Users/{made['id']}"
    changed = scim.patch(path, {"op": "replace", "path": f"{OWN}:level", "value": 2.5})
    assert changed.get_json()[OWN]["level"] == 2.5
    scim.patch(path, {"op": "remove", "path": f"{OWN}:tags"})
    scim.patch(path, {"op": "add", "value": {f"{OWN}:ok": True}})
    assert values(app) == {"cost_center": "4711", "level": 2.5, "ok": True, "plan": "gold"}
    body = {"schemas": [USER, OWN], "userName": "erin@example.com", OWN: {"COST_CENTER": "1"}}
    assert scim("PUT", path, body).status_code == 200
    assert values(app) == {"cost_center": "1"}
    trail = events(app, "user_changed")
    assert trail[0]["attributes"] == "level"
    assert "4711" not in str(trail)


def test_only_what_programs_may(app: Flask, scim: Provisioner) -> None:
    made = scim.user(**{OWN: {"since": "2030-01-31", "hidden": "x", "nope": "y"}})
    assert OWN not in made
    assert values(app) == {}
    set_values(app, since="2030-01-31", hidden="secret")
    path = f"/Users/{made['id']}"
    assert scim.get(path)[OWN] == {"since": "2030-01-31"}
    scim.patch(path, {"op": "replace", "path": f"{OWN}:since", "value": "2031-01-01"})
    hidden = scim.patch(path, {"op": "replace", "path": f"{OWN}:hidden", "value": "x"})
    assert hidden.status_code == 400
    body = {"schemas": [USER], "userName": "erin@example.com"}
    assert scim("PUT", path, body).status_code == 200
    assert values(app) == {"since": "2030-01-31", "hidden": "secret"}
    assert "secret" not in str(scim.get("/Users"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"level": "many"},
        {"level": 2**60},
        {"ok": 3},
        {"tags": [{"x": "y"}]},
        {"tags": ["a" * 201]},
        {"tags": [str(number) for number in range(101)]},
        {"plan": "bronze"},
        {"cost_center": "x" * 2001},
        {"cost_center": ["x"]},
        {"cost_center": {"x": "y"}},
    ],
    ids=lambda wrong: str(wrong)[:30],
)
def test_a_wrong_value_is_refused(app: Flask, scim: Provisioner, wrong: dict[str, Any]) -> None:
    made = scim.user()
    body = {"schemas": [USER, OWN], "userName": "dana@example.com", OWN: wrong}
    assert scim("POST", "/Users", body).status_code == 400
    path = f"/Users/{made['id']}"
    ((name, value),) = wrong.items()
    change = scim.patch(path, {"op": "replace", "path": f"{OWN}:{name}", "value": value})
    assert change.status_code == 400
    assert values(app) == {}


def test_staff_needs_the_privilege(app: Flask, scim: Provisioner) -> None:
    boss = make_user(app, "boss@example.com", groups=["sso-administrators"])
    change = {"op": "replace", "path": f"{OWN}:cost_center", "value": "x"}
    assert scim.patch(f"/Users/{boss.id}", change).status_code == 403
    assert values(app, "boss@example.com") == {}
    privileged = Provisioner(app, make_token(app, "scim:write", "scim:privileged", name="All"))
    assert privileged.patch(f"/Users/{boss.id}", change).status_code == 200
    assert values(app, "boss@example.com") == {"cost_center": "x"}
    reader = Provisioner(app, make_token(app, "scim:read", name="Reader"))
    assert reader.get(f"/Users/{boss.id}")[OWN] == {"cost_center": "x"}
    assert reader.patch(f"/Users/{boss.id}", change).status_code == 403


def test_discovery_describes_them(app: Flask, scim: Provisioner) -> None:
    schema = scim.get(f"/Schemas/{OWN}")
    kinds = {
        entry["name"]: (entry["type"], entry["multiValued"], entry["mutability"])
        for entry in schema["attributes"]
    }
    assert kinds == {
        "cost_center": ("string", False, "readWrite"),
        "level": ("decimal", False, "readWrite"),
        "ok": ("boolean", False, "readWrite"),
        "tags": ("string", True, "readWrite"),
        "plan": ("string", False, "readWrite"),
        "since": ("string", False, "readOnly"),
    }
    extensions = scim.get("/ResourceTypes/User")["schemaExtensions"]
    assert OWN in {entry["schema"] for entry in extensions}
    make_attribute(app, "json", writers=["scim"])
    assert scim.user(**{OWN: {"json": "x"}})[OWN] == {"json": "x"}
