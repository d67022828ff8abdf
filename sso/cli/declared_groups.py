"""The groups of a file that is applied, with their owners. Members are in the entries of users.

`sso.cli.apply` does the same for clients and users, and owns the transaction.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sso.audit import Actor
from sso.config.fields import Field, Kind
from sso.services import checks, group_editing, group_owners
from sso.services.checks import Invalid
from sso.store import named_groups, users

Entry = dict[str, Any]
FIELDS: Mapping[str, Field] = {
    "name": Field("name", Kind.TEXT, "The name of the group."),
    "owners": Field("owners", Kind.NAMES, "The email addresses of its owners."),
}


@dataclass(slots=True)
class DeclaredGroups:
    """The groups of the file that differ from the database.

    `changes` has the action, the name, and the fields before and after.
    """

    entries: list[Entry] = field(default_factory=list)
    changes: list[tuple[str, str, dict[str, tuple[Any, Any]]]] = field(default_factory=list)

    @property
    def emails(self) -> set[str]:
        """Return the email addresses of all owners, new and former."""
        pairs = [fields["owners"] for _, _, fields in self.changes if "owners" in fields]
        return {email for pair in pairs for owners in pair for email in owners or ()}


def described() -> list[Entry]:
    """Return the groups with owners as a file has them."""
    return [{"name": name, "owners": emails} for name, emails in _owners().items()]


def compare(
    entries: Sequence[Entry], new_emails: Collection[str], errors: list[str]
) -> DeclaredGroups:
    """Compare these entries with the database, without writing; add what is wrong to `errors`.

    `new_emails`: the addresses of the users that the file declares, who may not be there yet.
    """
    work = DeclaredGroups()
    names = named_groups.names() if entries else set()
    owners = _owners() if entries else {}
    for entry in entries:
        name, before = entry["name"], owners.get(entry["name"], [])
        after = sorted(set(map(_lowered, entry["owners"]))) if "owners" in entry else before
        reasons = [*checks.group_errors([name], ()), *_errors(name, before, after, new_emails)]
        errors += [f"groups {name}: {reason}" for reason in reasons]
        is_new = name not in names
        if is_new or before != after:
            fields = {"owners": (before, after)} if before != after else {}
            work.entries.append(entry)
            work.changes.append(("create" if is_new else "update", name, fields))
    return work


def _errors(
    name: str, before: Collection[str], after: Collection[str], new_emails: Collection[str]
) -> list[str]:
    added = set(after) - set(before)
    existing, _ = users.existing(sorted(added), ())
    missing = sorted(added - existing.keys() - set(new_emails))
    errors = [f"there is no user {email}" for email in missing]
    if added and group_owners.gives_permissions(name):
        errors.append("it gives rights in the administration, so it has no owners")
    return errors


def owner_ids(work: DeclaredGroups) -> set[UUID]:
    """Return the ids of the owners, who are locked with the other users."""
    existing, _ = users.existing(sorted(work.emails), ())
    return set(existing.values())


def write(actor: Actor, work: DeclaredGroups) -> None:
    """Create the groups and change the owners that differ, after all users. Raises `Invalid`."""
    for _, name, fields in work.changes:
        group = named_groups.find_by_name(name) or group_editing.create(actor, name)
        before, after = (set(emails) for emails in fields.get("owners", ((), ())))
        ids, _ = users.existing(sorted(before | after), ())
        if missing := sorted(after - ids.keys()):
            raise Invalid([f"groups {name}: there is no user {missing[0]}"])
        group_owners.change(
            actor,
            group.id,
            added=[ids[email] for email in after - before],
            removed=[ids[email] for email in before - after if email in ids],
        )


def _owners() -> dict[str, list[str]]:
    return named_groups.owners_by_group()


def _lowered(email: str) -> str:
    return email.strip().lower()
