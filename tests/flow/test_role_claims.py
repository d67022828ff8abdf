"""Roles by group: entries, their edits, and the claim in each shape."""

import pytest

from sso.flow import role_claims
from sso.flow.role_claims import LIST, OBJECT, STRING
from sso.services.changes import ListEdit, edited_roles

ENTRIES = ["admin=owners", "editor=staff", "editor=it staff", "reader"]


@pytest.mark.parametrize(
    ("groups", "roles"),
    [
        ([], []),
        (["staff"], ["editor"]),
        (["staff", "it staff"], ["editor"]),
        (["it staff", "owners"], ["admin", "editor"]),
        (["reader", "editor", "", "Staff", "staff "], []),
    ],
)
def test_roles_of_groups(groups: list[str], roles: list[str]) -> None:
    assert role_claims.of(ENTRIES, groups) == roles
    assert role_claims.claim(ENTRIES, LIST, groups) == {"roles": roles}
    assert role_claims.claim(ENTRIES, OBJECT, groups) == {"roles": dict.fromkeys(roles, True)}
    first = {"roles": roles[0]} if roles else {}
    assert role_claims.claim(ENTRIES, STRING, groups) == first


def test_without_roles_there_is_no_claim() -> None:
    assert all(role_claims.claim([], shape, ["staff"]) == {} for shape in role_claims.SHAPES)


def test_where_a_role_comes_from() -> None:
    groups = ["it staff", "staff"]
    assert role_claims.sources(ENTRIES, groups) == {"editor": ["staff", "it staff"]}


def test_entries_are_tidied() -> None:
    entries = [" editor = staff", "reader", "editor", "admin=a=b", "editor=staff", "reader"]
    assert role_claims.tidy(entries) == ["editor=staff", "reader", "admin=a=b"]


@pytest.mark.parametrize(
    ("edit", "entries"),
    [
        (ListEdit(added=("reader=all",)), [*ENTRIES[:3], "reader=all"]),
        (ListEdit(added=("writer", "writer=staff")), [*ENTRIES, "writer=staff"]),
        (ListEdit(added=("admin=it staff",)), ["admin=owners", "admin=it staff", *ENTRIES[1:]]),
        (ListEdit(removed=("editor",)), ["admin=owners", "reader"]),
        (ListEdit(removed=("editor=staff",)), ["admin=owners", "editor=it staff", "reader"]),
        (ListEdit(removed=("reader", "nobody", "admin=staff")), ENTRIES[:3]),
        (ListEdit(whole=("reader=all",)), ["reader=all"]),
        (ListEdit(whole=()), []),
    ],
)
def test_edits(edit: ListEdit, entries: list[str]) -> None:
    assert edited_roles(ENTRIES, edit) == entries


def test_a_renamed_group_keeps_its_roles() -> None:
    entries = ["a=staff", "b=staff2", "staff", "c=staff"]
    assert role_claims.renamed(entries, "staff", "x") == ["a=x", "b=staff2", "staff", "c=x"]


@pytest.mark.parametrize(
    "entries",
    [["=staff"], ["a b=staff"], ["ed\u0131tor=staff"], ["r" * 65], ["editor="], ["\0"],
     [f"role{number}" for number in range(201)]],
)  # fmt: skip
def test_what_is_no_role(entries: list[str]) -> None:
    assert role_claims.error(entries)
    assert role_claims.error(["r" * 64 + "=x", "Org:Team/a.b_c-1"]) is None
