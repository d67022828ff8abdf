"""Statements about clients: their registrations, logos, and lists for administrators.

An approval locks the client's row FOR SHARE. PostgreSQL grants such locks even while an update
waits, so that a stream of approvals would keep an operator from disabling the client. Therefore a
change of a client takes an advisory lock first: these are granted in the order of the requests.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any

from authlib.oauth2.rfc6749 import ClientMixin
from sqlalchemy import (
    Connection,
    Select,
    bindparam,
    delete,
    insert,
    literal,
    select,
    update,
)

from sso import clock, database
from sso.config import urls
from sso.config.images import Image
from sso.database import dialects
from sso.extensions import db
from sso.flow import own_claims
from sso.flow.decision import Policy
from sso.flow.refusals import Reason
from sso.models import Client, ClientLogo, ClientOrigin, PushedRequest
from sso.models.clients import HAS_OWN_CLAIMS, HAS_SUBJECT_ATTRIBUTE, ClientRegistration
from sso.store import lists, prepared
from sso.store.lists import Match, Order, rows_with, write_one


def find_logo(connection: Connection, digest: str) -> Image | None:
    """Return a logo by its digest."""
    logos = select(ClientLogo.media_type, ClientLogo.data).where(ClientLogo.digest == digest)
    row = connection.execute(logos.limit(1)).first()
    return Image(*row) if row else None


_LOGOS = prepared.table(ClientLogo)
_DIGEST = select(_LOGOS.c.digest).where(_LOGOS.c.client_id == bindparam("client_id"))


def logo_digest(client_id: str) -> str | None:
    """Return the digest of a client's logo, if it has one."""
    with database.reading() as connection:
        row = prepared.first(connection, _DIGEST, {"client_id": client_id})
    return row["digest"] if row else None


def with_own_claims() -> Sequence[Client]:
    """Return the clients that have claims of their own."""
    return db.session.scalars(select(Client).where(HAS_OWN_CLAIMS)).all()


def with_subject_attribute() -> Sequence[Client]:
    """Return the clients that know people by an attribute."""
    return db.session.scalars(select(Client).where(HAS_SUBJECT_ATTRIBUTE)).all()


_MOST_NAMES = 500
_CLIENTS = prepared.table(Client)
_OWN_CLAIMS = select(_CLIENTS.c.client_metadata).where(
    HAS_OWN_CLAIMS, _CLIENTS.c.disabled_at.is_(None)
)


def names_of_own_claims() -> list[str]:
    """Return the names of the own claims of all enabled clients, at most 500, sorted."""
    with database.reading() as connection:
        rows = connection.execute(_OWN_CLAIMS.order_by(_CLIENTS.c.client_id).limit(_MOST_NAMES))
        entries = [json.loads(text).get("own_claims", []) for (text,) in rows]
    names = {name for listed in entries for name in own_claims.names_of(listed)}
    return sorted(names)[:_MOST_NAMES]


def replace_logo(client_id: str, logo: Image | None) -> None:
    """Give a client another logo; `NO_IMAGE` removes it. The caller has locked the client."""
    if logo is None:
        return
    db.session.execute(delete(ClientLogo).where(ClientLogo.client_id == client_id))
    if logo.data:
        values = {"media_type": logo.media_type, "data": logo.data, "digest": logo.digest}
        db.session.execute(insert(ClientLogo).values(client_id=client_id, **values))


def find(client_id: str) -> Client | None:
    """Return a client, disabled or not."""
    return db.session.scalar(select(Client).where(Client.client_id == client_id))


def detached(client_ids: Collection[str]) -> dict[str, Client]:
    """Return these clients by id, as objects outside any session."""
    clients = {}
    for (client,) in rows_with(select(Client), Client.client_id, client_ids):
        db.session.expunge(client)
        clients[client.client_id] = client
    return clients


def ids() -> list[str]:
    """Return the ids of all clients."""
    return list(db.session.scalars(select(Client.client_id)))


def matching(text: str) -> Match[Client]:
    """Return the clients that an operator may mean: by client ID; else by name; else by the
    beginning of one of these. Agents have no name here: anybody can claim any.
    """
    if client := find(text):
        return Match([client], is_exact=True)
    return lists.named(every(), text, lambda client: client.client_id, _verified_name)


def _verified_name(client: Client) -> str:
    return "" if client.is_agent else client.name


def lock(client_id: str) -> Client | None:
    """Lock a client, disabled or not, until the transaction ends, and return its current row.

    Call it before users, sessions and grants are locked: this is the order of `approvals.add`.
    """
    dialects.exclusive_client_lock(client_id)
    return dialects.lock(Client, Client.require_pkce, Client.client_id == client_id)


# PostgreSQL has room for some 6,400 locks of all transactions together, with its default settings.
# The locks of rows take none of it: without the others, a change may only wait longer.
_MOST_LOCKS = 1000


def lock_all(client_ids: Iterable[str]) -> Sequence[Client]:
    """Lock these clients as `lock` does, in the order of their ids; return their current rows.

    The transaction has locked an API already.
    """
    rows: list[Client] = []
    in_order = sorted(client_ids)
    for ids in lists.batches(in_order):
        these, order = Client.client_id.in_(ids), dialects.code_point_order(Client.client_id)
        if len(in_order) <= _MOST_LOCKS:
            dialects.exclusive_client_locks(select(Client.client_id).where(these).order_by(order))
        # SQLite locks no rows here; the caller has written before, which locks its database.
        locked = select(Client).where(these).order_by(order).with_for_update(key_share=True)
        rows += db.session.scalars(locked.execution_options(populate_existing=True))
    return rows


def change_all(values: Sequence[Mapping[str, Any]]) -> None:
    """Update clients in this order; each mapping has the id and the new column values."""
    if values:
        db.session.execute(update(Client), list(values))


_without_port = urls.without_loopback_port


def _origins(client: "Client | RegisteredClient") -> set[str]:
    """Return the web origins whose scripts may read answers. Only a public client has any.

    Origins of loopback have no port.
    """
    origins = map(urls.origin, client.redirect_uris) if client.is_public else ()
    return {_without_port(origin) for origin in origins if origin}


@dataclass(frozen=True, eq=False)
class RegisteredClient(ClientRegistration, ClientMixin):
    """A client as its row is now, with the methods that Authlib calls."""

    client_id: str
    client_metadata: dict[str, Any]
    secret_digest: str
    secret_expires_at: datetime | None
    previous_secret_digest: str | None
    previous_secret_expires_at: datetime | None
    first_party: bool
    require_pkce: bool
    require_mfa: bool
    updated_at: datetime
    registration: str | None
    document_read_at: datetime | None

    @cached_property
    def scope(self) -> str:
        return str(self.client_metadata.get("scope", ""))

    @property
    def redirect_uris(self) -> list[str]:
        return list(self.client_metadata.get("redirect_uris", []))

    @property
    def id_token_signed_response_alg(self) -> str:
        return str(self.client_metadata.get("id_token_signed_response_alg") or "RS256")

    def get_client_id(self) -> str:
        return self.client_id

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return self._is_one_of(redirect_uri, self.redirect_uris)

    def check_post_logout_redirect_uri(self, uri: str) -> bool:
        return self._is_one_of(uri, self.client_metadata.get("post_logout_redirect_uris", ()))

    def _is_one_of(self, uri: str, registered: Iterable[str]) -> bool:
        """Compare exactly, except for a public client's loopback port (RFC 9700 §4.1.3)."""
        if self.is_public or self.is_agent:
            uri, registered = _without_port(uri), map(_without_port, registered)
        return uri in registered

    def policy_at(self, redirect_uri: str) -> Policy:
        """Return the policy for `flow.decision`."""
        is_first_party, groups = self.first_party and not self.is_agent, frozenset(self.groups)
        return Policy(is_first_party, groups, self.require_mfa, self.asks_each_time(redirect_uri))

    def has_origin(self, origin: str) -> bool:
        """Return whether a script of this web origin may read answers to the client."""
        return _without_port(origin) in _origins(self)

    def get_allowed_scope(self, scope: str) -> str:
        """Return the requested scopes that are registered."""
        registered = self.scope.split()
        return " ".join(name for name in (scope or "").split() if name in registered)

    def check_response_type(self, response_type: str) -> bool:
        return response_type in self.client_metadata.get("response_types", [])

    def check_grant_type(self, grant_type: str) -> bool:
        # Behind a proxy, this server uses the codes itself: they buy no tokens.
        metadata = self.client_metadata
        return grant_type in metadata.get("grant_types", []) and not metadata.get("proxy_urls")


COLUMNS = prepared.columns(RegisteredClient, prepared.table(Client), "client_")
"""The columns that `registered_client` reads."""
_LABELS = [column.name for column in COLUMNS]
_NAMES = [field.name for field in fields(RegisteredClient)]
_FIND = select(*COLUMNS).where(Client.client_id == bindparam("client_id"))
_FIND_ENABLED = _FIND.where(Client.disabled_at.is_(None))


def find_enabled(connection: Connection, client_id: str) -> RegisteredClient | None:
    """Return a client that is enabled, or `None`."""
    row = prepared.first(connection, _FIND_ENABLED, {"client_id": client_id})
    return registered_client(row) if row else None


# The enabled client as it was read, for a statement that writes what a request decided. FOR SHARE:
# several users can sign in at once, but a change of the client waits; disabling the client finds
# what was written, and ends it, too.
AS_SEEN = (
    select(Client.client_id)
    .where(
        Client.client_id == bindparam("client_id"),
        Client.updated_at == bindparam("client_seen"),
        Client.disabled_at.is_(None),
        dialects.shared_client_lock(Client.client_id),
    )
    .with_for_update(read=True)
    .subquery()
)

_ORIGIN = re.compile(r"https?://(?:[a-z0-9.-]{1,253}|\[[0-9a-f:]{2,39}\])(?::[0-9]{1,5})?")
_ORIGINS = prepared.table(ClientOrigin)
_IS_ORIGIN = (
    select(_ORIGINS.c.origin)
    .join(Client, Client.client_id == _ORIGINS.c.client_id)
    .where(_ORIGINS.c.origin == bindparam("origin"), Client.disabled_at.is_(None))
    .limit(literal(1))
)


def is_origin_of_any(connection: Connection, origin: str) -> bool:
    """Return whether an enabled client has this web origin."""
    if not _ORIGIN.fullmatch(origin):
        return False
    values = {"origin": _without_port(origin)}
    return prepared.first(connection, _IS_ORIGIN, values) is not None


def keep_origins(client: Client) -> None:
    """Store the web origins of the client's redirect URIs."""
    db.session.execute(delete(ClientOrigin).where(ClientOrigin.client_id == client.client_id))
    db.session.add_all(
        ClientOrigin(client_id=client.client_id, origin=origin) for origin in _origins(client)
    )
    db.session.flush()


def registered(connection: Connection, client_id: str) -> RegisteredClient | None:
    """Return a client, enabled or not."""
    row = prepared.first(connection, _FIND, {"client_id": client_id})
    return registered_client(row) if row else None


_DISABLED_AT = select(Client.disabled_at).where(Client.client_id == bindparam("client_id"))


def why_not_enabled(connection: Connection, client_id: str) -> Reason | None:
    """Return why `find_enabled` finds nothing."""
    row = prepared.first(connection, _DISABLED_AT, {"client_id": client_id})
    if row is None:
        return Reason.UNKNOWN_CLIENT
    return Reason.CLIENT_DISABLED if row["disabled_at"] else None


def registered_client(row: prepared.Row) -> RegisteredClient:
    """Make a client from a row with the columns `COLUMNS`."""
    return _registered_client(*[row[label] for label in _LABELS])


@lru_cache(maxsize=256)
def _registered_client(*values: Any) -> RegisteredClient:
    # The row is read at each request, so that changes take effect at once. The same row gives the
    # same object, and its metadata is parsed once.
    fields = dict(zip(_NAMES, values, strict=True))
    return RegisteredClient(**{**fields, "client_metadata": json.loads(fields["client_metadata"])})


def every() -> Sequence[Client]:
    """Return all clients, oldest first."""
    return db.session.scalars(select(Client).order_by(Client.created_at, Client.client_id)).all()


def add(client: Client) -> None:
    db.session.add(client)
    db.session.flush()


def lock_to_remove(client_id: str) -> Client | None:
    """Lock a client as `lock` does, and also against new references to it.

    Call it before its grants are ended: their end refers to the client first.
    """
    client = lock(client_id)
    db.session.execute(
        select(Client.client_id).where(Client.client_id == client_id).with_for_update()
    )
    return client


def remove(client: Client) -> None:
    """Delete a client with its consents, grants, codes and tokens (by foreign key), and what it
    pushed, which a later client of the same ID must not use.
    """
    db.session.execute(delete(Client).where(Client.client_id == client.client_id))
    # Last, as `redemption.use_pushed` does.
    db.session.execute(delete(PushedRequest).where(PushedRequest.client_id == client.client_id))


def set_disabled(client: Client, is_disabled: bool, *, within_limits: bool = False) -> None:
    """Disable a client, since now unless it already is; or enable it. Only changes the object.

    `within_limits`: somebody does so whose permission has limits.
    """
    client.disabled_within_limits = (
        is_disabled
        and within_limits
        and (client.disabled_at is None or client.disabled_within_limits)
    )
    client.disabled_at = (client.disabled_at or clock.now()) if is_disabled else None


def set_secret(client: Client, digest: str, keep_old_until: datetime | None) -> None:
    """Change the secret of the object only; see `replace_secret`."""
    ends = (keep_old_until, client.secret_expires_at)  # which the old one had anyway
    client.previous_secret_digest = client.secret_digest if keep_old_until else None
    client.previous_secret_expires_at = min(filter(None, ends)) if keep_old_until else None
    client.secret_digest = digest
    set_secret_end(client, None)


def replace_secret(client: Client, digest: str, keep_old_until: datetime | None) -> None:
    """Give a client a new secret; the old one stays valid until `keep_old_until`, if given."""
    set_secret(client, digest, keep_old_until)
    db.session.flush()


def set_secret_end(client: Client, ends_at: datetime | None) -> None:
    """Set when the secret of the object ends; a new end is announced again."""
    client.secret_expires_at, client.secret_end_announced_at = ends_at, None


_BATCH = 100


def with_ending_secrets(now: datetime, until: datetime) -> Sequence[Client]:
    """Return some enabled clients whose secrets end in this time, which was not announced."""
    statement = select(Client).where(
        Client.secret_expires_at > now,
        Client.secret_expires_at <= until,
        Client.disabled_at.is_(None),
        Client.secret_end_announced_at.is_(None),
    )
    return db.session.scalars(
        statement.order_by(Client.secret_expires_at, Client.client_id).limit(_BATCH)
    ).all()


def note_secret_announced(client: Client) -> bool:
    """Record that the end of a secret is announced; return False if that was done, or it moved."""
    return write_one(
        update(Client)
        .where(
            Client.client_id == client.client_id,
            Client.secret_expires_at == client.secret_expires_at,
            Client.secret_end_announced_at.is_(None),
        )
        .values(
            secret_end_announced_at=clock.now(),
            updated_at=Client.updated_at,
            version=Client.version,
        )
    )


def end_old_secret(client: Client) -> None:
    """End the secret before the last rotation. Its digest stays, so that `explain` knows it."""
    client.previous_secret_expires_at = clock.now()
    db.session.flush()


def with_ids(client_ids: Iterable[str]) -> Sequence[Client]:
    """Return the clients with these IDs, without those that are deleted."""
    return db.session.scalars(select(Client).where(Client.client_id.in_(list(client_ids)))).all()


NEWEST_FIRST = Order((Client.created_at, Client.client_id), is_descending=True)


def selected(*, is_disabled: bool | None = None, is_agent: bool | None = None) -> Select[Client]:
    """Select the clients with these properties, to be ordered by `NEWEST_FIRST`; `None`: any."""
    statement = select(Client)
    if is_disabled is not None:
        is_null = Client.disabled_at.is_(None)
        statement = statement.where(~is_null if is_disabled else is_null)
    if is_agent is not None:
        is_null = Client.registration.is_(None)
        statement = statement.where(~is_null if is_agent else is_null)
    return statement


def having(text: str, among: Iterable[str] | None = None) -> list[Client]:
    """Return the clients with this text in their names, IDs or URLs, by name. Case does not matter.
    Without a text, all of them. `among`: only those with these IDs.

    It reads all clients: few servers have more than some hundreds.
    """
    part = text.casefold()

    def has(client: Client) -> bool:
        metadata = client.client_metadata
        urls = (*metadata.get("redirect_uris", ()), metadata.get("home_url") or "")
        return any(part in name.casefold() for name in (client.name, client.client_id, *urls))

    return sorted(
        filter(has, every() if among is None else with_ids(among)),
        key=lambda client: (client.name.casefold(), client.client_id),
    )
