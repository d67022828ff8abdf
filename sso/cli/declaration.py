"""The file of `flask export` and `flask apply`: clients and users, with their groups, as TOML.

Secrets are never in it: a client's secret and a user's first password stand there by reference,
as `env:NAME` or `file:PATH`. What an entry leaves out stays as it is.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import tomli_w

from sso.cli.registration import RegistrationError
from sso.models import Client, User

FORMAT = 1
HEADER = """\
# Clients, users and their groups, for: flask apply FILE
# Secrets are not in it. A new client needs secret = "env:NAME" or "file:PATH", of 32 random
# characters or more; a new user may have initial_password = "env:NAME" or "file:PATH".

"""
# RFC 7591 names where there are such; what they have to be.
METADATA: Mapping[str, type] = {
    "client_name": str,
    "redirect_uris": list,
    "post_logout_redirect_uris": list,
    "backchannel_logout_uri": str,
    "scope": str,
    "token_endpoint_auth_method": str,
    "id_token_signed_response_alg": str,
    "id_token_claims": str,
    "groups": list,
}
# Metadata that no one chooses.
FIXED = frozenset({"grant_types", "response_types"})
_CLIENT: Mapping[str, type] = {
    "client_id": str, **METADATA, "first_party": bool, "require_pkce": bool, "require_mfa": bool,
    "disabled": bool, "secret": str,
}  # fmt: skip
_USER: Mapping[str, type] = {
    "id": str, "email": str, "name": str, "email_verified": bool, "groups": list, "claims": dict,
    "disabled": bool, "initial_password": str,
}  # fmt: skip
KINDS = {"clients": (_CLIENT, "client_id"), "users": (_USER, "email")}
_CLIENT_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._~-]{0,47}")
_WORDS = {str: "a text", bool: "true or false", list: "a list", dict: "a table"}

Entry = dict[str, Any]


def of_client(row: Client) -> Entry:
    """A client as the file has it."""
    metadata = {k: v for k, v in row.client_metadata.items() if k not in FIXED}
    return {
        "client_id": row.client_id,
        **metadata,
        "first_party": row.first_party,
        "require_pkce": row.require_pkce,
        "require_mfa": row.require_mfa,
        "disabled": row.disabled_at is not None,
    }


def of_user(row: User) -> Entry:
    """A user as the file has it."""
    return {
        "id": str(row.id),
        "email": row.email,
        "name": row.name,
        "email_verified": row.email_verified,
        "groups": row.groups,
        "disabled": row.disabled_at is not None,
        "claims": row.claims,
    }


def document(clients: Iterable[Client], users: Iterable[User]) -> dict[str, Any]:
    """Everything that the file holds."""
    return {
        "format": FORMAT,
        "clients": [of_client(row) for row in clients],
        "users": [of_user(row) for row in users],
    }


def as_toml(content: Mapping[str, Any]) -> str:
    return HEADER + tomli_w.dumps(content)


def read(path: Path) -> dict[str, list[Entry]]:
    """The entries by kind; a kind that the file doesn't name is not there.

    TOML, or JSON when the file's name ends so. Raises `RegistrationError` with every fault.
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
    faults = [f"there is no {name!r}" for name in found if name not in KINDS]
    for kind in KINDS.keys() & found.keys():
        faults += _faults_of_kind(kind, found[kind])
    if faults:
        raise RegistrationError(faults)
    return found


def _faults_of_kind(kind: str, entries: Any) -> list[str]:
    if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
        return [f"{kind} are not a list of tables"]
    types, key = KINDS[kind]
    faults = []
    seen: set[str] = set()
    for number, entry in enumerate(entries, 1):
        name = str(entry.get(key, "")).lower() if kind == "users" else str(entry.get(key, ""))
        label = f"{kind} {name or number}"
        faults += [f"{label}: {fault}" for fault in _faults_of_entry(entry, types)]
        if not name:
            faults.append(f"{label}: {key} is missing")
        elif name in seen:
            faults.append(f"{label}: is there twice")
        seen.add(name)
    return faults


def _faults_of_entry(entry: Entry, types: Mapping[str, type]) -> Iterable[str]:
    for name, value in entry.items():
        if name not in types:
            yield f"{name!r} is unknown; known: {', '.join(types)}"
        elif not isinstance(value, types[name]):
            yield f"{name} is not {_WORDS[types[name]]}"
        elif isinstance(value, list) and not all(isinstance(one, str) for one in value):
            yield f"{name} is no list of texts"
    client_id, user_id = entry.get("client_id"), entry.get("id")
    if isinstance(client_id, str) and client_id and not _CLIENT_ID.fullmatch(client_id):
        yield "client_id is not 1 to 48 letters, digits, or any of . _ ~ -"
    if isinstance(user_id, str):
        try:
            UUID(user_id)
        except ValueError:
            yield "id is no UUID"
