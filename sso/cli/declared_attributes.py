"""The attributes of a file that is applied: compared with the database, locked, written.

`sso.cli.apply` does the same for clients and users, and owns the transaction.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sso.audit import Actor
from sso.config.attribute_fields import FIELDS
from sso.flow.attributes import Definition
from sso.services import attributes
from sso.services.checks import Invalid
from sso.store import attributes as stored

Entry = dict[str, Any]


@dataclass(slots=True)
class DeclaredAttributes:
    """The attributes of the file that differ from the database.

    `changes` has the action, the name, and the fields before and after. `definitions` are those
    that the file declares, as they will be. `surplus`: names that the file does not have.
    """

    entries: list[Entry] = field(default_factory=list)
    changes: list[tuple[str, str, dict[str, tuple[Any, Any]]]] = field(default_factory=list)
    definitions: dict[str, Definition] = field(default_factory=dict)
    surplus: list[str] = field(default_factory=list)


def described() -> list[Entry]:
    """Return the attributes as a file has them."""
    return [attributes.described(row) for row in stored.every()]


def compare(entries: Sequence[Entry], errors: list[str]) -> DeclaredAttributes:
    """Compare these entries with the database, without writing; add what is wrong to `errors`."""
    work = DeclaredAttributes()
    rows = stored.detached() if entries else {}
    for entry in entries:
        name = entry["name"]
        row = rows.get(name)
        try:
            if row is None:
                planned = attributes.plan_definition(entry)
                pairs = {key: (None, value) for key, value in attributes.described(planned).items()}
                change = ("create", name, pairs)
            else:
                planned = row
                changes = attributes.plan_change(row, entry).items()
                pairs = {key: (value["before"], value["after"]) for key, value in changes}
                change = ("update", name, pairs)
        except Invalid as error:
            errors += [f"attributes {name}: {reason}" for reason in error.errors]
            continue
        work.definitions[name] = planned
        if pairs:
            work.entries.append(entry)
            work.changes.append(change)
    return work


def surplus(entries: Iterable[Entry]) -> list[str]:
    """Return the names of the attributes that are not among these entries."""
    declared = {entry["name"] for entry in entries}
    return [row.name for row in stored.every() if row.name not in declared]


def surplus_errors(users: Iterable[Entry], names: Iterable[str]) -> list[str]:
    """Return which declared users have a value of an attribute that would be deleted."""
    gone = set(names)
    return [
        f"users {user['email']}: the attribute {name} would be deleted"
        for user in users
        for name in sorted(gone & (user.get("attributes") or {}).keys())
    ]


def lock(work: DeclaredAttributes) -> None:
    """Lock the attributes that will be written, and keep all others, before clients and users."""
    for name in sorted({entry["name"] for entry in work.entries} | {*work.surplus}):
        stored.lock(name)
    stored.share()


def write(actor: Actor, work: DeclaredAttributes) -> None:
    """Define and change what differs."""
    for entry in work.entries:
        fields: Mapping[str, Any] = {name: entry[name] for name in FIELDS if name in entry}
        if stored.find(entry["name"]) is None:
            attributes.define(actor, fields)
        else:
            attributes.change(actor, entry["name"], fields)


def delete_surplus(actor: Actor, work: DeclaredAttributes) -> None:
    """Delete the attributes that the file does not have, with their values."""
    for name in work.surplus:
        attributes.delete(actor, name)
