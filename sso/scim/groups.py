"""Groups as SCIM resources, and what a resource says as the arguments of a service."""

from collections.abc import Collection, Iterable
from typing import Any
from uuid import UUID

from scim2_models import InvalidValueException, Resource

from sso.models import Group
from sso.scim.resources import Group as GroupResource
from sso.scim.users import meta
from sso.store import named_groups

_LONGEST_ID = 255


def resource(group: Group, members: Iterable[UUID] | None) -> Resource[Any]:
    """A group as SCIM shows one; `None`: without saying who is in it."""
    found = None
    if members is not None:
        found = [{"value": str(one), "$ref": f"Users/{one}", "type": "User"} for one in members]
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


def lock(text: str, people: Collection[UUID], *, with_members: bool) -> Group | None:
    """Lock the group with this id, and these people, or all members; return the group."""
    if (group_id := uuid(text)) is None:
        return None
    return named_groups.lock(group_id, people, with_members=with_members)


def uuid(text: str) -> UUID | None:
    """The id that this is, or `None`."""
    try:
        return UUID(text)
    except ValueError:
        return None


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
