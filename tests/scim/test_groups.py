"""Groups by SCIM: empty ones, members, and clients that require them."""

from typing import Any

import pytest
from flask import Flask

from sso.scim import backend
from sso.services import group_editing
from tests.scim.conftest import GROUP, Provisioner
from tests.support.factories import make_user
from tests.support.scene import Scene


@pytest.fixture
def people(app: Flask) -> list[str]:
    return [str(make_user(app, f"{name}@example.com").id) for name in "abc"]


def members(scim: Provisioner, group: Any) -> set[str]:
    found = scim.get(f"/Groups/{group['id']}").get("members", [])
    return {one["value"] for one in found}


def value(*ids: str) -> list[dict[str, str]]:
    return [{"value": one} for one in ids]


def test_an_empty_group_is_kept(app: Flask, scim: Provisioner) -> None:
    made = scim.group("staff")
    assert scim.get("/Groups", filter='displayName eq "STAFF"')["Resources"] == [made]
    assert "staff" in app.test_cli_runner().invoke(args=["group", "list"]).stdout
    again = scim("POST", "/Groups", {"schemas": [GROUP], "displayName": "staff"})
    assert (again.status_code, again.get_json()["scimType"]) == (409, "uniqueness")
    bad = scim("POST", "/Groups", {"schemas": [GROUP], "displayName": "a, b"})
    assert (bad.status_code, bad.get_json()["scimType"]) == (400, "invalidValue")


def test_the_external_id_of_a_group_has_1_to_255_characters(scim: Provisioner) -> None:
    made = scim.group("staff")
    path, body = f"/Groups/{made['id']}", {"schemas": [GROUP], "displayName": "staff"}
    for text in ("", "x" * 256, "a\0b", "a\nb"):
        answers = [
            scim("POST", "/Groups", {**body, "displayName": "board", "externalId": text}),
            scim("PUT", path, {**body, "externalId": text}),
            scim.patch(path, {"op": "add", "path": "externalId", "value": text}),
        ]
        assert [answer.status_code for answer in answers] == [400] * 3, text[:5]
    answer = scim("PUT", path, {**body, "externalId": "x" * 255})
    assert answer.get_json()["externalId"] == "x" * 255


def test_members_come_and_go(scim: Provisioner, people: list[str]) -> None:
    a, b, c = people
    made = scim.group("staff", a)
    path = f"/Groups/{made['id']}"
    steps: list[tuple[list[Any], set[str]]] = [
        ([{"op": "Add", "path": "members", "value": value(b, c)}], {a, b, c}),
        ([{"op": "Remove", "path": f'members[value eq "{b}"]'}], {a, c}),
        ([{"op": "Remove", "path": "members", "value": value(a)}], {c}),
        ([{"op": "remove", "path": "members"}], set()),
        ([{"op": "replace", "path": "members", "value": value(a, b)}], {a, b}),
        ([{"op": "replace", "value": {"members": value(c)}}], {c}),
        ([{"op": "add", "value": {"members": value(a)}}], {a, c}),
        ([{"op": "remove", "path": "members", "value": value(a)},
          {"op": "add", "path": "members", "value": value(a, b)}], {a, b, c}),
        ([{"op": "replace", "value": {"id": made["id"], "displayName": "Staff"}}], {a, b, c}),
        ([{"op": "replace", "path": "displayName", "value": "People"},
          {"op": "remove", "path": f'members[value eq "{a}"]'}], {b, c}),
        ([{"op": "add", "path": "externalId", "value": "7"}], {b, c}),
        ([{"Op": "ADD", "Path": "Members", "Value": value(a)}], {a, b, c}),
        ([{"op": "remove", "path": f'members[value eq "{a}" or value eq "{b}"]'}], {c}),
        ([{"op": "add", "value": {f"{GROUP}:members": value(a)}}], {a, c}),
        ([{"op": "replace", "path": f"{GROUP}:members", "value": value(c)}], {c}),
        ([{"op": "replace", "path": "members", "value": value(a, b)},
          {"op": "remove", "path": f'members[value eq "{a}"]'},
          {"op": "add", "path": "members", "value": value(c)},
          {"op": "replace", "value": {"externalId": "7", "displayName": "people"}},
          {"op": "replace", "value": {"displayName": "People"}}], {b, c}),
    ]  # fmt: skip
    for operations, expected in steps:
        before = scim.get(path)["meta"]["version"]
        changed = scim.patch(path, *operations)
        assert changed.status_code == 204, changed.text
        assert members(scim, made) == expected
        assert scim.get(path)["meta"]["version"] == changed.headers["ETag"] != before
    found = scim.get(path)
    assert (found["displayName"], found["externalId"]) == ("People", "7")
    user = scim.get(f"/Users/{b}")
    assert [one["display"] for one in user["groups"]] == ["People"]
    assert scim.get("/Users", filter=f'groups.value eq "{made["id"]}"')["totalResults"] == 2
    assert scim.get("/Groups", filter=f'members[value eq "{b}"]')["totalResults"] == 1
    assert "members" not in scim.get(path, excludedAttributes="members")
    assert scim("DELETE", path).status_code == 204
    assert "groups" not in scim.get(f"/Users/{b}")


def test_members_by_other_paths_are_refused(scim: Provisioner, people: list[str]) -> None:
    a, _, c = people
    made = scim.group("staff", a)
    for kind, operation in (
        ("invalidPath", {"op": "add", "path": "members.value", "value": c}),
        ("invalidPath", {"op": "add", "path": f'members[value eq "{c}"]', "value": {}}),
        ("invalidPath", {"op": "replace", "path": f'members[value eq "{a}"].type', "value": "x"}),
        ("invalidFilter", {"op": "remove", "path": 'members[type eq "User"]'}),
        ("invalidFilter", {"op": "remove", "path": f'members[value ne "{c}"]'}),
        ("invalidFilter", {"op": "remove", "path": "members[(]"}),
        ("invalidValue", {"op": "remove", "path": 'members[value eq "x"]'}),
        ("invalidValue", {"op": "burn", "path": "members", "value": value(c)}),
        ("invalidValue", {"op": "add", "path": "members", "value": [c]}),
        ("invalidValue", {"op": "add", "path": "members"}),
        ("invalidPath", {"op": "add", "value": {GROUP: {"members": value(c)}}}),
        ("noTarget", {"op": "remove", "value": {"members": value(a)}}),
    ):
        rename = {"op": "replace", "path": "displayName", "value": "Else"}
        answer = scim.patch(f"/Groups/{made['id']}", rename, operation)
        assert (answer.status_code, answer.get_json()["scimType"]) == (400, kind), answer.text
    assert scim.get(f"/Groups/{made['id']}") == made


def test_a_very_large_group_changes_in_parts(
    scim: Provisioner, people: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody makes others wait by renaming a group of many thousands."""
    a, b, c = people
    made = scim.group("staff", a, b)
    path = f"/Groups/{made['id']}"
    monkeypatch.setattr(group_editing, "MOST_MEMBERS", 2)
    assert scim("PUT", path, {"schemas": [GROUP], "displayName": "staff"}).status_code == 200
    added = {"op": "add", "path": "members", "value": value(c)}
    assert scim.patch(path, added).status_code == 204
    for answer in (
        scim("PUT", path, {"schemas": [GROUP], "displayName": "crew"}),
        scim("PUT", path, {"schemas": [GROUP], "displayName": "staff", "members": value(a)}),
        scim.patch(path, {"op": "replace", "path": "displayName", "value": "crew"}),
        scim.patch(path, {"op": "replace", "value": {"displayName": "crew"}}),
        scim.patch(path, {"op": "replace", "path": "members", "value": value(a)}),
        scim.patch(path, {"op": "remove", "path": "members"}),
        scim("DELETE", path),
    ):
        assert (answer.status_code, answer.get_json()["scimType"]) == (400, "invalidValue")
        assert "more than 2 members" in answer.get_json()["detail"]
    assert members(scim, made) == set(people)
    for operation in (
        {"op": "add", "path": "externalId", "value": "7"},
        {"op": "remove", "path": "members", "value": value(a)},
        {"op": "replace", "path": "displayName", "value": "crew"},
    ):
        assert scim.patch(path, operation).status_code == 204
    assert scim("DELETE", path).status_code == 204


def test_a_put_without_members_leaves_them(scim: Provisioner, people: list[str]) -> None:
    made = scim.group("staff", *people)
    path, body = f"/Groups/{made['id']}", {"schemas": [GROUP], "displayName": "People"}
    assert scim("PUT", path, body).status_code == 200
    assert members(scim, made) == set(people)
    assert scim("PUT", path, {**body, "members": value(people[0])}).status_code == 200
    assert members(scim, made) == {people[0]}
    assert scim("PUT", path, {**body, "members": []}).status_code == 200
    assert members(scim, made) == set()


def test_who_leaves_loses_the_client_at_once(scene: Scene, scim: Provisioner) -> None:
    made = scim.group("staff", str(scene.user.id))
    scene.register(groups=["staff"])
    tokens = scene.tokens()
    scim.patch(f"/Groups/{made['id']}", {"op": "remove", "path": "members"})
    assert scene.client.userinfo(tokens["access_token"]).status_code == 401
    assert scene.client.refresh(tokens["refresh_token"]).status_code == 400


@pytest.mark.parametrize(
    ("most", "sizes"), [(2, [1, 1, 1]), (3, [1, 1, 1]), (5, [1, 1, 1]), (6, [2, 1]), (9, [3])]
)
def test_a_page_has_no_more_members_than_fit(
    scim: Provisioner,
    people: list[str],
    monkeypatch: pytest.MonkeyPatch,
    most: int,
    sizes: list[int],
) -> None:
    """But at least one group: there would be no end of empty pages before it."""
    for name in ("one", "two", "three"):
        scim.group(name, *people)
    monkeypatch.setattr(backend, "MOST_MEMBERS", most)
    names: set[str] = set()
    start = 1
    for size in sizes:
        page = scim.get("/Groups", startIndex=start)
        assert (page["totalResults"], page["itemsPerPage"]) == (3, size)
        names |= {group["displayName"] for group in page["Resources"]}
        start += size
    assert names == {"one", "two", "three"}
    assert scim.get("/Groups", excludedAttributes="members")["itemsPerPage"] == 3


def test_members_have_to_be_users(scim: Provisioner, people: list[str]) -> None:
    made = scim.group("staff")
    path = f"/Groups/{made['id']}"
    unknown = "00000000-0000-4000-8000-000000000000"
    refused = scim.patch(path, {"op": "add", "path": "members", "value": value(people[0], unknown)})
    assert (refused.status_code, refused.get_json()["scimType"]) == (400, "invalidValue")
    assert members(scim, made) == set()  # all or nothing
    for bad in ("dana", None, 7, {"value": 1}, "' OR 1=1 --"):
        refused = scim.patch(path, {"op": "add", "path": "members", "value": [{"value": bad}]})
        assert refused.status_code == 400, bad
    removed = scim.patch(path, {"op": "remove", "path": f'members[value eq "{unknown}"]'})
    assert removed.status_code == 204


@pytest.mark.parametrize("op", ["add", "replace", "remove"])
def test_a_member_filter_takes_no_value(scim: Provisioner, people: list[str], op: str) -> None:
    """It is for `remove` alone, without a value; the operations before it are not kept either."""
    group = scim.group("staff", *people)
    path = f'members[value eq "{people[0]}"]'
    operations = [{"op": "remove", "path": f'members[value eq "{people[1]}"]'},
                  {"op": op, "path": path, "value": value(people[0])}]  # fmt: skip
    assert scim.patch(f"/Groups/{group['id']}", *operations).status_code == 400
    assert members(scim, group) == set(people)
