"""The APIs of a file that is applied: read, compared with the database, locked, written.

`sso.cli.apply` does the same for clients and users, and owns the transaction.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sso.audit import Actor
from sso.cli.commands import resolve
from sso.config.api_fields import FIELDS
from sso.config.fields import Field, Kind
from sso.crypto.secrets import SHORTEST
from sso.errors import OperatorError
from sso.flow import resources
from sso.models import Api
from sso.models.clients import api_entry
from sso.services import apis
from sso.services.checks import Invalid
from sso.store import apis as stored_apis

Entry = dict[str, Any]
SECRET = Field("secret", Kind.TEXT, "A reference to the secret.")
DECLARED: Mapping[str, Field] = {**FIELDS, SECRET.name: SECRET}


@dataclass(slots=True)
class DeclaredApis:
    """The APIs of the file that differ from the database.

    `changes` has the action, the identifier, and the fields before and after. `scopes` are those
    that all declared APIs will have. `surplus`: identifiers that the file does not have.
    """

    entries: list[Entry] = field(default_factory=list)
    changes: list[tuple[str, str, dict[str, tuple[Any, Any]]]] = field(default_factory=list)
    scopes: dict[str, Mapping[str, str]] = field(default_factory=dict)
    surplus: list[str] = field(default_factory=list)


def described() -> list[Entry]:
    """Return the APIs as a file has them."""
    return [
        {
            name: value
            for name, value in apis.described(api).items()
            if name != "api_id" and value is not None
        }
        for api in stored_apis.every()
    ]


def key_of(entry: Entry) -> str:
    """Return the identifier of an entry as it is compared; "" if it has none."""
    identifier = entry.get("identifier")
    return resources.normalized(identifier) if isinstance(identifier, str) else ""


def tidy(entry: Entry) -> None:
    """Write the identifier as it is compared; the number 0 removes a value."""
    entry["identifier"] = key_of(entry)
    for name in entry.keys() & FIELDS.keys():
        if FIELDS[name].is_removable:
            entry[name] = entry[name] or None


def compare(entries: Sequence[Entry], errors: list[str]) -> DeclaredApis:
    """Compare these entries with the database, without writing; add what is wrong to `errors`."""
    rows = stored_apis.detached([entry["identifier"] for entry in entries])
    work = DeclaredApis()
    for entry in entries:
        identifier = entry["identifier"]
        row = rows.get(identifier)
        work.scopes[identifier] = entry.get("scopes", row.scopes if row else {})
        try:
            change = _compare(entry, row)
        except Invalid as error:
            errors += [f"apis {identifier}: {reason}" for reason in error.errors]
        except OperatorError as error:
            errors.append(f"apis {identifier}: {error}")
        else:
            if change:
                work.entries.append(entry)
                work.changes.append(change)
    return work


def _compare(entry: Entry, row: Api | None) -> tuple[str, str, dict[str, tuple[Any, Any]]] | None:
    fields, secret = _fields(entry), secret_of(entry)
    if row is not None:
        if fields.get("introspection") and not row.introspection and secret is None:
            raise Invalid(["it gets introspection: give secret = env:NAME or file:PATH"])
        changes = apis.plan_change(row, fields, secret=secret).items()
        pairs = {name: (change["before"], change["after"]) for name, change in changes}
        return ("update", entry["identifier"], pairs) if pairs else None
    if fields.get("introspection") and secret is None:
        raise Invalid(["it is new and has introspection: give secret = env:NAME or file:PATH"])
    planned = apis.plan_registration(fields, secret=secret)
    return "create", entry["identifier"], {name: (None, value) for name, value in planned.items()}


def _fields(entry: Entry) -> dict[str, Any]:
    return {name: entry[name] for name in FIELDS if name in entry}


def secret_of(entry: Entry) -> str | None:
    """Return the secret that an entry refers to, of a client or an API. Raises `Invalid`."""
    if "secret" not in entry:
        return None
    secret = resolve(entry["secret"])
    if len(secret) < SHORTEST:
        raise Invalid([f"its secret is shorter than {SHORTEST} characters"])
    return secret


def surplus(entries: Iterable[Entry]) -> list[str]:
    """Return the identifiers of the APIs that are not among these entries."""
    declared = {entry["identifier"] for entry in entries}
    return sorted(api.identifier for api in stored_apis.every() if api.identifier not in declared)


def surplus_errors(clients: Iterable[Entry], identifiers: Collection[str]) -> list[str]:
    """Return which declared clients name an API that would be deleted."""
    return [
        f"clients {client['client_id']}: the API {identifier} would be deleted"
        for client in clients
        for identifier in sorted(_named(client) & set(identifiers))
    ]


def _named(client: Entry) -> set[str]:
    """Return the identifiers of the APIs that a declared client names."""
    return {api_entry(text)[0] for text in apis.tidy_entries(client.get("apis", []))}


def lock(work: DeclaredApis, clients: Iterable[Entry]) -> set[str]:
    """Lock the APIs that will be written or that these clients name, before any client.

    Return the IDs of the clients that change with them.
    """
    written = {entry["identifier"] for entry in work.entries} | {*work.surplus}
    named = {identifier for client in clients for identifier in _named(client)}
    stored_apis.lock_all(written | named)
    return {
        client.client_id
        for identifier in sorted(written)
        for client in stored_apis.clients_of(identifier)
    }


def write(actor: Actor, work: DeclaredApis) -> None:
    """Register and change what differs."""
    rows = stored_apis.with_identifiers([entry["identifier"] for entry in work.entries])
    for entry in work.entries:
        row, fields, secret = rows.get(entry["identifier"]), _fields(entry), secret_of(entry)
        if row is not None:
            apis.change(actor, row.api_id, fields, secret=secret)
        else:
            apis.register(actor, fields, secret=secret)


def delete_surplus(actor: Actor, work: DeclaredApis) -> None:
    """Delete the APIs that the file does not have."""
    for row in stored_apis.with_identifiers(work.surplus).values():
        apis.delete(actor, row.api_id)
