"""The end of an account, which programs read and change in a schema of this server."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from flask import Flask

from sso.flow import moments
from sso.scim.extension import SCHEMA
from sso.scim.resources import Account
from sso.store import users
from tests.conftest import Clock
from tests.scim.conftest import ENTERPRISE, USER, Provisioner, make_token
from tests.support.ends import row, work
from tests.support.events import events
from tests.support.factories import make_attribute, make_user

OWN, ATTRIBUTES = str(Account.__schema__), str(SCHEMA)
PATH = f"{OWN}:endsAt"
END = datetime(2099, 12, 31, 17, tzinfo=UTC)
TEXT = "2099-12-31T17:00:00Z"


def end_of(app: Flask, made: Any) -> datetime | None:
    with app.app_context():
        user = users.find(UUID(made["id"]))
        assert user is not None
        return user.ends_at


def put(scim: Provisioner, made: Any, **more: Any) -> Any:
    body = {"schemas": [USER], "userName": "erin@example.com", "displayName": "Erin", **more}
    answer = scim("PUT", f"/Users/{made['id']}", body)
    assert answer.status_code == 200, answer.text
    return answer.get_json()


@pytest.mark.parametrize("text", [
    TEXT, "2099-12-31T18:00:00+01:00", "2099-12-31T17:00:00", "2099-12-31T09:00:00.987-08:00",
])  # fmt: skip
def test_it_is_written_and_comes_back(app: Flask, scim: Provisioner, text: str) -> None:
    assert "endsAt" not in str(scim.get("/Users"))
    made = scim.user(**{OWN: {"endsAt": text}, ENTERPRISE: {"department": "Books"}})
    assert made[OWN] == {"endsAt": TEXT}
    assert set(made["schemas"]) == {USER, ENTERPRISE, OWN}
    assert end_of(app, made) == END
    assert scim.get(f"/Users/{made['id']}") == made
    assert scim.get("/Users")["Resources"] == [made]
    assert scim.get("/Users", attributes=PATH)["Resources"][0][OWN] == {"endsAt": TEXT}
    assert OWN not in scim.get(f"/Users/{made['id']}", excludedAttributes=PATH)


def test_it_stands_beside_attributes(app: Flask, scim: Provisioner) -> None:
    """The models are made again for the attributes that operators define."""
    make_attribute(app, "cost_center", writers=["scim"])
    values = {OWN: {"endsAt": TEXT}, ATTRIBUTES: {"cost_center": "4711"}}
    made = scim.user(**values)
    assert {name: made[name] for name in values} == values
    assert scim.get("/Users")["Resources"] == [made]
    changed = put(scim, made)
    assert changed[OWN] == {"endsAt": TEXT}
    assert ATTRIBUTES not in changed
    assert OWN not in put(scim, made, schemas=[USER, OWN])


def test_without_an_end_nothing_is_said_of_it(app: Flask, scim: Provisioner) -> None:
    made = scim.user()
    assert made["schemas"] == [USER]
    assert OWN not in made
    assert "endsAt" not in scim("GET", f"/Users/{made['id']}").text + scim("GET", "/Users").text


SETTING: list[dict[str, Any]] = [
    {"op": "add", "path": PATH, "value": TEXT},
    {"op": "Replace", "path": PATH.upper(), "value": "2099-12-31T18:00:00+01:00"},
    {"op": "add", "value": {PATH: TEXT}},
    {"op": "replace", "value": {OWN: {"endsAt": TEXT}}},
    {"op": "add", "path": OWN, "value": {"endsAt": TEXT}},
]
REMOVING: list[dict[str, Any]] = [
    {"op": "remove", "path": PATH},
    {"op": "remove", "path": OWN},
    {"op": "replace", "path": PATH, "value": None},
    {"op": "replace", "value": {PATH: None}},
]


@pytest.mark.parametrize("is_first", [True, False])
def test_a_patch_sets_it(app: Flask, scim: Provisioner, is_first: bool) -> None:
    for operation in SETTING:
        made = scim.user(**{} if is_first else {OWN: {"endsAt": "2098-01-01T00:00:00Z"}})
        path = f"/Users/{made['id']}"
        changed = scim.patch(path, operation)
        assert changed.status_code == 200, changed.text
        assert changed.get_json()[OWN] == {"endsAt": TEXT}
        assert end_of(app, made) == END
        assert scim("DELETE", path).status_code == 204


def test_a_patch_removes_it(app: Flask, scim: Provisioner) -> None:
    for operation in REMOVING:
        made = scim.user(**{OWN: {"endsAt": TEXT}})
        path = f"/Users/{made['id']}"
        changed = scim.patch(path, operation)
        assert changed.status_code == 200, changed.text
        assert OWN not in changed.get_json()
        assert end_of(app, made) is None
        assert scim("DELETE", path).status_code == 204


@pytest.mark.parametrize("op", ["add", "replace"])
def test_a_patch_of_something_else_leaves_it(app: Flask, scim: Provisioner, op: str) -> None:
    made = scim.user(**{OWN: {"endsAt": TEXT}})
    changed = scim.patch(f"/Users/{made['id']}", {"op": op, "path": "title", "value": "x"})
    assert (changed.get_json()["title"], changed.get_json()[OWN]) == ("x", {"endsAt": TEXT})
    assert end_of(app, made) == END


def test_a_put_that_does_not_name_the_schema_leaves_it(app: Flask, scim: Provisioner) -> None:
    """Most directories know no ends: they must not remove those that operators set."""
    made = scim.user(**{OWN: {"endsAt": TEXT}})
    for more in ({}, {"title": "Librarian"}, {ENTERPRISE: {"department": "Books"}}):
        assert put(scim, made, **more)[OWN] == {"endsAt": TEXT}
    assert end_of(app, made) == END


@pytest.mark.parametrize(
    "more",
    [
        {"schemas": [USER, OWN]},
        {"schemas": [USER, OWN.upper()]},
        {OWN: {}},
        {OWN: None},
        {OWN.upper(): {"ENDSAT": None}},
    ],
)
def test_a_put_that_names_the_schema_replaces_it(
    app: Flask, scim: Provisioner, more: dict[str, Any]
) -> None:
    made = scim.user(**{OWN: {"endsAt": "2098-01-01T00:00:00Z"}})
    assert put(scim, made, **{OWN: {"endsAt": TEXT}})[OWN] == {"endsAt": TEXT}
    assert end_of(app, made) == END
    assert OWN not in put(scim, made, **more)
    assert end_of(app, made) is None


@pytest.mark.parametrize(
    "wrong",
    [
        *("soon", "", " ", "2099-12-31", "2099-02-30T00:00:00Z", "1893456000", "x" * 5000),
        *("2020-01-01T00:00:00Z", "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+10:00"),
        *("2099-12-31T17:00:00 Europe/Berlin", 1893456000, 4102444800.5, True, [TEXT], {"x": TEXT}),
    ],
    ids=lambda wrong: str(wrong)[:30],
)
def test_a_wrong_value_is_refused(app: Flask, scim: Provisioner, wrong: Any) -> None:
    made = scim.user(**{OWN: {"endsAt": TEXT}})
    path, own = f"/Users/{made['id']}", {OWN: {"endsAt": wrong}}
    answers = [
        scim("POST", "/Users", {"schemas": [USER], "userName": "d@example.com", **own}),
        scim("PUT", path, {"schemas": [USER], "userName": "erin@example.com", **own}),
        scim.patch(path, {"op": "replace", "path": PATH, "value": wrong}),
        scim.patch(path, {"op": "add", "value": {PATH: wrong}}),
        scim.patch(path, {"op": "add", "path": OWN, "value": {"endsAt": wrong}}),
    ]
    for answer in answers:
        assert (answer.status_code, answer.get_json()["scimType"]) == (400, "invalidValue")
    assert end_of(app, made) == END
    assert scim.get("/Users")["totalResults"] == 1


@pytest.mark.parametrize(("seconds", "status"), [(-1, 400), (0, 400), (1, 200)])
def test_an_end_is_in_the_future(
    app: Flask, scim: Provisioner, clock: Clock, seconds: int, status: int
) -> None:
    clock.stand_still()
    text = moments.text_of(clock.time + timedelta(seconds=seconds))
    made = scim.user()
    operation = {"op": "replace", "path": PATH, "value": text}
    assert scim.patch(f"/Users/{made['id']}", operation).status_code == status


def ended(app: Flask, scim: Provisioner, clock: Clock, *, is_settled: bool) -> Any:
    """A user whose account has ended; the worker has disabled it, or not yet."""
    clock.stand_still()
    end = clock.time + timedelta(days=30)
    made = scim.user(**{OWN: {"endsAt": moments.text_of(end)}})
    clock.time = end
    if is_settled:
        work(app)
    return made


@pytest.mark.parametrize("is_settled", [True, False])
@pytest.mark.parametrize("operations", [
    [{"op": "replace", "path": PATH, "value": TEXT}],
    [{"op": "remove", "path": PATH}],
    [{"op": "replace", "value": {PATH: TEXT, "displayName": "Inactive"}}],
])  # fmt: skip
def test_another_end_lets_the_person_in_again(
    app: Flask, scim: Provisioner, clock: Clock, operations: Any, is_settled: bool
) -> None:
    made = ended(app, scim, clock, is_settled=is_settled)
    path = f"/Users/{made['id']}"
    before = scim.get(path)
    assert (before["active"], before[OWN]) == (False, made[OWN])
    assert put(scim, made, title="Librarian")["active"] is False  # an end that has passed may stay
    assert scim.patch(path, *operations).get_json()["active"] is True


@pytest.mark.parametrize("is_settled", [True, False])
@pytest.mark.parametrize(("more", "is_active"), [({}, True), ({"active": False}, False)])
def test_a_put_with_another_end_lets_in_unless_it_says_no(
    app: Flask,
    scim: Provisioner,
    clock: Clock,
    more: dict[str, bool],
    is_active: bool,
    is_settled: bool,
) -> None:
    made = ended(app, scim, clock, is_settled=is_settled)
    changed = put(scim, made, **{OWN: {"endsAt": TEXT}, **more})
    assert (changed["active"], changed[OWN]) == (is_active, {"endsAt": TEXT})


@pytest.mark.parametrize("is_settled", [True, False])
@pytest.mark.parametrize("operations", [
    [{"op": "replace", "path": PATH, "value": TEXT}, {"op": "replace", "path": "active",
                                                     "value": False}],
    [{"op": "replace", "value": {PATH: TEXT, f"{USER}:active": False}}],
    [{"op": "replace", "value": {PATH: TEXT, USER: {"active": False}}}],
    [{"op": "add", "path": PATH, "value": TEXT}, {"op": "add", "path": USER,
                                                  "value": {"Active": "False"}}],
])  # fmt: skip
def test_who_is_said_to_be_inactive_stays_so(
    app: Flask, scim: Provisioner, clock: Clock, operations: Any, is_settled: bool
) -> None:
    made = ended(app, scim, clock, is_settled=is_settled)
    changed = scim.patch(f"/Users/{made['id']}", *operations)
    assert changed.status_code == 200, changed.text
    assert changed.get_json()["active"] is False
    assert end_of(app, made) == END


def test_who_is_disabled_stays_so_with_another_end(app: Flask, scim: Provisioner) -> None:
    made = scim.user(active=False)
    changed = scim.patch(f"/Users/{made['id']}", {"op": "add", "path": PATH, "value": TEXT})
    assert (changed.get_json()["active"], end_of(app, made)) == (False, END)
    assert put(scim, made, **{OWN: {"endsAt": "2098-01-01T00:00:00Z"}})["active"] is False


def test_administrators_need_the_privilege(app: Flask, scim: Provisioner) -> None:
    boss = make_user(app, "boss@example.com", groups=["sso-administrators"])
    change = {"op": "replace", "path": PATH, "value": TEXT}
    privileged = Provisioner(app, make_token(app, "scim:write", "scim:privileged", name="All"))
    reader = Provisioner(app, make_token(app, "scim:read", name="Reader"))
    assert scim.patch(f"/Users/{boss.id}", change).status_code == 403
    last = privileged.patch(f"/Users/{boss.id}", change)
    assert last.status_code == 403, last.text  # one administrator without an end remains
    assert row(app, boss).ends_at is None
    make_user(app, "other@example.com", groups=["sso-administrators"])
    assert privileged.patch(f"/Users/{boss.id}", change).status_code == 200
    assert row(app, boss).ends_at == END
    assert scim.patch(f"/Users/{boss.id}", {"op": "remove", "path": PATH}).status_code == 403
    assert reader.get(f"/Users/{boss.id}")[OWN] == {"endsAt": TEXT}
    assert reader.patch(f"/Users/{boss.id}", change).status_code == 403
    assert row(app, boss).ends_at == END


def test_it_is_in_the_audit_trail(app: Flask, scim: Provisioner) -> None:
    made = scim.user(displayName="Erin")
    scim.patch(f"/Users/{made['id']}", {"op": "add", "path": PATH, "value": TEXT})
    (event,) = events(app, "user_changed")
    assert event["changes"] == {"ends_at": {"before": "", "after": TEXT}}


def test_discovery_describes_it(scim: Provisioner) -> None:
    (attribute,) = scim.get(f"/Schemas/{OWN}")["attributes"]
    described = ("name", "type", "multiValued", "required", "mutability", "returned")
    assert [attribute[name] for name in described] == [
        *("endsAt", "dateTime", False, False, "readWrite", "default")
    ]
    extensions = scim.get("/ResourceTypes/User")["schemaExtensions"]
    assert {"schema": OWN, "required": False} in extensions


def test_there_is_no_filter_by_it(scim: Provisioner) -> None:
    answer = scim("GET", f"/Users?filter={OWN}:endsAt%20pr")
    assert (answer.status_code, answer.get_json()["scimType"]) == (400, "invalidFilter")
