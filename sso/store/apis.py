"""Statements about APIs, and the APIs that a client may use.

A change of an API also changes the clients that are registered for it (see `touch`). So
requests of a client find its APIs in memory, as long as its row is the same.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, bindparam, delete, select

from sso import clock
from sso.database import dialects
from sso.extensions import db
from sso.flow import resources
from sso.flow.resources import Apis
from sso.models import Api, Client
from sso.store import lists, prepared
from sso.store.clients import RegisteredClient
from sso.store.lists import Match, Order, Slice

_TABLE, _CLIENTS = prepared.table(Api), prepared.table(Client)


@dataclass(frozen=True)
class _Row:
    identifier: str
    name: str
    scopes: dict[str, str]
    translations: dict[str, dict[str, str]]
    groups: list[str]
    includes_groups: bool
    access_token_lifetime: int | None


_FIND_ENABLED = select(*(_TABLE.c[field.name] for field in fields(_Row))).where(
    _TABLE.c.identifier == bindparam("identifier"), _TABLE.c.disabled_at.is_(None)
)
_MOST_CACHED = 1000  # clients
_cache: dict[tuple[str, datetime, tuple[str, ...]], Apis] = {}


def of_client(connection: Connection, client: RegisteredClient) -> Apis:
    """Return the enabled APIs that a client may use, in the order of its registration."""
    entries = client.client_metadata.get("apis")
    if not entries:
        return resources.NO_APIS
    key = (client.client_id, client.updated_at, tuple(entries))
    apis = _cache.get(key)
    if apis is None:
        if len(_cache) >= _MOST_CACHED:
            _cache.clear()
        apis = _cache[key] = _read(connection, client)
    return apis


def _read(connection: Connection, client: RegisteredClient) -> Apis:
    apis = {}
    for identifier, names in client.apis.items():
        row: Any = prepared.first(connection, _FIND_ENABLED, {"identifier": identifier})
        if row is not None:
            scopes = row["scopes"]
            if names is not None:
                scopes = {name: text for name, text in scopes.items() if name in names}
            groups = frozenset(row["groups"])
            apis[identifier] = resources.Api(**{**row, "scopes": scopes, "groups": groups})
    return apis


def scopes_of(connection: Connection, identifier: str) -> frozenset[str]:
    """Return the names of all scopes of an API; none if it is disabled."""
    row = prepared.first(connection, _FIND_ENABLED, {"identifier": identifier})
    return frozenset(row["scopes"]) if row else frozenset()


def find(identifier: str) -> Api | None:
    """Return an API by its identifier, disabled or not."""
    return db.session.scalar(select(Api).where(Api.identifier == identifier))


def matching(text: str) -> Match[Api]:
    """Return the API with this identifier or id; else those whose name or identifier begins so."""
    statement = select(Api).where(
        (Api.identifier == resources.normalized(text)) | (Api.api_id == text)
    )
    if api := db.session.scalar(statement):
        return Match([api], is_exact=True)
    return lists.named(every(), text, lambda api: api.identifier, lambda api: api.name)


def every() -> Sequence[Api]:
    """Return all APIs, oldest first."""
    return db.session.scalars(select(Api).order_by(Api.created_at, Api.api_id)).all()


def with_identifiers(identifiers: Collection[str]) -> dict[str, Api]:
    """Return these APIs by identifier."""
    rows = db.session.scalars(select(Api).where(Api.identifier.in_(list(identifiers))))
    return {api.identifier: api for api in rows}


NEWEST_FIRST = Order((Api.created_at, Api.api_id), is_descending=True)


def page_of(cursor: str | None) -> Slice[Api]:
    """Return one page of all APIs. Raises `BadCursor`."""
    return NEWEST_FIRST.page(select(Api), cursor)


def add(api: Api) -> None:
    db.session.add(api)
    db.session.flush()


def lock(api_id: str) -> Api | None:
    """Lock an API, disabled or not, until the transaction ends; return it.

    Call it before clients, users and grants are locked.
    """
    return dialects.lock(Api, Api.name, Api.api_id == api_id)


def share(identifiers: Collection[str]) -> dict[str, Api]:
    """Return these APIs by identifier. Nobody changes them until the transaction ends.

    Call it before clients, users and grants are locked.
    """
    statement = select(Api).where(Api.identifier.in_(list(identifiers))).order_by(Api.api_id)
    locked = statement.with_for_update(read=True).execution_options(populate_existing=True)
    return {api.identifier: api for api in db.session.scalars(locked)}


def remove(api: Api) -> None:
    db.session.execute(delete(Api).where(Api.api_id == api.api_id))


def clients_listing(identifier: str) -> list[Client]:
    """Return the clients that may request tokens for an API, and those that act as it."""
    mentioned = _CLIENTS.c.client_metadata.contains(identifier, autoescape=True)
    clients = db.session.scalars(select(Client).where(mentioned))
    return [client for client in clients if client.lists(identifier)]


def clients_of(identifier: str) -> list[Client]:
    """Return the clients that are registered for an API, by name."""
    registered = [client for client in clients_listing(identifier) if identifier in client.apis]
    return sorted(registered, key=lambda client: (client.name.casefold(), client.client_id))


def touch(client: Client) -> None:
    """Note that an API of a client has changed, so that no request uses what it was before."""
    client.updated_at = max(clock.now(), client.updated_at + timedelta(microseconds=1))
