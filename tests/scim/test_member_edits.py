"""What a PATCH says about the members of a group: each operation, in the order in which they come.

Only the parsing is tried here; test_groups.py has the answers.
"""

import json
from typing import Any
from uuid import UUID

import pytest
from scim2_models import SCIMException

from sso.scim.patches import MemberEdit, parsed

A, B, C = (UUID(int=number) for number in (1, 2, 3))


def edit_of(*operations: dict[str, Any]) -> MemberEdit:
    body = json.dumps({"Operations": operations}).encode()
    edit = parsed(body, is_group=True).members
    assert edit is not None
    return edit


def values(*ids: UUID) -> list[dict[str, str]]:
    return [{"value": str(member)} for member in ids]


def op(name: str, *ids: UUID) -> dict[str, Any]:
    return {"op": name, "path": "members", "value": values(*ids)}


def by_filter(*ids: UUID, joined: str = " or ") -> dict[str, Any]:
    condition = joined.join(f'value eq "{member}"' for member in ids)
    return {"op": "remove", "path": f"members[{condition}]"}


REMOVE_ALL = {"op": "remove", "path": "members"}


@pytest.mark.parametrize(
    ("operations", "edit"),
    [
        ([op("add", A)], MemberEdit(added={A})),
        ([op("remove", A)], MemberEdit(removed={A})),
        ([op("add", A, B), op("remove", A)], MemberEdit(added={B}, removed={A})),
        ([op("remove", A, B), op("add", A)], MemberEdit(added={A}, removed={B})),
        ([op("replace", A)], MemberEdit(whole={A})),
        ([op("replace")], MemberEdit(whole=set())),
        ([{**op("replace"), "value": None}], MemberEdit(whole=set())),
        ([op("replace", A), op("add", B), op("remove", A)], MemberEdit(whole={B})),
        ([op("add", A), op("replace", B)], MemberEdit(whole={B})),
        ([op("add", A), REMOVE_ALL], MemberEdit(whole=set())),
        ([REMOVE_ALL, op("add", B)], MemberEdit(whole={B})),
        # A list without anybody in it is not the same as no list.
        ([op("remove")], MemberEdit()),
        ([op("add", A), op("remove")], MemberEdit(added={A})),
        ([by_filter(A)], MemberEdit(removed={A})),
        ([by_filter(A, B)], MemberEdit(removed={A, B})),
        ([op("add", A), by_filter(A)], MemberEdit(removed={A})),
    ],
)
def test_what_is_edited(operations: list[dict[str, Any]], edit: MemberEdit) -> None:
    assert edit_of(*operations) == edit


@pytest.mark.parametrize(
    "operation",
    [
        by_filter(A, B, joined=" and "),
        {"op": "remove", "path": f'members[value ne "{A}"]'},
        {"op": "remove", "path": f'members[display eq "{A}"]'},
        {"op": "remove", "path": f'members[not (value eq "{A}")]'},
        {**by_filter(A), "value": values(A)},
        {**by_filter(A), "op": "add"},
        {**by_filter(A), "op": "replace"},
        {"op": "remove", "path": f'members[value eq "{A}"].display'},
        {"op": "remove", "path": "members.value"},
        {"op": "move", "path": "members", "value": values(A)},
        {"op": "remove", "path": "members", "value": ""},
        {"op": "remove", "path": "members", "value": False},
    ],
)
def test_what_is_refused(operation: dict[str, Any]) -> None:
    with pytest.raises(SCIMException):
        edit_of(operation)
