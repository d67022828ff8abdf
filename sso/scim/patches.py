"""Limits of requests, and PATCH requests, whose changes of members are handled separately.

All limits are checked before a row is locked. The members that a PATCH adds and removes are sets of
ids, because the library would examine every member for each operation.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from pydantic_core import from_json, to_json
from scim2_models import (
    InvalidFilterException,
    InvalidPathException,
    InvalidSyntaxException,
    InvalidValueException,
    PatchOp,
    Path,
    ScimFilter,
)
from scim2_models import User as StandardUser
from scim2_models.path import CompareOperator, Comparison, FilterNode, LogicalExpr, LogicalOperator

from sso.scim.resources import MOST_VALUES, member_id
from sso.services.group_editing import MOST_MEMBERS

MOST_OPERATIONS = 1000  # of a PATCH that only adds and removes members
MOST_EDITS = 100  # of any other PATCH, after operations without a path are split
MOST_JSON = 1000  # values in a body, without members
MOST_OF_A_MEMBER = 10  # values in a member
LONGEST_PATH = 500  # also of the name of an attribute
_MANAGER = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:user:manager"
_GROUP = "urn:ietf:params:scim:schemas:core:2.0:group:"
_MEMBERS = re.compile(rf"(?:{_GROUP})?members((?:[.\[].*)?)", re.IGNORECASE | re.DOTALL)
_PLACEHOLDER = {"op": "replace", "path": "displayName", "value": "-"}


@dataclass
class MemberEdit:
    """The ids to add to a group and to remove; or `whole`: its complete new members."""

    whole: set[UUID] | None = None
    added: set[UUID] = field(default_factory=set)
    removed: set[UUID] = field(default_factory=set)

    @property
    def member_ids(self) -> set[UUID]:
        return {*(self.whole or ()), *self.added, *self.removed}

    def add(self, ids: set[UUID]) -> None:
        if self.whole is not None:
            self.whole |= ids
        else:
            self.added, self.removed = self.added | ids, self.removed - ids

    def remove(self, ids: set[UUID]) -> None:
        if self.whole is not None:
            self.whole -= ids
        else:
            self.added, self.removed = self.added - ids, self.removed | ids

    def replace(self, ids: set[UUID]) -> None:
        self.whole, self.added, self.removed = ids, set(), set()


@dataclass(frozen=True)
class GroupPatch:
    """A PATCH of a group: the change of its members, if any, and the other operations."""

    members: MemberEdit | None
    other_operations: "PatchOp[Any]"


class Parsed(NamedTuple):
    """A body for the library, and its change of members. `is_empty`: it had nothing else."""

    body: bytes
    members: MemberEdit | None
    is_empty: bool


def check_size(body: bytes, *, is_group: bool) -> int:
    """Refuse a body with too many values; return how many members it lists or names one by one.

    A body that is not JSON is left to the library. Raises `SCIMException`.
    """
    try:
        waiting = [(from_json(body), "")] if body else []
    except ValueError:
        return 0
    values = members = alone = 0
    while waiting:
        value, name = waiting.pop()
        values += 1
        if isinstance(value, dict):
            if any(len(key) > LONGEST_PATH for key in value):
                raise InvalidValueException(detail="the name of an attribute is too long")
            waiting += [(member, key) for key, member in value.items()]
        elif isinstance(value, list):
            if is_group and _is_about_members(name, value):
                members += _member_count(value)
            elif len(value) > (most := _most_of(name, is_group)):
                detail = f"{name[:50] or 'the body'} has more than {most} values"
                raise InvalidValueException(detail=detail)
            else:
                waiting += [(member, name) for member in value]
                if is_group and name.casefold() == "operations":
                    alone += sum(map(_names_one, value))
        if values > MOST_JSON * (10 if is_group else 1):
            raise InvalidValueException(detail="the request has too many values")
        if members > MOST_MEMBERS:
            raise InvalidValueException(
                detail=f"a request can name at most {MOST_MEMBERS} members of a group; "
                "send several with add and remove"
            )
    return members + alone


def _names_one(operation: Any) -> bool:
    """Return whether an operation may name a member by a filter, or by a value that is no list."""
    return isinstance(operation, dict) and not any(isinstance(v, list) for v in operation.values())


def _most_of(name: str, is_group: bool) -> int:
    if name.casefold() == "operations":
        return MOST_OPERATIONS if is_group else MOST_EDITS
    return MOST_EDITS if name.casefold().endswith("attributes") else MOST_VALUES


def _is_about_members(name: str, value: list[Any]) -> bool:
    """Return whether a list is of members; an operation with a path calls it `value`."""
    if _MEMBERS.fullmatch(name):
        return True
    return name.casefold() == "value" and all(isinstance(entry, dict) for entry in value)


def _member_count(members: list[Any]) -> int:
    for member in members:
        if isinstance(member, dict) and (
            len(member) > MOST_OF_A_MEMBER
            or any(isinstance(v, dict | list) for v in member.values())
        ):
            raise InvalidValueException(
                detail=f"a member has more than {MOST_OF_A_MEMBER} attributes, or complex ones"
            )
    return len(members)


def parsed(body: bytes, *, is_group: bool) -> Parsed:
    """Rewrite the operations for the library. Raises `SCIMException`.

    Without a path, Entra ID sends paths with filters as names of attributes, and it sends the id of
    a manager as a string. Okta sends the id of a group among its attributes.
    """
    try:
        payload = from_json(body)
    except ValueError as error:
        raise InvalidSyntaxException(detail=str(error)[:200]) from None
    payload = _lower(payload, ("schemas", "operations")) if isinstance(payload, dict) else payload
    operations_given = payload.get("operations") if isinstance(payload, dict) else None
    if not isinstance(operations_given, list):
        return Parsed(body, None, False)  # the library says what is wrong
    operations: list[Any] = []
    for operation in operations_given:
        if isinstance(operation, dict):
            operations += _split(_lower(operation, ("op", "path", "value")))
        else:
            operations.append(operation)
    for operation in operations:
        if isinstance(operation, dict) and len(str(operation.get("path") or "")) > LONGEST_PATH:
            raise InvalidPathException(
                path="", detail=f"a path is longer than {LONGEST_PATH} characters"
            )
    edit = _take_members(operations) if is_group else None
    if len(operations) > MOST_EDITS:
        raise InvalidValueException(detail=f"there are more than {MOST_EDITS} operations")
    if is_group:
        check_size(to_json({"operations": operations}), is_group=False)
    is_empty = edit is not None and not operations
    whole = {**payload, "operations": [_PLACEHOLDER] if is_empty else operations}
    return Parsed(to_json({_CANONICAL.get(k, k): v for k, v in whole.items()}), edit, is_empty)


_CANONICAL = {"operations": "Operations"}


def check_paths(patch: "PatchOp[Any]") -> None:
    """Refuse a path that names no attribute. Raises `InvalidPathException` (RFC 7644 §3.5.2).

    Attributes of users in RFC 7643 that are not stored here, such as roles, are dropped.
    """
    for operation in patch.operations or ():
        path = operation.path
        if path is None or path.model is not None or path.resolve() is not None:
            continue
        try:
            is_standard = Path[StandardUser[Any]](str(path)).resolve() is not None
        except InvalidPathException:
            is_standard = False
        if not is_standard:
            raise InvalidPathException(
                path=str(path), detail=f"the path {str(path)[:100]} names no attribute"
            )


def _lower(payload: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Write these names in lower case: names ignore case (RFC 7643 §2.1)."""
    members: dict[str, Any] = {}
    for name, value in payload.items():
        key = name.casefold() if name.casefold() in names else name
        if key in members:
            raise InvalidSyntaxException(detail=f"{key[:50]} is there twice")
        members[key] = value
    return members


def _split(operation: dict[str, Any]) -> list[dict[str, Any]]:
    """Split an operation without a path into one for each filter, and one for the rest."""
    path, value = operation.get("path"), operation.get("value")
    if isinstance(path, str) and path:
        if path.casefold() == _MANAGER and isinstance(value, str):
            return [{**operation, "value": {"value": value}}]
        return [operation]
    if path or not isinstance(value, dict):
        return [operation]
    if len(value) > MOST_EDITS:
        raise InvalidValueException(detail=f"the value has more than {MOST_EDITS} attributes")
    if str(operation.get("op")).casefold() == "remove":
        return [operation]  # the library says that it needs a path
    paths = [name for name in value if "[" in name or _member_path(name) is not None]
    plain = {name: member for name, member in value.items() if name not in paths and name != "id"}
    remaining = [{**operation, "value": plain}] if plain else []
    return remaining + [{**operation, "path": name, "value": value[name]} for name in paths]


def _take_members(operations: list[Any]) -> MemberEdit | None:
    """Remove the operations on members from the list; return their edit, or `None`."""
    edit, other_operations = None, []
    for operation in operations:
        path = operation.get("path") if isinstance(operation, dict) else None
        suffix = _member_path(path) if isinstance(path, str) else None
        if suffix is None:
            other_operations.append(operation)
            continue
        edit = edit or MemberEdit()
        _apply(edit, operation, suffix)
    operations[:] = other_operations
    return edit


def _member_path(path: str) -> str | None:
    """Return the part of a path after `members`, or `None` for another attribute."""
    match = _MEMBERS.fullmatch(path.strip())
    return match[1] if match else None


def _apply(edit: MemberEdit, operation: dict[str, Any], suffix: str) -> None:
    """Apply an operation on `members`, or on those that a filter names. Raises `SCIMException`."""
    op, value = str(operation.get("op")).casefold(), operation.get("value")
    if op not in ("add", "replace", "remove"):
        raise InvalidValueException(detail=f"{op[:50]} is not a PATCH operation")
    if suffix:
        if op != "remove" or value is not None or not suffix.endswith("]"):
            raise InvalidPathException(
                path="", detail='change the attribute members, or remove members[value eq "ID"]'
            )
        edit.remove(_selected(suffix[1:-1]))
    elif op == "remove":
        edit.replace(set()) if value is None else edit.remove(_ids(value))
    elif op == "replace":
        edit.replace(set() if value is None else _ids(value))
    else:
        edit.add(_ids(value))


def _ids(value: Any) -> set[UUID]:
    listed = value if isinstance(value, list) else [value]
    return {member_id(_value_of(entry)) for entry in listed}


def _value_of(member: Any) -> Any:
    attributes = member if isinstance(member, dict) else {}
    return next((value for name, value in attributes.items() if name.casefold() == "value"), None)


def _selected(text: str) -> set[UUID]:
    """Return the ids that a filter names."""
    return {member_id(value) for value in _compared(ScimFilter(text).ast)}


def _compared(node: FilterNode) -> list[Any]:
    if isinstance(node, LogicalExpr) and node.op == LogicalOperator.or_:
        return [value for term in node.terms for value in _compared(term)]
    if (
        isinstance(node, Comparison)
        and node.op == CompareOperator.eq
        and str(node.attr_path).casefold() == "value"
    ):
        return [node.value]
    raise InvalidFilterException(detail='members are selected by their ids: value eq "ID"')
