"""`flask apply`: makes clients and users as a file says, all or nothing.

It is done twice: first to show what would change, and rolled back; then for good. All clients and
users are locked before anything is changed, clients first, as everywhere.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import click
from flask.cli import with_appcontext

from sso import audit
from sso.cli import declaration
from sso.cli.commands import BrokenReference, Command, Failure, confirm, json_option, yes_option
from sso.cli.commands import resolve as resolved
from sso.cli.declaration import METADATA, Entry
from sso.cli.output import change_lines, print_json, print_line
from sso.extensions import db
from sso.models import User
from sso.services import accounts, clients, profiles
from sso.services.changes import ListEdit, Outcome, of_field
from sso.services.checks import RegistrationError
from sso.services.clients import SWITCHES
from sso.store import clients as stored_clients
from sso.store import users

MIN_SECRET = 32
_SIGNS = {"create": "+", "update": "~", "delete": "-"}


@dataclass(frozen=True)
class Change:
    """One line of a plan; `fields` has before and after by name, never a secret."""

    action: str  # create, update, delete
    kind: str
    name: str
    id: str
    fields: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)

    @property
    def has_new_id(self) -> bool:
        """Whether it is a new user whose id is not in the file."""
        return self.kind == "user" and self.action == "create" and "id" not in self.fields


@click.command("apply", cls=Command)
@click.argument("path", metavar="FILE", type=declaration.file_type)
@click.option("--plan", "only_plan", is_flag=True, help="Print what would change; change nothing.")
@click.option("--prune", is_flag=True, help="Delete what the file does not have.")
@yes_option
@json_option
@with_appcontext
def apply_command(path: Path, only_plan: bool, prune: bool, yes: bool, as_json: bool) -> None:
    """Change clients, users and groups to match FILE, all or nothing.

    Fields that an entry leaves out stay as they are. --prune deletes clients only if FILE has
    clients, and users only if it has users.
    """
    wanted = declaration.read(path)
    with audit.dry_run():
        changes = carry_out(wanted, lock(wanted, prune))
    db.session.rollback()  # no lock is held while a person reads
    if not as_json:
        _show(changes)
    if not only_plan:
        deleted = [change.name for change in changes if change.action == "delete"]
        if deleted:
            confirm(f"Delete {len(deleted)} with all their sessions and tokens?", yes)
        surplus = lock(wanted, prune)
        if [change.name for change in surplus] != deleted:
            raise Failure("somebody else changed what would be deleted; try again")
        changes = carry_out(wanted, surplus)
        db.session.commit()
    if as_json:
        shown = [_json(one, applied=not only_plan) for one in changes]
        print_json({"applied": not only_plan, "changes": shown})
    elif only_plan and changes:
        print_line("Nothing is changed yet.")
    elif changes:
        for change in changes:
            if change.has_new_id:
                print_line(f"{change.name} has the id {change.id}")
        print_line(f"{len(changes)} changed.")


def lock(wanted: Mapping[str, list[Entry]], prune: bool) -> list[Change]:
    """Lock all that the file names; returns what it does not name, locked to be deleted."""
    surplus = []
    kept = {entry["client_id"] for entry in wanted.get("clients", [])}
    for client_id in sorted(kept):
        stored_clients.lock(client_id)
    if prune and "clients" in wanted:
        others = [row.client_id for row in stored_clients.every() if row.client_id not in kept]
        locked = [stored_clients.lock_to_remove(client_id) for client_id in others]
        surplus += [
            Change("delete", "client", row.client_id, row.client_id) for row in locked if row
        ]
    known = {user.id for entry in wanted.get("users", []) if (user := _find_user(entry))}
    for user_id in sorted(known):
        users.lock_any(user_id)
    if prune and "users" in wanted:
        unknown = [users.lock_any(row.id) for row in users.every() if row.id not in known]
        surplus += [Change("delete", "user", row.email, str(row.id)) for row in unknown if row]
    return surplus


def carry_out(wanted: Mapping[str, list[Entry]], surplus: Iterable[Change]) -> list[Change]:
    """Change and delete; the caller commits or rolls back.

    Raises `RegistrationError` with the errors of all entries.
    """
    actor = audit.operator(by="apply")
    changes: list[Change | None] = []
    errors: list[str] = []
    for kind, entries in sorted(wanted.items()):
        make = _client if kind == "clients" else _user
        for entry in entries:
            name = entry[declaration.KINDS[kind][1]]
            try:
                changes.append(make(actor, entry))
            except RegistrationError as error:
                errors += [f"{kind} {name}: {one}" for one in error.errors]
            except BrokenReference as error:
                errors.append(f"{kind} {name}: {error}")
        for change in surplus:
            if f"{change.kind}s" == kind:
                _delete(actor, change)
                changes.append(change)
    if errors:
        raise RegistrationError(errors)
    return [change for change in changes if change]


def _delete(actor: audit.Actor, change: Change) -> None:
    if change.kind == "client":
        clients.delete(actor, change.id)
    elif user := users.find(UUID(change.id)):
        accounts.delete(actor, user)


def _client(actor: audit.Actor, entry: Entry) -> Change | None:
    client_id = entry["client_id"]
    metadata = {name: entry[name] for name in METADATA if name in entry}
    given: dict[str, Any] = {
        "secret": _secret(entry),
        "switches": {name: entry[name] for name in SWITCHES if name in entry},
        "logo": entry.get("logo"),
    }
    if found := stored_clients.find(client_id):
        if found.is_public and entry.get("public") is False:
            raise RegistrationError([clients.STAYS])
        disabled = entry.get("disabled")
        _, outcome = clients.change(actor, client_id, metadata, disabled=disabled, **given)
        return _updated("client", client_id, client_id, outcome)
    if given["secret"] is None and profiles.need_secret(metadata):
        raise RegistrationError(["it is new: give secret = env:NAME or file:PATH"])
    given["disabled"] = entry.get("disabled", False)
    row, _ = clients.register(actor, metadata, client_id=client_id, **given)
    fields = {name: (None, value) for name, value in clients.described(row).items()}
    return Change("create", "client", client_id, client_id, fields)


def _secret(entry: Entry) -> str | None:
    if "secret" not in entry:
        return None
    secret = resolved(entry["secret"])
    if len(secret) < MIN_SECRET:
        raise RegistrationError([f"its secret is shorter than {MIN_SECRET} characters"])
    return secret


def _user(actor: audit.Actor, entry: Entry) -> Change | None:
    row, claims = _find_user(entry), entry.get("claims")
    if row is None:
        return _new_user(actor, entry)
    if "id" in entry and row.id != UUID(entry["id"]):
        raise RegistrationError([f"this email address is that of another user, {row.id}"])
    if claims is not None:  # those that the file lacks are removed
        claims = {**dict.fromkeys(row.claims), **claims}
    row, outcome = accounts.update(
        actor,
        row.id,
        email=entry["email"],
        name=entry.get("name"),
        email_verified=entry.get("email_verified"),
        disabled=entry.get("disabled"),
        memberships=ListEdit(whole=tuple(entry["groups"])) if "groups" in entry else None,
        claims=claims,
    )
    return _updated("user", row.email, str(row.id), outcome)


def _new_user(actor: audit.Actor, entry: Entry) -> Change:
    password, disabled = entry.get("initial_password"), entry.get("disabled", False)
    # Nobody signs in without a password: a link to set one is mailed, this once.
    is_invited = password is None and not disabled
    row = accounts.create(
        actor,
        email=entry["email"],
        name=entry.get("name", ""),
        password=None if password is None else resolved(password),
        email_verified=entry.get("email_verified", False),
        disabled=disabled,
        groups=entry.get("groups", ()),
        claims=entry.get("claims"),
        user_id=UUID(entry["id"]) if "id" in entry else None,
        is_invited=is_invited,
    )
    fields = {name: (None, value) for name, value in accounts.described(row).items()}
    if "id" not in entry:
        del fields["id"]  # random: another one each time
    if is_invited:
        fields["invitation"] = (None, "by mail")
    return Change("create", "user", row.email, str(row.id), fields)


def _find_user(entry: Entry) -> User | None:
    found = users.find(UUID(entry["id"])) if "id" in entry else None
    return found or users.find_by_email(entry["email"])


def _updated(kind: str, name: str, row_id: str, outcome: Outcome) -> Change | None:
    fields = {name: (one["before"], one["after"]) for name, one in outcome.changes.items()}
    return Change("update", kind, name, row_id, fields) if fields else None


def _show(changes: Sequence[Change]) -> None:
    for change in changes:
        print_line(f"{_SIGNS[change.action]} {change.kind} {change.name}")
        for name, (before, after) in change.fields.items():
            if change.action == "create" and after not in (None, "", [], {}, False):
                print_line(f"    {name}: {after}")
            elif change.action == "update":
                for line in change_lines({name: of_field(name, before, after)}):
                    print_line(f"    {line}")
    if not changes:
        print_line("Everything is as the file says.")


def _json(change: Change, applied: bool) -> dict[str, Any]:
    pairs = {**change.fields}
    if applied and change.has_new_id:
        pairs["id"] = (None, change.id)
    fields = {k: {"before": before, "after": after} for k, (before, after) in pairs.items()}
    return {"action": change.action, "kind": change.kind, "name": change.name, "fields": fields}
