"""`flask export` and `flask apply`: APIs, attributes, clients and users as a TOML file.

A file is applied as a whole or not at all. It is compared with a snapshot of the database, while
others write. Then only the entries that differ are locked, compared again and written: APIs and
clients first, as everywhere.

The file has no secrets: a client's secret and a user's first password are references, `env:NAME` or
`file:PATH`. Fields that an entry leaves out stay as they are.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import click
import tomli_w
from flask.cli import with_appcontext

from sso import audit, database
from sso.audit.events import Event
from sso.cli import declared_apis, declared_attributes, declared_groups, keycloak_export
from sso.cli.commands import (
    Command,
    Failure,
    confirm,
    json_option,
    slow_passwords_option,
    write_private,
    yes_option,
)
from sso.cli.commands import resolve as resolved
from sso.cli.declared_apis import DeclaredApis, secret_of
from sso.cli.declared_attributes import DeclaredAttributes
from sso.cli.declared_groups import DeclaredGroups
from sso.cli.output import ProgressReport, change_lines, print_json, print_line, progress_bar
from sso.config import attribute_fields, user_fields
from sso.config.auth_methods import NO_AUTH_METHOD
from sso.config.client_fields import FIELDS, IN_API, SETTABLE
from sso.config.fields import Field, Kind, type_errors
from sso.errors import OperatorError
from sso.extensions import db
from sso.flow import moments
from sso.models import Client
from sso.process.program import COMMAND
from sso.services import (
    accounts,
    apis,
    attributes,
    checks,
    clients,
    declared_accounts,
    ends,
    pictures,
)
from sso.services.changes import of_field
from sso.services.checks import Invalid, logo
from sso.services.declared_accounts import Declaration, Planned
from sso.store import client_work, sessions, users
from sso.store import clients as stored_clients

FORMAT = 1
HEADER = f"""\
# APIs, attributes, clients, users and their groups, for: {COMMAND} apply FILE
# Secrets are not in it. A new client needs secret = "env:NAME" or "file:PATH", of 32 random
# characters or more, or public = true; so does a new API with introspection = true. A new user may
# have initial_password = "env:NAME" or "file:PATH", or the password_hash of another system. A logo
# may also be a path, relative to this file.

"""
_SECRET_END = Field("secret_ends_at", Kind.TEXT, "When the secret ends.")
_CLIENT = (
    Field("client_id", Kind.TEXT, "The client identifier."),
    *IN_API,
    declared_apis.SECRET,
    _SECRET_END,
    Field("public", Kind.SWITCH, "Whether the client has no secret."),
    *(field for field in SETTABLE if field not in IN_API),
)
# The fields of each kind of entry, and the one by which an entry is found in the database.
KINDS: Mapping[str, tuple[Mapping[str, Field], str]] = {
    "apis": (declared_apis.DECLARED, "identifier"),
    "attributes": (attribute_fields.FIELDS, "name"),
    "clients": ({field.name: field for field in _CLIENT}, "client_id"),
    "users": (user_fields.FIELDS, "email"),
    "groups": (declared_groups.FIELDS, "name"),
}
_CLIENT_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._~-]{0,47}")

Entry = dict[str, Any]
file_type = click.Path(path_type=Path, dir_okay=False)


def declaration() -> dict[str, Any]:
    """Return the content of the file."""
    groups = declared_groups.described()
    return {
        "format": FORMAT,
        "apis": declared_apis.described(),
        "attributes": declared_attributes.described(),
        "clients": [_described(row) for row in stored_clients.every()],
        "users": [_without_picture(accounts.described(row)) for row in users.every()],
        **({"groups": groups} if groups else {}),
    }


def _described(row: Client) -> Entry:
    client = clients.described(row)
    image = stored_clients.find_logo(db.session.connection(), client.get("logo", ""))
    if image:
        client["logo"] = image.data_url
    if row.secret_expires_at:
        client[_SECRET_END.name] = moments.text_of(row.secret_expires_at)
    return client


def _without_picture(user: Entry) -> Entry:
    """Leave an uploaded picture out: its URL means nothing to another server."""
    claims = user["claims"]
    if not pictures.is_uploaded(claims):
        return user
    return {**user, "claims": {name: claims[name] for name in claims if name != "picture"}}


def declaration_as_toml(content: Mapping[str, Any]) -> str:
    return HEADER + tomli_w.dumps(content)


@click.command("export", cls=Command)
@click.argument("path", metavar="[FILE]", type=file_type, required=False)
@click.option(
    "--format", "form", type=click.Choice(["toml", "keycloak"]), default="toml", show_default=True,
    help="keycloak: a realm for kc.sh import, with password hashes and secrets of apps.",
)  # fmt: skip
@click.option(
    "--realm", default="main", show_default=True, metavar="NAME", help="The realm for Keycloak."
)
@json_option
@with_appcontext
def export_command(path: Path | None, form: str, realm: str, as_json: bool) -> None:
    """Write APIs, attributes, clients, users and groups to FILE (TOML, mode 0600), or print them.

    No secret, password or digest is in it, except with --format keycloak, which needs FILE and
    prints what Keycloak will not have. With --json TOML is printed as JSON, which apply takes too,
    from a file whose name ends in .json.
    """
    if form == "keycloak":
        keycloak_export.run(path, realm, as_json)
        return
    content = declaration()
    audit.event(Event.EXPORTED, file=path)
    db.session.commit()
    if path:
        write_private(path, lambda file: file.write(declaration_as_toml(content)))
    if as_json:
        print_json(content)
    elif not path:
        click.echo(declaration_as_toml(content), nl=False)


def read_declaration(path: Path) -> dict[str, list[Entry]]:
    """Read the entries of a file, TOML or `.json`, by kind; without kinds that it does not have.

    Raises `Invalid` with every error.
    """
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise Invalid([f"{path} cannot be read: {error.strerror}"]) from None
    except (ValueError, RecursionError) as error:
        raise Invalid([f"{path} cannot be understood: {error}"]) from None
    if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
        raise Invalid([f"{path} has to begin with: format = {FORMAT}"])
    errors = [f"there is no {name!r}" for name in content if name not in KINDS]
    for kind in KINDS.keys() & content.keys():
        errors += _errors_of_kind(kind, content[kind])
    if errors:
        raise Invalid(errors)
    for entry in content.get("apis", []):
        declared_apis.tidy(entry)
    for entry in content.get("clients", []):
        if entry.get("public"):
            entry["token_endpoint_auth_method"] = NO_AUTH_METHOD
        for name in entry.keys() & FIELDS.keys():
            if FIELDS[name].is_removable:
                entry[name] = entry[name] or None
        try:
            if "logo" in entry:
                entry["logo"] = logo(entry["logo"], path.parent)
        except Invalid as error:
            errors += [f"clients {entry['client_id']}: {reason}" for reason in error.errors]
    if errors:
        raise Invalid(errors)
    return content


def _errors_of_kind(kind: str, entries: Any) -> list[str]:
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        return [f"{kind} are not a list of tables"]
    table, key = KINDS[kind]
    errors = []
    names: set[str] = set()
    for number, entry in enumerate(entries, 1):
        name = _name_of(kind, entry)
        label = f"{kind} {name or number}"
        errors += [f"{label}: {error}" for error in _errors_of_entry(entry, table)]
        if not name:
            errors.append(f"{label}: {key} is missing")
        elif name in names:
            errors.append(f"{label}: is there twice")
        names.add(name)
    return errors


def _name_of(kind: str, entry: Entry) -> str:
    """Return the name by which an entry is found in the database."""
    if kind == "apis":
        return declared_apis.key_of(entry)
    name = str(entry.get(KINDS[kind][1], ""))
    return name.lower() if kind == "users" else name


def _errors_of_entry(entry: Entry, table: Mapping[str, Field]) -> Iterable[str]:
    for name in entry:
        if name not in table:
            yield f"{name!r} is unknown; known: {', '.join(table)}"
    yield from type_errors(table, {name: entry[name] for name in entry if name in table})
    if "initial_password" in entry and "password_hash" in entry:
        yield "give initial_password or password_hash, not both"
    client_id, user_id = entry.get("client_id"), entry.get("id")
    method = entry.get("token_endpoint_auth_method")
    if "public" in entry and method and entry["public"] is not (method == NO_AUTH_METHOD):
        yield "public contradicts token_endpoint_auth_method"
    if isinstance(client_id, str) and client_id and not _CLIENT_ID.fullmatch(client_id):
        yield "client_id is not 1 to 48 letters, digits, or any of . _ ~ -"
    if isinstance(user_id, str):
        try:
            UUID(user_id)
        except ValueError:
            yield "id is no UUID"


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
        """Return whether it is a new user whose id is not in the file."""
        return self.kind == "user" and self.action == "create" and "id" not in self.fields


def show_changes(changes: Sequence[Change]) -> None:
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


def changes_as_json(change: Change, applied: bool) -> dict[str, Any]:
    pairs = {**change.fields}
    if applied and change.has_new_id:
        pairs["id"] = (None, change.id)
    fields = {k: {"before": before, "after": after} for k, (before, after) in pairs.items()}
    return {"action": change.action, "kind": change.kind, "name": change.name, "fields": fields}


@dataclass(slots=True)
class Work:
    """The changes to make: entries that differ from the database, and rows to delete."""

    apis: DeclaredApis = field(default_factory=DeclaredApis)
    attributes: DeclaredAttributes = field(default_factory=DeclaredAttributes)
    clients: list[Entry] = field(default_factory=list)
    client_changes: list[Change] = field(default_factory=list)
    users: list[Planned] = field(default_factory=list)
    groups: DeclaredGroups = field(default_factory=DeclaredGroups)
    surplus_clients: list[str] = field(default_factory=list)
    surplus_users: dict[UUID, str] = field(default_factory=dict)
    locked: set[UUID] = field(default_factory=set)

    @property
    def deletions(self) -> list[str]:
        names = [*self.apis.surplus, *self.attributes.surplus, *self.surplus_clients]
        return [*names, *self.surplus_users.values()]

    def changes(self) -> list[Change]:
        """Return all changes, to show them."""
        return [
            *(Change(action, "api", name, name, fields)
              for action, name, fields in self.apis.changes),
            *(Change(action, "attribute", name, name, fields)
              for action, name, fields in self.attributes.changes),
            *self.client_changes,
            *(Change("delete", "attribute", name, name) for name in self.attributes.surplus),
            *(Change("delete", "api", name, name) for name in self.apis.surplus),
            *(Change("delete", "client", id_, id_) for id_ in self.surplus_clients),
            *(change for planned in self.users if (change := _change_of_user(planned))),
            *(Change(action, "group", name, name, fields)
              for action, name, fields in self.groups.changes),
            *(Change("delete", "user", email, str(user_id))
              for user_id, email in self.surplus_users.items()),
        ]  # fmt: skip


@click.command("apply", cls=Command)
@click.argument("path", metavar="FILE", type=file_type)
@click.option("--plan", "only_plan", is_flag=True, help="Print what would change; change nothing.")
@click.option("--prune", is_flag=True, help="Delete what the file does not have.")
@slow_passwords_option
@yes_option
@json_option
@with_appcontext
def apply_command(
    path: Path, only_plan: bool, prune: bool, slow_passwords: bool, yes: bool, as_json: bool
) -> None:
    """Change APIs, attributes, clients, users and groups to match FILE, all or nothing.

    Fields that an entry leaves out stay as they are. --prune deletes clients only if FILE has
    clients, users only if it has users, APIs only if it has APIs, and attributes with all their
    values only if it has attributes. Groups have owners; their members are in the users' entries.
    """
    with progress_bar("Comparing", as_json) as report:
        content = read_declaration(path)
        declared = [_declared(entry) for entry in content.get("users", [])]
        with database.session_snapshot():
            work = find_work(content, declared, prune, slow_passwords, report)
    changes = work.changes()
    if not as_json:
        show_changes(changes)
    if not only_plan and changes:
        if work.deletions:
            confirm(f"Delete {len(work.deletions)} with all their sessions and tokens?", yes)
        with progress_bar("Passwords", as_json) as report:
            for hashed in declared_accounts.hash_passwords(work.users):
                if report:
                    report(hashed, len(work.users))
    if not only_plan and (changes or work.users or work.clients):
        done = carry_out(content, work, prune, slow_passwords)
        db.session.commit()
        changes = done.changes()
    if as_json:
        documents = [changes_as_json(change, applied=not only_plan) for change in changes]
        print_json({"applied": not only_plan, "changes": documents})
    elif only_plan and changes:
        print_line("Nothing is changed yet.")
    elif changes:
        for change in changes:
            if change.has_new_id:
                print_line(f"{change.name} has the id {change.id}")
        print_line(f"{len(changes)} changed.")


def find_work(
    content: Mapping[str, list[Entry]],
    declared: Sequence[Declaration],
    prune: bool,
    slow_passwords: bool,
    report: ProgressReport | None = None,
) -> Work:
    """Compare the file with the database, without writing.

    Raises `Invalid` with the errors of all entries.
    """
    work = Work()
    errors: list[str] = []
    work.apis = declared_apis.compare(content.get("apis", []), errors)
    work.attributes = declared_attributes.compare(content.get("attributes", []), errors)
    defined = attributes.declared(work.attributes.definitions)
    with apis.declared(work.apis.scopes), defined:
        _compare_clients(content.get("clients", []), work, errors)
        planned = declared_accounts.plan(declared, any_cost=slow_passwords, report=report)
    work.users = planned.planned
    errors += [f"users {email}: {error}" for email, some in planned.errors for error in some]
    emails = {planned.user.email for planned in work.users}
    work.groups = declared_groups.compare(content.get("groups", []), emails, errors)
    if errors:
        raise Invalid(errors)
    if prune:
        _find_surplus(content, work)
        errors = declared_apis.surplus_errors(content.get("clients", []), work.apis.surplus)
        gone = work.attributes.surplus
        errors += declared_attributes.surplus_errors(content.get("users", []), gone)
        if errors:
            raise Invalid(errors)
    actor = audit.operator(by="apply")
    declared_accounts.require_administrators(actor, work.users, work.surplus_users)
    return work


def _compare_clients(entries: Sequence[Entry], work: Work, errors: list[str]) -> None:
    rows = stored_clients.detached([entry["client_id"] for entry in entries])
    for entry in sorted(entries, key=lambda entry: str(entry["client_id"])):  # the order of locking
        client_id = entry["client_id"]
        client = rows.get(client_id)
        # The operator takes over what somebody with limits has disabled; no change shows that.
        takes_over = client and client.disabled_within_limits and entry.get("disabled")
        try:
            change = _compare_client(entry, client)
        except Invalid as error:
            errors += [f"clients {client_id}: {reason}" for reason in error.errors]
        except OperatorError as error:
            errors.append(f"clients {client_id}: {error}")
        else:
            if change or takes_over:
                work.clients.append(entry)
            if change:
                work.client_changes.append(change)


def _compare_client(entry: Entry, client: Client | None) -> Change | None:
    client_id, fields, secret = entry["client_id"], _fields(entry), secret_of(entry)
    if client:
        _require_same_kind(entry, client)
        before = client.secret_expires_at
        changes = clients.plan_change(client, fields, secret=secret)
        pairs = {name: (field["before"], field["after"]) for name, field in changes.items()}
        # A new secret has no end, so that one that has passed is not the end of this one.
        end = _secret_end(entry, client.secret_expires_at, client.has_secret)
        if _SECRET_END.name in entry and end != before:
            pairs[_SECRET_END.name] = (moments.text_of(before), moments.text_of(end))
        return Change("update", "client", client_id, client_id, pairs) if pairs else None
    if secret is None and checks.need_secret(fields):
        raise Invalid(["it is new: give secret = env:NAME or file:PATH"])
    planned = clients.plan_registration(fields, client_id=client_id, secret=secret)
    pairs = {name: (None, value) for name, value in planned.items()}
    if end := _secret_end(entry, None, checks.need_secret(fields)):
        pairs[_SECRET_END.name] = (None, moments.text_of(end))
    return Change("create", "client", client_id, client_id, pairs)


def _find_surplus(content: Mapping[str, list[Entry]], work: Work) -> None:
    if "apis" in content:
        work.apis.surplus = declared_apis.surplus(content["apis"])
    if "attributes" in content:
        work.attributes.surplus = declared_attributes.surplus(content["attributes"])
    if "clients" in content:
        client_ids = {entry["client_id"] for entry in content["clients"]}
        rest = set(stored_clients.ids()) - client_work.being_deleted()
        work.surplus_clients = sorted(rest - client_ids)
    if "users" in content:
        ids = {str(entry["id"]).lower() for entry in content["users"] if "id" in entry}
        emails = {str(entry["email"]).strip().lower() for entry in content["users"]}
        work.surplus_users = {
            user_id: email
            for user_id, email in users.ids_and_emails().items()
            if email not in emails and str(user_id) not in ids
        }


def carry_out(
    content: Mapping[str, list[Entry]], work: Work, prune: bool, slow_passwords: bool
) -> Work:
    """Lock the entries that differ, compare them again, and write; return the changes made.

    Does not commit. Raises `Invalid`, and `Failure` if the deletions are no longer those
    that were shown, or if somebody else creates a declared user at this moment.
    """
    actor = audit.operator(by="apply")
    lock_everything(work)
    earlier = {planned.declaration: planned for planned in work.users}
    now = Work()
    errors: list[str] = []
    now.apis = declared_apis.compare(work.apis.entries, errors)
    now.attributes = declared_attributes.compare(work.attributes.entries, errors)
    with apis.declared(now.apis.scopes), attributes.declared(now.attributes.definitions):
        _compare_clients(work.clients, now, errors)
        planned = declared_accounts.plan([*earlier], earlier=earlier, any_cost=slow_passwords)
    now.users = planned.planned
    errors += [f"users {email}: {error}" for email, more in planned.errors for error in more]
    emails = {planned.user.email for planned in now.users}
    now.groups = declared_groups.compare(work.groups.entries, emails, errors)
    if errors:
        raise Invalid(errors)
    if prune:
        _find_surplus(content, now)
        if now.deletions != work.deletions:
            raise Failure("somebody else changed what would be deleted; try again")
    if any(user.row and user.row.id not in work.locked for user in now.users):
        raise Failure("somebody else changed one of these users at this moment; try again")
    declared_accounts.require_administrators(actor, now.users, now.surplus_users)
    declared_apis.write(actor, now.apis)
    declared_attributes.write(actor, now.attributes)
    for entry in now.clients:
        _write_client(actor, entry)
    declared_attributes.delete_surplus(actor, now.attributes)
    declared_apis.delete_surplus(actor, now.apis)
    for client_id in now.surplus_clients:
        clients.delete(actor, client_id)
    declared_accounts.carry_out(actor, now.users)
    for user_id in now.surplus_users:
        if user := users.find(user_id):
            accounts.delete(actor, user)
    declared_groups.write(actor, now.groups)
    return now


def lock_everything(work: Work) -> None:
    """Lock attributes, APIs, clients, then users, then their sessions, each in a fixed order.

    A sign-out locks a session, and then refers to clients. So sessions are locked before the
    clients that will be deleted, whose locks are stronger.
    """
    declared_attributes.lock(work.attributes)
    of_apis = declared_apis.lock(work.apis, work.clients)
    for client_id in sorted(
        {entry["client_id"] for entry in work.clients} | {*work.surplus_clients} | of_apis
    ):
        stored_clients.lock(client_id)
    # Also users who have appeared since the comparison.
    rows = declared_accounts.meant([planned.declaration for planned in work.users])
    work.locked = {row.id for row in rows} | {*work.surplus_users}
    users.lock_all(work.locked | declared_groups.owner_ids(work.groups))
    sessions.lock_of_users(sorted(work.locked))
    for client_id in work.surplus_clients:
        stored_clients.lock_to_remove(client_id)


def _write_client(actor: audit.Actor, entry: Entry) -> None:
    client_id, fields, secret = entry["client_id"], _fields(entry), secret_of(entry)
    if stored_clients.find(client_id):
        client, _ = clients.change(actor, client_id, fields, secret=secret)
    else:
        client, _ = clients.register(actor, fields, client_id=client_id, secret=secret)
    if _SECRET_END.name in entry and client.has_secret:
        clients.limit_secret(actor, client_id, entry[_SECRET_END.name])


def _secret_end(entry: Entry, before: datetime | None, has_secret: bool) -> datetime | None:
    """Return the declared end of a secret. Raises `Invalid`."""
    end = ends.read(entry.get(_SECRET_END.name, ""), before)
    if end and not has_secret:
        raise Invalid([clients.SECRETLESS])
    return end


def _fields(entry: Entry) -> dict[str, Any]:
    return {field.name: entry[field.name] for field in SETTABLE if field.name in entry}


def _require_same_kind(entry: Entry, client: Client) -> None:
    if client.is_public and entry.get("public") is False:
        raise Invalid([clients.STAYS])


def _declared(entry: Entry) -> Declaration:
    password, password_hash = entry.get("initial_password"), entry.get("password_hash")
    return Declaration(
        email=entry["email"],
        user_id=UUID(entry["id"]) if "id" in entry else None,
        name=entry.get("name"),
        email_verified=entry.get("email_verified"),
        disabled=entry.get("disabled"),
        groups=entry.get("groups"),
        claims=entry.get("claims"),
        attributes=entry.get("attributes"),
        ends_at=entry.get("ends_at"),
        group_ends=entry.get("group_ends"),
        password=None if password is None else lambda: resolved(password),
        password_hash=(lambda: _hash(password_hash)) if password_hash else None,
    )


def _hash(text: str) -> str:
    return resolved(text) if text.startswith(("env:", "file:")) else text


def _change_of_user(planned: Planned) -> Change | None:
    email, user_id = planned.user.email, str(planned.user.id)
    if planned.row is not None:
        changes = planned.changes.items()
        pairs = {name: (field["before"], field["after"]) for name, field in changes}
        return Change("update", "user", email, user_id, pairs) if pairs else None
    fields = {name: (None, value) for name, value in accounts.described(planned.user).items()}
    if planned.declaration.user_id is None:
        del fields["id"]  # random each time
    if planned.declaration.is_invited:
        fields["invitation"] = (None, "by mail")
    return Change("create", "user", email, user_id, fields)
