"""What applications know people by, if it is an attribute: no value may be of two people.

To an application they would be one person. A value that is the ID of somebody else is refused, too:
an application knows people without a value by their ID.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any
from uuid import UUID

from sso.flow import attributes
from sso.i18n.message import Message
from sso.services.checks import Invalid, Rule
from sso.store import attributes as stored
from sso.store import clients, users

_MOST_NAMED = 3  # values in an error


def names() -> set[str]:
    """Return the attributes by which applications know people."""
    return {client.subject_attribute or "" for client in clients.with_subject_attribute()} - {""}


def lock(edits: Collection[str] | None) -> None:
    """Let nobody else change such values until the transaction ends, if there are edits of them.

    `edits`: names of attributes. Call it before users and clients are locked.
    """
    if edits and names() & {*edits}:
        stored.lock_subjects()


def lock_for_client(name: str | None) -> None:
    """Do the same for an attribute that a client is to use."""
    if name:
        stored.lock_subjects()


def owners(name: str, values: Collection[str]) -> dict[str, set[UUID]]:
    """Return whom an application would know by each of these values."""
    by_value: dict[str, set[UUID]] = {}
    for value, user_id in stored.holders(name, values):
        by_value.setdefault(value, set()).add(user_id)
    by_id = {str(user_id): user_id for user_id in filter(None, map(_as_id, values))}
    _, present = users.existing((), by_id.values())
    for value, user_id in by_id.items():
        if user_id in present:
            by_value.setdefault(value, set()).add(user_id)
    return by_value


def value_errors(
    user_id: UUID | None, before: Mapping[str, Any], after: Mapping[str, Any]
) -> list[Message]:
    """Return why a user cannot have these values: somebody else is known by one of them."""
    changed = {name for name in attributes.changed(before, after) if name in after}
    used = names() & changed if changed else ()
    return [
        _taken(name, str(after[name]))
        for name in sorted(used)
        if owners(name, [str(after[name])]).get(str(after[name]), set()) - {user_id}
    ]


def require_distinct(people: Iterable[tuple[UUID, Mapping[str, Any]]]) -> None:
    """Refuse people who have been written with values by which somebody else is known.

    Raises `Invalid`.
    """
    listed = list(people)
    errors: list[str] = []
    for name in sorted(names()):
        values = [str(of_user[name]) for _, of_user in listed if name in of_user]
        errors += [
            _taken(name, value) for value, ids in sorted(owners(name, values).items())
            if len(ids) > 1
        ]  # fmt: skip
    if errors:
        raise Invalid(errors)


def client_errors(name: str) -> list[Message]:
    """Return why no application can know people by an attribute: some have the same value."""
    values = stored.repeated(name, _MOST_NAMED)
    shaped = dict(stored.values_like_ids(name))
    values += [
        value for value, ids in owners(name, shaped).items()
        if len(ids) > 1 and value not in values
    ][:_MOST_NAMED]  # fmt: skip
    return [_taken(name, value) for value in values]


def _as_id(value: str) -> UUID | None:
    """Return the ID that a value is, as it is written in tokens."""
    try:
        return user_id if str(user_id := UUID(value)) == value else None
    except ValueError:
        return None


def _taken(name: str, value: str) -> Message:
    return Message(
        "an application knows people by the attribute %(name)s, and two people would be %(value)s",
        name=repr(name), value=repr(value[:100]), code=Rule.ALREADY_EXISTS,
    )  # fmt: skip
