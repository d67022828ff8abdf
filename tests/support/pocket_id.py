"""Databases of Pocket ID, as its version 2 has them, cut down to what is looked at."""

import json
import re
from pathlib import Path
from typing import Any

import bcrypt
import psycopg

from tests.support import foreign_databases

DANA = "3f1d2c4e-1111-4000-8000-000000000001"
STAFF = "9f1d2c4e-2222-4000-8000-000000000002"
SECRET = "v6mUu3Dq0vXn9hQ7rT2yW8zB4cE1fG5k"  # 32 letters and digits, as Pocket ID makes them
SECRET_HASH = bcrypt.hashpw(SECRET.encode(), bcrypt.gensalt(4)).decode()
TABLES = {
    "users": "id TEXT, username TEXT, email TEXT, email_verified BOOLEAN, first_name TEXT, "
             "last_name TEXT, display_name TEXT, is_admin NUMERIC, locale TEXT, ldap_id TEXT, "
             "disabled BOOLEAN",
    "user_groups": "id TEXT, name TEXT, friendly_name TEXT",
    "user_groups_users": "user_id TEXT, user_group_id TEXT",
    "oidc_clients": "id TEXT, name TEXT, secret TEXT, callback_urls BLOB, "
                    "logout_callback_urls BLOB, is_public BOOLEAN, pkce_enabled BOOLEAN, "
                    "credentials BLOB, launch_url TEXT, requires_reauthentication BOOLEAN, "
                    "is_group_restricted BOOLEAN, skip_consent BOOLEAN, image_type TEXT, "
                    "is_metadata_document BOOLEAN",
    "oidc_clients_allowed_user_groups": "oidc_client_id TEXT, user_group_id TEXT",
    "custom_claims": "key TEXT, value TEXT, user_id TEXT, user_group_id TEXT",
    "webauthn_credentials": "name TEXT, credential_id TEXT, public_key BLOB, transport BLOB, "
                            "user_id TEXT",
    "user_authorized_oidc_clients": "scope TEXT, user_id TEXT, client_id TEXT",
    "app_config_variables": "key TEXT, value TEXT",
    "api_keys": "id TEXT",
}  # fmt: skip


def user(name: str, user_id: str, **more: Any) -> dict[str, Any]:
    return {"id": user_id, "username": name, "email": f"{name}@example.com", "email_verified": 1,
            "first_name": name.capitalize(), "last_name": "Doe", "is_admin": 0, "disabled": 0,
            **more}  # fmt: skip


def client(client_id: str, *uris: str, **more: Any) -> dict[str, Any]:
    listed = [*uris] or [f"https://{client_id}.example.com/cb"]
    return {"id": client_id, "name": f"The {client_id}", "secret": SECRET_HASH,
            "callback_urls": json.dumps(listed).encode(), "logout_callback_urls": b"null",
            "is_public": 0, "pkce_enabled": 0, "credentials": b"{}", "is_group_restricted": 0,
            "skip_consent": 1, **more}  # fmt: skip


def write(path: Path, without: tuple[str, ...] = (), /, **rows: list[dict[str, Any]]) -> Path:
    """Write a database with these rows of tables; `without`: tables, or columns as TABLE.NAME."""
    return foreign_databases.write(path, TABLES, rows, without)


_OF_POSTGRESQL = {
    **dict.fromkeys(("users.id", "user_groups.id"), "UUID"),
    **dict.fromkeys(("user_groups_users.user_id", "webauthn_credentials.user_id"), "UUID"),
    **dict.fromkeys(("custom_claims.user_id", "user_authorized_oidc_clients.user_id"), "UUID"),
    **dict.fromkeys(("webauthn_credentials.credential_id",), "BYTEA"),
    **dict.fromkeys(("webauthn_credentials.public_key",), "BYTEA"),
    "user_authorized_oidc_clients.scope": "JSONB",
    "users.is_admin": "BOOLEAN",
}


def write_postgresql(url: str, **rows: list[dict[str, Any]]) -> str:
    """Write the same into an empty database of PostgreSQL, with its types; gives its URL."""
    address = url.replace("+psycopg", "")
    with psycopg.connect(address) as connection:
        for table, columns in TABLES.items():
            types = {}
            for column in columns.split(", "):
                name, kind = column.split()
                kind = {"BLOB": "JSONB"}.get(kind, kind)
                types[name] = _OF_POSTGRESQL.get(f"{table}.{name}", kind)
            listed = ", ".join(f"{name} {kind}" for name, kind in types.items())
            connection.execute(f"CREATE TABLE {table} ({listed})".encode())
            for entry in rows.get(table, ()):
                values = {name: _value(value, types[name]) for name, value in entry.items()}
                names, marks = ", ".join(values), ", ".join(f"%({name})s" for name in values)
                statement = f"INSERT INTO {table} ({names}) VALUES ({marks})"
                connection.execute(statement.encode(), values)
    return address


def _value(value: Any, kind: str) -> Any:
    if kind == "BOOLEAN":
        return None if value is None else bool(value)
    if kind == "JSONB" and isinstance(value, str):  # of newer versions
        return json.dumps(re.split(" +", value))
    if kind == "JSONB" and value is not None:
        return value.decode()
    return value.encode() if kind == "BYTEA" and isinstance(value, str) else value
