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


def find(identifier: str) -> Api | None:
    """Return an API by its identifier, disabled or not."""
    return db.session.scalar(select(Api).where(Api.identifier == identifier))


def with_id(api_id: str) -> Api | None:
    """Return an API by its own id, disabled or not."""
    return db.session.get(Api, api_id)


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


def requiring(group: str) -> list[Api]:
    """Return the APIs that only members of a group may use, in the order of locking."""
    return sorted((api for api in every() if group in api.groups), key=lambda api: api.api_id)


def with_identifiers(identifiers: Collection[str]) -> dict[str, Api]:
    """Return these APIs by identifier."""
    rows = db.session.scalars(select(Api).where(Api.identifier.in_(list(identifiers))))
    return {api.identifier: api for api in rows}


def having(text: str) -> list[Api]:
    """Return the APIs whose name, identifier or scopes have this text, by name."""
    sought = text.casefold()
    apis = [
        api
        for api in every()
        if any(sought in part.casefold() for part in (api.name, api.identifier, *api.scopes))
    ]
    return sorted(apis, key=lambda api: (api.name.casefold(), api.identifier))


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


def lock_all(identifiers: Collection[str]) -> None:
    """Lock these APIs until the transaction ends, in a fixed order; see `lock`."""
    ids = select(Api.api_id).where(Api.identifier.in_(list(identifiers))).order_by(Api.api_id)
    for api_id in db.session.scalars(ids).all():
        lock(api_id)


def detached(identifiers: Collection[str]) -> dict[str, Api]:
    """Return these APIs by identifier, as objects outside any session."""
    rows = with_identifiers(identifiers)
    for api in rows.values():
        db.session.expunge(api)
    return rows


def set_disabled(api: Api, is_disabled: bool) -> None:
    """Disable an API, since now unless it already is; or enable it. Only changes the object."""
    api.disabled_at = (api.disabled_at or clock.now()) if is_disabled else None


def remove(api: Api) -> None:
    db.session.execute(delete(Api).where(Api.api_id == api.api_id))


def clients_of(identifier: str) -> list[Client]:
    """Return the clients that are registered for an API, by name."""
    mentioned = _CLIENTS.c.client_metadata.contains(identifier, autoescape=True)
    clients = db.session.scalars(select(Client).where(mentioned))
    registered = [client for client in clients if identifier in client.apis]
    return sorted(registered, key=lambda client: (client.name.casefold(), client.client_id))


def touch(client: Client) -> None:
    """Note that an API of a client has changed, so that no request uses what it was before."""
    client.updated_at = max(clock.now(), client.updated_at + timedelta(microseconds=1))
