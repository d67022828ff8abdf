"""`flask api`: resource servers, the audiences of access tokens (RFC 8707)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from sso import audit
from sso.cli.clients import (
    Function,
    decorated,
    list_when_created,
    list_when_updated,
    option_of,
    removal_flag,
    switch_or_removal,
    with_options,
)
from sso.cli.commands import Group, confirm, json_option, only, unknown, yes_option
from sso.cli.output import (
    iso,
    print_changes,
    print_json,
    print_line,
    print_notes,
    print_record,
    print_table,
)
from sso.config.api_fields import FIELDS
from sso.config.fields import LISTS, MAPPINGS, Kind
from sso.extensions import db
from sso.models import Api
from sso.services import api_values, apis, groups
from sso.store import apis as stored_apis

group = Group("api", help="APIs that accept access tokens.")
api_argument = click.argument("api_id", metavar="ID")
_FIELDS = [(field, field.option) for field in FIELDS.values() if field.option]
_LISTS = [pair for pair in _FIELDS if pair[0].kind in (*LISTS, *MAPPINGS)]
_SWITCHES = [pair for pair in _FIELDS if pair[0].kind is Kind.SWITCH]
_SINGLE = [pair for pair in _FIELDS if pair not in [*_LISTS, *_SWITCHES]]
_EDITS = [list_when_updated(*pair) for pair in _LISTS]
_REMOVABLE = [pair for pair in _FIELDS if pair[1].removal]
_SHOWN_ONCE = "The secret is shown this once; keep it safe."


def _create_options(function: Function) -> Function:
    return decorated(
        function,
        [
            *(option_of(*pair, required=pair[0].is_required) for pair in _SINGLE),
            *(list_when_created(*pair) for pair in _LISTS),
            *(option_of(*pair, is_flag=True, default=None) for pair in _SWITCHES),
        ],
    )


def _update_options(function: Function) -> Function:
    single = [option_of(*pair) for pair in _SINGLE if pair[0].name != "identifier"]
    others = [switch_or_removal(*pair) for pair in [*_REMOVABLE, *_SWITCHES]]
    return with_options(*_EDITS)(decorated(function, [*single, *others]))


@group.command("create")
@_create_options
@json_option
def create(as_json: bool, **options: Any) -> None:
    """Register an API; a secret for introspection is shown once."""
    fields = {name: value for name, value in options.items() if value not in (None, ())}
    for name in fields.keys() & {field.name for field, _ in _LISTS}:
        is_mapping = FIELDS[name].kind in MAPPINGS
        parse = api_values.parsed_entries
        fields[name] = parse(name, fields[name]) if is_mapping else list(fields[name])
    api, secret = apis.register(audit.operator(), fields)
    db.session.commit()
    _print(api, as_json, secret)
    print_notes(groups.without_members(api.groups))


@group.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List all APIs, oldest first."""
    rows = stored_apis.every()
    if as_json:
        print_json([view(api) for api in rows])
    else:
        print_table(
            ("IDENTIFIER", "NAME", "SCOPES", "GROUPS", "DISABLED", "REGISTERED"),
            [
                (
                    *(api.identifier, api.name, " ".join(api.scopes), ", ".join(api.groups)),
                    *(api.disabled, api.created_at),
                )
                for api in rows
            ],
        )


@group.command("show")
@api_argument
@json_option
def show(api_id: str, as_json: bool) -> None:
    """Show an API, and the applications that are registered for it."""
    api = find_api(api_id)
    clients = stored_apis.clients_of(api.identifier)
    if as_json:
        ids = [client.client_id for client in clients]
        print_json({**view(api), "clients": ids})
        return
    _print(api, as_json)
    print_line()
    print_table(
        ("CLIENT", "NAME", "SCOPES", "DEFAULT", "DISABLED"),
        [
            (
                *(client.client_id, client.name, _scopes(client.apis[api.identifier])),
                *(client.default_api == api.identifier, client.disabled_at is not None),
            )
            for client in clients
        ],
    )


@group.command("update")
@api_argument
@_update_options
@json_option
def update(api_id: str, as_json: bool, **options: Any) -> None:
    """Change an API, and print what changed."""
    lists = {option.field: edit for option in _EDITS if (edit := option.edit(options))}
    removed = [pair for pair in _REMOVABLE if options.pop(f"no_{pair[0].name}", False)]
    fields = {name: value for name, value in options.items() if value is not None}
    for field, option in removed:
        if field.name in fields:
            raise click.UsageError(f"{removal_flag(field, option)} contradicts {field.flag}.")
        fields[field.name] = None
    if not (fields or lists):
        raise click.UsageError("There is nothing to change: give an option.")
    api_id = find_api(api_id).api_id
    with _registered(api_id):
        api, outcome, secret = apis.change(audit.operator(), api_id, fields, lists=lists)
    db.session.commit()
    if as_json:
        print_json({**view(api), **_issued(secret), "changes": outcome.changes})
    else:
        _print(api, as_json, secret)
    added = outcome.changes.get("groups", {}).get("added", [])
    print_changes(outcome.changes, [*outcome.notes, *groups.without_members(added)], as_json)


@group.command("rotate-secret")
@api_argument
@json_option
def rotate_secret(api_id: str, as_json: bool) -> None:
    """Give an API a new secret for introspection, shown once; the old one stops working."""
    api = find_api(api_id, exactly=True)
    with _registered(api_id):
        api, secret = apis.rotate_secret(audit.operator(), api.api_id)
    db.session.commit()
    _print(api, as_json, secret)


@group.command("disable")
@api_argument
@json_option
def disable(api_id: str, as_json: bool) -> None:
    """Disable an API: nobody gets tokens for it, and those that exist are inactive."""
    api = find_api(api_id, exactly=True)
    with _registered(api_id):
        api = apis.disable(audit.operator(), api.api_id)
    db.session.commit()
    _print(api, as_json)


@group.command("enable")
@api_argument
@json_option
def enable(api_id: str, as_json: bool) -> None:
    """Enable an API again."""
    api = find_api(api_id)
    with _registered(api_id):
        api = apis.enable(audit.operator(), api.api_id)
    db.session.commit()
    _print(api, as_json)


@group.command("delete")
@api_argument
@yes_option
@json_option
def delete(api_id: str, yes: bool, as_json: bool) -> None:
    """Delete an API, and remove it from all applications."""
    api = find_api(api_id, exactly=True)
    identifier = api.identifier
    confirm(f"Delete the API {api.name} ({identifier})?", yes)
    with _registered(api_id):
        apis.delete(audit.operator(), api.api_id)
    db.session.commit()
    if as_json:
        print_json({"identifier": identifier, "deleted": True})
    else:
        print_line(f"Deleted {identifier}.")


def find_api(api_id: str, *, exactly: bool = False) -> Api:
    """Return the API with this identifier, ID or name, or the only one that begins with it.

    `exactly`: accept only an identifier or ID. Raises `Failure`.
    """
    api = only(
        stored_apis.matching(api_id),
        api_id,
        lambda api: f"{api.identifier} ({api.name})",
        "the identifier",
        exactly=exactly,
    )
    if api is None:
        raise unknown("api", api_id)
    return api


@contextmanager
def _registered(api_id: str) -> Iterator[None]:
    try:
        yield
    except LookupError:  # deleted at this moment
        raise unknown("api", api_id) from None


def view(api: Api) -> dict[str, Any]:
    """Return an API as commands print it, without its secret."""
    return {**apis.described(api), "created_at": iso(api.created_at)}


def _issued(secret: str) -> dict[str, str]:
    return {"secret": secret} if secret else {}


def _scopes(names: tuple[str, ...] | None) -> str:
    return "(all)" if names is None else " ".join(names)


def _print(api: Api, as_json: bool, secret: str = "") -> None:
    fields = {**view(api), **_issued(secret)}
    if as_json:
        print_json(fields)
        return
    for name in fields.keys() & FIELDS.keys():
        if FIELDS[name].kind in MAPPINGS:
            fields[name] = api_values.entries_of(name, fields[name])
    fields["created_at"] = api.created_at
    print_record(fields.items())
    if secret:
        print_line(_SHOWN_ONCE)
