"""`flask apply`: makes clients and users as a file says, all or nothing.

It is done twice: first to show what would change, and rolled back; then for good. All clients and
users are locked before anything is changed, clients first, as everywhere.
"""

from collections.abc import Iterable, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any
from uuid import UUID

import click
from flask.cli import with_appcontext

from sso import audit
from sso.cli import declaration, plan
from sso.cli.commands import BrokenReference, Command, Failure, confirm, json_option, yes_option
from sso.cli.commands import resolve as resolved
from sso.cli.declaration import METADATA, Entry
from sso.cli.output import print_json, print_line
from sso.cli.plan import Change
from sso.extensions import db
from sso.models import User
from sso.services import accounts, clients, profiles
from sso.services.changes import ListEdit, Outcome
from sso.services.checks import RegistrationError
from sso.services.clients import SWITCHES
from sso.store import clients as stored_clients
from sso.store import sessions, users

MIN_SECRET = 32


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
        plan.show(changes)
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
        shown = [plan.as_json(one, applied=not only_plan) for one in changes]
        print_json({"applied": not only_plan, "changes": shown})
    elif only_plan and changes:
        print_line("Nothing is changed yet.")
    elif changes:
        for change in changes:
            if change.has_new_id:
                print_line(f"{change.name} has the id {change.id}")
        print_line(f"{len(changes)} changed.")


def lock(wanted: Mapping[str, list[Entry]], prune: bool) -> list[Change]:
    """Lock all that the file names; returns what it does not name, locked to be deleted.

    A sign-out holds a session, and then refers to clients. So sessions come before the stronger
    locks of clients that are going to be deleted.
    """
    kept = {entry["client_id"] for entry in wanted.get("clients", [])}
    others: set[str] = set()
    if prune and "clients" in wanted:
        others = {row.client_id for row in stored_clients.every()} - kept
    for client_id in sorted(kept | others):
        stored_clients.lock(client_id)
    known = {user.id for entry in wanted.get("users", []) if (user := _find_user(entry))}
    unknown: set[UUID] = set()
    if prune and "users" in wanted:
        unknown = {row.id for row in users.every()} - known
    locked = {user_id: users.lock_any(user_id) for user_id in sorted(known | unknown)}
    sessions.lock_of_users([*locked])
    surplus = [
        Change("delete", "client", client_id, client_id)
        for client_id in sorted(others)
        if stored_clients.lock_to_remove(client_id)
    ]
    leaving = [row for user_id, row in locked.items() if row and user_id in unknown]
    return surplus + [Change("delete", "user", row.email, str(row.id)) for row in leaving]


def carry_out(wanted: Mapping[str, list[Entry]], surplus: Iterable[Change]) -> list[Change]:
    """Change and delete; the caller commits or rolls back.

    Raises `RegistrationError` with the errors of all entries.
    """
    actor = audit.operator(by="apply")
    changes: list[Change | None] = []
    errors: list[str] = []
    for kind, entries in sorted(wanted.items()):
        key = declaration.KINDS[kind][1]
        work: list[tuple[str, Entry | Change]] = [(entry[key], entry) for entry in entries]
        work += [(one.id, one) for one in surplus if f"{one.kind}s" == kind]
        if kind == "clients":
            work.sort(key=itemgetter(0))  # as `grants.end` locks
        for name, one in work:
            try:
                changes.append(_carry_out(actor, kind, one))
            except RegistrationError as error:
                errors += [f"{kind} {name}: {reason}" for reason in error.errors]
            except BrokenReference as error:
                errors.append(f"{kind} {name}: {error}")
    if errors:
        raise RegistrationError(errors)
    return [change for change in changes if change]


def _carry_out(actor: audit.Actor, kind: str, wanted: Entry | Change) -> Change | None:
    if not isinstance(wanted, Change):
        return _client(actor, wanted) if kind == "clients" else _user(actor, wanted)
    if kind == "clients":
        clients.delete(actor, wanted.id)
    elif user := users.find(UUID(wanted.id)):
        accounts.delete(actor, user)
    return wanted


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
    password_hash = entry.get("password_hash")
    if password_hash and password_hash.startswith(("env:", "file:")):
        password_hash = resolved(password_hash)
    # Nobody signs in without a password: a link to set one is mailed, this once.
    is_invited = password is None and not password_hash and not disabled
    row = accounts.create(
        actor,
        email=entry["email"],
        name=entry.get("name", ""),
        password=None if password is None else resolved(password),
        password_hash=password_hash,
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
