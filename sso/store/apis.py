"""Statements about APIs, and the APIs that a client may use.

A change of an API also changes the clients that are registered for it (see `touch`). So the APIs of
a client can be cached for as long as its row is unchanged.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any

from authlib.integrations.sqla_oauth2.client_mixin import json_dumps
from sqlalchemy import ColumnElement, Connection, bindparam, delete, select

from sso import clock, context
from sso.crypto import secrets
from sso.database import dialects
from sso.extensions import db
from sso.flow import own_apis, resources
from sso.flow.refusals import Reason
from sso.flow.resources import Apis
from sso.models import Api, Client, FormerApi
from sso.models.apis import ID_PREFIX
from sso.store import clients, lists, prepared
from sso.store.clients import RegisteredClient
from sso.store.lists import Match

_TABLE, _CLIENTS = prepared.table(Api), prepared.table(Client)


@dataclass(frozen=True)
class _Row:
    identifier: str
    name: str
    scopes: dict[str, str]
    translations: dict[str, dict[str, str]]
    groups: list[str]
    includes_groups: bool
    roles: list[str]
    roles_shape: str
    access_token_lifetime: int | None
    created_at: datetime


_FIND_ENABLED = select(*(_TABLE.c[field.name] for field in fields(_Row))).where(
    _TABLE.c.identifier == bindparam("identifier"), _TABLE.c.disabled_at.is_(None)
)
_FOR_AGENTS = (
    select(*(_TABLE.c[field.name] for field in fields(_Row)))
    .where(_TABLE.c.agents, _TABLE.c.disabled_at.is_(None))
    .order_by(_TABLE.c.created_at, _TABLE.c.api_id)
)
_MOST_CACHED = 20_000  # scopes, of all clients together: some 20 MB with their translations
_cache: dict[tuple[str, datetime, tuple[str, ...]], Apis] = {}


def of_client(connection: Connection, client: RegisteredClient) -> Apis:
    """Return the enabled APIs that a client may use, in the order of its registration."""
    if client.is_agent:
        return _of_agents(connection)
    entries = client.client_metadata.get("apis")
    if not entries:
        return resources.NO_APIS
    key = (client.client_id, client.updated_at, tuple(entries))
    apis = _cache.get(key)
    if apis is None:
        if sum(map(_size, list(_cache.values()))) >= _MOST_CACHED:
            _cache.clear()
        apis = _cache[key] = _read(connection, client)
    return apis


def _of_agents(connection: Connection) -> Apis:
    """Return the enabled APIs that clients may use which nobody registered, oldest first.

    It is read each time: there is no registration to touch when an API changes.
    """
    rows = connection.execute(_FOR_AGENTS).mappings()
    return {
        row["identifier"]: resources.Api(**{**row, "groups": frozenset(row["groups"])})
        for row in rows
    }


def _size(apis: Apis) -> int:
    return 10 + sum(len(api.names) + len(api.roles) for api in apis.values())


def _read(connection: Connection, client: RegisteredClient) -> Apis:
    apis, own = {}, own_apis.every(context.settings().base_url)
    for identifier, names in client.apis.items():
        api = own.get(identifier) or _find_enabled(connection, identifier)
        if api is not None:
            scopes = api.scopes
            if names is not None:
                scopes = {name: text for name, text in scopes.items() if name in names}
            apis[identifier] = replace(api, scopes=scopes)
    return apis


def scopes_of(connection: Connection, identifier: str) -> frozenset[str]:
    """Return the names of all scopes of an API; none if it is disabled."""
    row = prepared.first(connection, _FIND_ENABLED, {"identifier": identifier})
    return frozenset(row["scopes"]) if row else frozenset()


def _find_enabled(connection: Connection, identifier: str) -> resources.Api | None:
    row: Any = prepared.first(connection, _FIND_ENABLED, {"identifier": identifier})
    return resources.Api(**{**row, "groups": frozenset(row["groups"])}) if row else None


@dataclass(frozen=True)
class ResourceServer:
    """An enabled API that has credentials for introspection."""

    api_id: str
    identifier: str
    includes_groups: bool
    roles: list[str]
    roles_shape: str
    secret_digest: str


_FIND_RESOURCE_SERVER = select(*prepared.columns(ResourceServer, _TABLE)).where(
    _TABLE.c.api_id == bindparam("api_id"),
    _TABLE.c.disabled_at.is_(None),
    _TABLE.c.secret_digest.is_not(None),
)
_FIND_CREDENTIALS = select(_TABLE.c.secret_digest, _TABLE.c.disabled_at).where(
    _TABLE.c.api_id == bindparam("api_id")
)


def is_api_id(text: str) -> bool:
    """Return whether a text has the form of an API's id."""
    return text.startswith(ID_PREFIX)


def find_resource_server(connection: Connection, api_id: str) -> ResourceServer | None:
    """Return the API with this id if it may introspect."""
    row = prepared.first(connection, _FIND_RESOURCE_SERVER, {"api_id": api_id})
    return prepared.record(ResourceServer, row) if row else None


def why_refused(connection: Connection, api_id: str, secret: str) -> Reason | None:
    """Return why an API with this secret is refused; `None` if there is no such API."""
    row = prepared.first(connection, _FIND_CREDENTIALS, {"api_id": api_id})
    if row is None:
        return None
    if row["disabled_at"]:
        return Reason.API_DISABLED
    is_right = secrets.matches(secret, row["secret_digest"] or "")
    return Reason.API_ELSEWHERE if is_right else Reason.WRONG_SECRET_OF_API


def find(identifier: str) -> Api | None:
    """Return an API by its identifier, disabled or not."""
    return db.session.scalar(select(Api).where(Api.identifier == identifier))


def with_id(api_id: str) -> Api | None:
    """Return an API by its own id, disabled or not."""
    return db.session.get(Api, api_id)


def matching(text: str) -> Match[Api]:
    """Return the API with this identifier or id, or those whose name or identifier begins so."""
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
    return [api for api in naming(group) if group in api.groups]


def naming(group: str) -> list[Api]:
    """Return the APIs that a group decides about, also by a role, in the order of locking."""
    return sorted((api for api in every() if group in api.named_groups), key=lambda api: api.api_id)


def with_identifiers(identifiers: Collection[str]) -> dict[str, Api]:
    """Return these APIs by identifier."""
    rows = db.session.scalars(select(Api).where(Api.identifier.in_(list(identifiers))))
    return {api.identifier: api for api in rows}


def having(text: str) -> list[Api]:
    """Return the APIs whose name, identifier or scopes contain this text, by name.

    It reads all APIs: few servers have more than some dozens.
    """
    sought = text.casefold()
    apis = [
        api
        for api in every()
        if any(sought in part.casefold() for part in (api.name, api.identifier, *api.scopes))
    ]
    return sorted(apis, key=lambda api: (api.name.casefold(), api.identifier))


def add(api: Api) -> None:
    """Insert an API. Raises `IntegrityError`."""
    db.session.add(api)
    db.session.flush()


def lock(api_id: str) -> Api | None:
    """Lock an API, disabled or not, until the transaction ends; return it.

    Call it before clients, users and grants are locked.
    """
    return dialects.lock(Api, Api.name, Api.api_id == api_id)


def share(identifiers: Collection[str]) -> dict[str, Api]:
    """Return these APIs by identifier, and keep them unchanged until the transaction ends.

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
    """Disable an API as of now, unless it is disabled; or enable it. Only changes the object."""
    api.disabled_at = (api.disabled_at or clock.now()) if is_disabled else None


def remove(api: Api) -> None:
    """Delete an API, and remember its identifier."""
    db.session.execute(delete(Api).where(Api.api_id == api.api_id))
    dialects.insert_or_ignore(FormerApi, [{"identifier": api.identifier}])


def take_former(identifier: str) -> bool:
    """Return whether a deleted API had this identifier, and forget that."""
    former = delete(FormerApi).where(FormerApi.identifier == identifier)
    return db.session.scalar(former.returning(FormerApi.identifier)) is not None


def clients_listing(identifier: str) -> list[Client]:
    """Return the clients that may request tokens for an API, and those that act as it."""
    rows = db.session.scalars(select(Client).where(_mentions(identifier)))
    return [client for client in rows if client.lists(identifier)]


def lock_clients_listing(api: Api) -> list[Client]:
    """Lock the clients that list an API, which is locked already; return their current rows."""
    ids = db.session.scalars(select(Client.client_id).where(_mentions(api.identifier)))
    return [client for client in clients.lock_all(ids) if client.lists(api.identifier)]


def _mentions(identifier: str) -> ColumnElement[bool]:
    return _CLIENTS.c.client_metadata.contains(identifier, autoescape=True)


def clients_of(identifier: str) -> list[Client]:
    """Return the clients that are registered for an API, by name."""
    registered = [row for row in clients_listing(identifier) if identifier in row.apis]
    return sorted(registered, key=lambda client: (client.name.casefold(), client.client_id))


def touch(rows: Collection[Client], metadata: Mapping[str, Any] | None = None) -> None:
    """Mark clients as changed because one of their APIs has, so that cached APIs are not used.

    `metadata`: the metadata that they get, by id. The objects expire.
    """
    now, moment = clock.now(), timedelta(microseconds=1)
    clients.change_all(
        [
            {
                "client_id": client.client_id,
                "updated_at": max(now, client.updated_at + moment),
                **(
                    {"_client_metadata": json_dumps(metadata[client.client_id])} if metadata else {}
                ),
            }
            for client in rows
        ]
    )
    for client in rows:
        db.session.expire(client)
