"""Groups as SCIM resources, and what a resource says as the arguments of a service."""

from collections.abc import Collection, Iterable
from typing import Any
from uuid import UUID

from pydantic_core import from_json
from scim2_models import InvalidValueException, Resource

from sso.models import Group
from sso.scim.resources import Group as GroupResource
from sso.scim.users import meta
from sso.store import named_groups
from sso.store.groups import Member

_LONGEST_ID = 255


def resource(group: Group, members: Iterable[Member] | None) -> Resource[Any]:
    """A group as SCIM shows one; `None`: without saying who is in it."""
    found = None
    if members is not None:
        found = [
            {"value": str(one.id), "$ref": f"Users/{one.id}", "type": "User"} for one in members
        ]
    return GroupResource.model_validate(
        {
            "id": str(group.id),
            "externalId": group.external_id,
            "displayName": group.name,
            "members": found,
            "meta": meta(group),
        }
    )


def find(text: str) -> Group | None:
    """The group with this id."""
    group_id = uuid(text)
    return named_groups.find(group_id) if group_id else None


def lock(text: str, people: Collection[UUID] | None, named: Collection[UUID]) -> Group | None:
    """The group with this id, to change the membership of these people, or of any (`None`).

    `named`: people who may come into it then.
    """
    if (group_id := uuid(text)) is None:
        return None
    if people is not None:
        return named_groups.lock(group_id, people)
    return named_groups.lock(group_id, named, with_members=True)


def uuid(text: str) -> UUID | None:
    """The id that this is, or `None`."""
    try:
        return UUID(text)
    except ValueError:
        return None


def ids_in(body: bytes) -> set[UUID]:
    """All ids in a request, wherever they stand; none if it is not JSON."""
    try:
        waiting = [from_json(body)]
    except ValueError:
        return set()
    found = set()
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict | list):
            waiting += one.values() if isinstance(one, dict) else one
        elif isinstance(one, str) and (read := uuid(one)):
            found.add(read)
    return found


def member_id(text: Any) -> UUID:
    """The user that a member names. Raises `InvalidValueException`."""
    try:
        return UUID(text)
    except (AttributeError, TypeError, ValueError):
        raise InvalidValueException(detail="a member is not the id of a user") from None


def member_ids(members: Iterable[Any]) -> set[UUID]:
    return {member_id(one.value) for one in members}


def external_id(wanted: Any) -> str | None:
    """Raises `InvalidValueException`."""
    text: str | None = wanted.external_id
    if text is not None and not (text.isprintable() and 0 < len(text) <= _LONGEST_ID):
        detail = f"externalId is no printable text of at most {_LONGEST_ID} characters"
        raise InvalidValueException(detail=detail)
    return text
