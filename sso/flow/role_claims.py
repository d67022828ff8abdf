"""Roles of an application or an API, by group, and the claim `roles` (RFC 9068 §2.2.3.1).

An entry of a registration is `ROLE=GROUP`: members of the group have the role. `ROLE` alone is a
role that nobody has yet.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sso.i18n import N_
from sso.i18n.message import Message

CLAIM = "roles"
LIST, STRING, OBJECT = "list", "string", "object"
SHAPES: Mapping[str, str] = {
    LIST: N_("A list of all roles that the person has"),
    STRING: N_("A text: the first role in this order that the person has"),
    OBJECT: N_("An object with a member for each role that the person has"),
}
MOST = 200  # entries
MAX_ROLE = 64  # characters
_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:/-")


def split(entry: str) -> tuple[str, str | None]:
    """Return role and group of an entry; `None` if nobody has the role."""
    role, separator, group = entry.partition("=")
    return role, group if separator else None


def groups_in(entries: Iterable[str]) -> list[str]:
    """Return the groups in entries, each once."""
    return list(dict.fromkeys(group for _, group in map(split, entries) if group is not None))


def sources(entries: Iterable[str], groups: Collection[str]) -> dict[str, list[str]]:
    """Return the roles of a user in these groups, each with the groups that give it.

    They are in the order of the registration.
    """
    roles: dict[str, list[str]] = {}
    for role, group in map(split, entries):
        if group is not None and group in groups:
            roles.setdefault(role, []).append(group)
    return roles


def of(entries: Iterable[str], groups: Collection[str]) -> list[str]:
    """Return the roles of a user in these groups, in the order of the registration."""
    return list(sources(entries, groups))


def claim(entries: Sequence[str], shape: str, groups: Collection[str]) -> dict[str, Any]:
    """Return the claim, alone in an object; without roles of the application there is none.

    As a list or an object, it is there for a user without a role, too. As a text, it is the first
    role that the user has.
    """
    if not entries:
        return {}
    roles = of(entries, groups)
    if shape == OBJECT:
        return {CLAIM: dict.fromkeys(roles, True)}
    if shape == STRING:
        return {CLAIM: roles[0]} if roles else {}
    return {CLAIM: roles}


def tidy(entries: Iterable[str]) -> list[str]:
    """Return entries without spaces around roles and groups, and without those that say nothing.

    Entries of a role stay together, where its first one is.
    """
    by_role: dict[str, dict[str, None]] = {}
    for text in entries:
        role, group = split(text)
        groups = by_role.setdefault(role.strip(), {})
        if group is not None:
            groups[group.strip()] = None
    return [
        entry
        for role, groups in by_role.items()
        for entry in ([f"{role}={group}" for group in groups] or [role])
    ]


def without(entries: Iterable[str], removed: Iterable[str]) -> list[str]:
    """Return entries without these; a role alone removes all entries of the role."""
    pairs = [split(entry) for entry in tidy(removed)]
    roles = {role for role, group in pairs if group is None}
    return [
        entry for entry in entries if split(entry)[0] not in roles and split(entry) not in pairs
    ]


def renamed(entries: Iterable[str], old: str, new: str) -> list[str]:
    """Return entries in which a group has its new name."""
    return [
        f"{role}={new}" if group == old else entry
        for entry in entries
        for role, group in [split(entry)]
    ]


def error(entries: Sequence[str]) -> Message | None:
    """Return why an application cannot have these roles; groups are checked by the caller."""
    if len(entries) > MOST:
        return Message("there are more than %(most)d entries of roles", most=MOST)
    for role, group in map(split, entries):
        if not 0 < len(role) <= MAX_ROLE or not set(role) <= _CHARACTERS:
            return Message(
                "the role %(role)s is refused: a name has 1 to %(most)d letters, digits and . - _ "
                ": /",
                role=repr(role[:100]),
                most=MAX_ROLE,
            )
        if group == "":
            return Message("the role %(role)s has an empty group", role=role)
    return None
