"""The file of `flask export` and `flask apply`: clients and users, with their groups, as TOML.

Secrets are never in it: a client's secret and a user's first password stand there by reference,
as `env:NAME` or `file:PATH`. What an entry leaves out stays as it is.
"""

import json
import os
import re
import secrets
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import click
import tomli_w
from flask.cli import with_appcontext

from sso import audit
from sso.audit.events import Event
from sso.cli.commands import Command, Failure, json_option
from sso.cli.output import print_json
from sso.config.auth_methods import NO_AUTH_METHOD
from sso.extensions import db
from sso.process.program import COMMAND
from sso.services import accounts, clients
from sso.services.checks import RegistrationError, logo
from sso.services.clients import METADATA as METADATA
from sso.store import clients as stored_clients
from sso.store import users

FORMAT = 1
HEADER = f"""\
# Clients, users and their groups, for: {COMMAND} apply FILE
# Secrets are not in it. A new client needs secret = "env:NAME" or "file:PATH", of 32 random
# characters or more, or public = true; a new user may have initial_password = "env:NAME" or
# "file:PATH", or the password_hash of another system. A logo may also be a path, relative to this
# file.

"""
_CLIENT: Mapping[str, type] = {
    "client_id": str, **METADATA, "first_party": bool, "require_pkce": bool, "require_mfa": bool,
    "disabled": bool, "secret": str, "public": bool, "logo": str,
}  # fmt: skip
_USER: Mapping[str, type] = {
    "id": str, "email": str, "name": str, "email_verified": bool, "groups": list, "claims": dict,
    "disabled": bool, "initial_password": str, "password_hash": str,
}  # fmt: skip
# By an empty text.
_REMOVABLE = {
    "backchannel_logout_uri", "home_url", "profile", "jwks_uri", "token_endpoint_auth_signing_alg",
    "request_object_signing_alg", "authorization_signed_response_alg",
}  # fmt: skip
KINDS = {"clients": (_CLIENT, "client_id"), "users": (_USER, "email")}
_CLIENT_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._~-]{0,47}")
_WORDS = {str: "a text", bool: "true or false", list: "a list", dict: "a table"}

Entry = dict[str, Any]
file_type = click.Path(path_type=Path, dir_okay=False)


def document() -> dict[str, Any]:
    """Everything that the file holds."""
    return {
        "format": FORMAT,
        "clients": [_with_logo(clients.described(row)) for row in stored_clients.every()],
        "users": [accounts.described(row) for row in users.every()],
    }


def _with_logo(client: Entry) -> Entry:
    found = stored_clients.find_logo(db.session.connection(), client.get("logo", ""))
    return {**client, "logo": found.data_url} if found else client


def as_toml(content: Mapping[str, Any]) -> str:
    return HEADER + tomli_w.dumps(content)


@click.command("export", cls=Command)
@click.argument("path", metavar="[FILE]", type=file_type, required=False)
@json_option
@with_appcontext
def export_command(path: Path | None, as_json: bool) -> None:
    """Write clients, users and groups to FILE (TOML, mode 0600), or print them.

    No secret, password or digest is in it. With --json it is printed as JSON, which apply takes
    too, from a file whose name ends in .json.
    """
    content = document()
    audit.event(Event.EXPORTED, file=path)
    if path:
        try:
            _write(path, as_toml(content))
        except OSError as error:
            raise Failure(f"{path} cannot be written: {error.strerror}") from None
    if as_json:
        print_json(content)
    elif not path:
        click.echo(as_toml(content), nl=False)


def read(path: Path) -> dict[str, list[Entry]]:
    """The entries by kind; a kind that the file doesn't name is not there.

    TOML, or JSON when the file's name ends so. Raises `RegistrationError` with every error.
    """
    try:
        text = path.read_text(encoding="utf-8")
        found = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise RegistrationError([f"{path} cannot be read: {error.strerror}"]) from None
    except (ValueError, RecursionError) as error:
        raise RegistrationError([f"{path} cannot be understood: {error}"]) from None
    if not isinstance(found, dict) or found.pop("format", None) != FORMAT:
        raise RegistrationError([f"{path} has to begin with: format = {FORMAT}"])
    errors = [f"there is no {name!r}" for name in found if name not in KINDS]
    for kind in KINDS.keys() & found.keys():
        errors += _errors_of_kind(kind, found[kind])
    if errors:
        raise RegistrationError(errors)
    for entry in found.get("clients", []):
        if entry.get("public"):
            entry["token_endpoint_auth_method"] = NO_AUTH_METHOD
        for name in _REMOVABLE & entry.keys():
            entry[name] = entry[name] or None
        try:
            if "logo" in entry:
                entry["logo"] = logo(entry["logo"], path.parent)
        except RegistrationError as error:
            errors += [f"clients {entry['client_id']}: {one}" for one in error.errors]
    if errors:
        raise RegistrationError(errors)
    return found


def _errors_of_kind(kind: str, entries: Any) -> list[str]:
    if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
        return [f"{kind} are not a list of tables"]
    types, key = KINDS[kind]
    errors = []
    seen: set[str] = set()
    for number, entry in enumerate(entries, 1):
        name = str(entry.get(key, "")).lower() if kind == "users" else str(entry.get(key, ""))
        label = f"{kind} {name or number}"
        errors += [f"{label}: {error}" for error in _errors_of_entry(entry, types)]
        if not name:
            errors.append(f"{label}: {key} is missing")
        elif name in seen:
            errors.append(f"{label}: is there twice")
        seen.add(name)
    return errors


def _errors_of_entry(entry: Entry, types: Mapping[str, type]) -> Iterable[str]:
    for name, value in entry.items():
        if name not in types:
            yield f"{name!r} is unknown; known: {', '.join(types)}"
        elif not isinstance(value, types[name]):
            yield f"{name} is not {_WORDS[types[name]]}"
        elif isinstance(value, list) and not all(isinstance(one, str) for one in value):
            yield f"{name} is no list of texts"
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


def _write(path: Path, text: str) -> None:
    """Whole or not at all; it holds people's names and addresses."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
