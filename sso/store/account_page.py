"""Everything that the account page shows about a user, apart from the applications with access.

One statement reads it: few pages are opened more often, and it has eight lists.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import BindParameter, Connection, Uuid, bindparam, exists, func, select

from sso import clock
from sso.models import (
    Attribute,
    BrowserSession,
    Client,
    ClientLogo,
    DeviceCode,
    Grant,
    GroupOwner,
    Identity,
    Passkey,
    RecoveryCode,
    Token,
    TotpSecret,
)
from sso.models.clients import HAS_HOME_URL, ClientRegistration
from sso.store import prepared
from sso.store.combined import CombinedLists


@dataclass(frozen=True)
class ListedSession:
    """A live session of the user."""

    id: UUID
    address: str
    browser: str
    created_at: datetime
    last_seen_at: datetime


class FactorCounts(NamedTuple):
    """How many second factors the user has, and how many unused recovery codes."""

    passkeys: int
    totp: bool
    recovery_codes: int

    @property
    def exist(self) -> bool:
        """Whether there is a second factor. Recovery codes are none."""
        return self.passkeys > 0 or self.totp


class SignedInDevice(NamedTuple):
    """A device that the user has allowed."""

    client_id: str
    program: str
    since: datetime


class ActingService(NamedTuple):
    """A client that got tokens of the user by exchange, and the application that had them."""

    name: str
    application: str  # client ID
    last_used: datetime


class LinkedIdentity(NamedTuple):
    """An account of the user at an upstream provider."""

    provider: str


class Launchable(ClientRegistration):
    """An application that the user can start."""

    def __init__(self, metadata: dict[str, Any], logo_digest: str | None) -> None:
        self._metadata, self.logo_digest = metadata, logo_digest

    @property
    def client_metadata(self) -> dict[str, Any]:
        return self._metadata


@dataclass(frozen=True)
class AttributeDefinition:
    """The part of a definition that the page needs."""

    name: str
    title: str
    type: str
    choices: list[str]
    readers: list[str]
    writers: list[str]


@dataclass(frozen=True)
class AccountFacts:
    """What the page shows. `sessions`: the last used first; `devices`, `identities`: the oldest
    first; `launchable`: for all users, by name; `services`: by name.
    """

    sessions: list[ListedSession]
    factors: FactorCounts
    devices: list[SignedInDevice]
    services: list[ActingService]
    identities: list[LinkedIdentity]
    launchable: list[Launchable]
    attributes: Mapping[str, AttributeDefinition]
    owns_groups: bool


_USER: BindParameter[UUID] = bindparam("user", type_=Uuid())
_CLIENTS = prepared.table(Client)
_LIVE_GRANT = (Grant.user_id == _USER, Grant.ended_at.is_(None))
_LISTS = CombinedLists(
    sessions=select(*prepared.columns(ListedSession, prepared.table(BrowserSession)))
    .where(
        BrowserSession.user_id == _USER,
        BrowserSession.ended_at.is_(None),
        BrowserSession.expires_at > bindparam("now"),
    )
    .order_by(BrowserSession.last_seen_at.desc()),
    factors=select(
        select(func.count(Passkey.id))
        .where(Passkey.user_id == _USER)
        .scalar_subquery()
        .label("passkeys"),
        exists().where(TotpSecret.user_id == _USER).label("totp"),
        select(func.count(RecoveryCode.digest))
        .where(RecoveryCode.user_id == _USER, RecoveryCode.used_at.is_(None))
        .scalar_subquery()
        .label("recovery_codes"),
    ),
    devices=select(Grant.client_id, DeviceCode.program, Grant.created_at.label("since"))
    .join(DeviceCode, DeviceCode.grant_id == Grant.id)
    .where(*_LIVE_GRANT)
    .order_by(Grant.created_at),
    services=select(
        _CLIENTS.c.client_metadata.label("metadata"),
        Grant.client_id.label("application"),
        func.max(Token.issued_at).label("last_used"),
    )
    .select_from(Grant)
    .join(Token, Token.grant_id == Grant.id)
    .join(_CLIENTS, _CLIENTS.c.client_id == Token.client_id)
    .where(*_LIVE_GRANT)
    .group_by(_CLIENTS.c.client_id, Grant.client_id),
    identities=select(Identity.provider)
    .where(Identity.user_id == _USER)
    .order_by(Identity.linked_at, Identity.id),
    launchable=select(
        _CLIENTS.c.client_metadata.label("metadata"), ClientLogo.digest.label("logo_digest")
    )
    .select_from(_CLIENTS)
    .outerjoin(ClientLogo, ClientLogo.client_id == _CLIENTS.c.client_id)
    .where(_CLIENTS.c.disabled_at.is_(None), HAS_HOME_URL),
    attributes=select(*prepared.columns(AttributeDefinition, prepared.table(Attribute))).order_by(
        Attribute.name
    ),
    owned=select(GroupOwner.group_id).where(GroupOwner.user_id == _USER).limit(1),
)


def read(connection: Connection, user_id: UUID) -> AccountFacts:
    """Return what the page shows about a user; of the launchable clients, all enabled ones."""
    rows = _LISTS.read(connection, {"user": user_id, "now": clock.now()})
    services = [
        ActingService(_name_in(row["metadata"]), row["application"], row["last_used"])
        for row in rows["services"]
    ]
    launchable = [
        Launchable(json.loads(row["metadata"]), row["logo_digest"]) for row in rows["launchable"]
    ]
    definitions = [AttributeDefinition(**row) for row in rows["attributes"]]
    return AccountFacts(
        sessions=[ListedSession(**row) for row in rows["sessions"]],
        factors=FactorCounts(**rows["factors"][0]),
        devices=[SignedInDevice(**row) for row in rows["devices"]],
        services=sorted(services, key=lambda each: (each.name.casefold(), each.application)),
        identities=[LinkedIdentity(**row) for row in rows["identities"]],
        launchable=sorted(
            (client for client in launchable if client.home_url),
            key=lambda client: client.name.casefold(),
        ),
        attributes={definition.name: definition for definition in definitions},
        owns_groups=bool(rows["owned"]),
    )


def _name_in(metadata: str) -> str:
    return str(json.loads(metadata)["client_name"])
