"""Statements about devices that wait for a user (RFC 8628).

A poll only reads, with one statement that finds the client, the device code and the approved grant.
An answer and a redemption each take effect once, by one UPDATE.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from authlib.oauth2.rfc8628 import DeviceCredentialMixin
from sqlalchemy import Connection, bindparam, exists, select, update

from sso import clock
from sso.database import dialects
from sso.extensions import db
from sso.models import Client, DeviceCode, Grant
from sso.store import clients, grants, prepared, refusals
from sso.store.clients import RegisteredClient
from sso.store.grants import LiveGrant
from sso.store.redemption import NewToken, Redemption
from sso.store.refusals import RedeemedReasons, RefusalReasons

_DEVICES = prepared.table(DeviceCode)


@dataclass(frozen=True)
class NewDevice:
    """A device that begins to wait, to be stored."""

    digest: str
    user_code_digest: str
    client_id: str
    scope: str | None
    resource: str | None
    address: str
    program: str
    interval: int
    created_at: datetime
    expires_at: datetime


_ADD = {
    dialect: dialects.insert(_DEVICES, dialect).on_conflict_do_nothing()
    for dialect in ("postgresql", "sqlite")
}


def add(connection: Connection, device: NewDevice) -> bool:
    """Store a device; return False if its user code is taken."""
    values = {**vars(device), "answered_at": None, "grant_id": None, "used_at": None}
    return prepared.changed(connection, _ADD[connection.dialect.name], values)


@dataclass(frozen=True)
class PresentedDeviceCode(DeviceCredentialMixin):  # type: ignore[misc]  # Authlib has no types
    """A device code that a client sent, whether it can be redeemed or not."""

    digest: str
    user_code_digest: str
    client_id: str
    scope: str | None
    interval: int
    expires_at: datetime
    answered_at: datetime | None
    grant_id: UUID | None
    used_at: datetime | None

    def get_client_id(self) -> str:
        return self.client_id

    def get_scope(self) -> str:
        return self.scope or ""

    def get_user_code(self) -> str:
        """Return what is stored of the user code."""
        return self.user_code_digest

    def is_expired(self) -> bool:
        return self.expires_at <= clock.now()


_FIND_WITH_CLIENT = grants.join_live_grant(
    select(
        *clients.COLUMNS,
        *prepared.columns(PresentedDeviceCode, _DEVICES, "code_"),
        *grants.LIVE_GRANT,
    )
    .select_from(Client)
    .outerjoin(_DEVICES, _DEVICES.c.digest == bindparam("digest")),
    _DEVICES.c.grant_id,
).where(Client.client_id == bindparam("client"), Client.disabled_at.is_(None))


def find_with_client(
    connection: Connection, client_id: str, digest: str
) -> tuple[RegisteredClient | None, PresentedDeviceCode | None, LiveGrant | None]:
    """Find the enabled client, the device code with this digest, and its live grant.

    The device code may be another client's. The grant is one of this client.
    """
    values = {"client": client_id, "digest": digest, "now": clock.now()}
    row = prepared.first(connection, _FIND_WITH_CLIENT, values)
    if row is None:
        return None, None, None
    code = prepared.record(PresentedDeviceCode, row, "code_") if row["code_digest"] else None
    return clients.registered_client(row), code, grants.live_grant_of(row)


@dataclass(frozen=True)
class WaitingDevice:
    """A device, for the page on which a user approves or refuses it."""

    digest: str
    client_id: str
    scope: str | None
    resource: str | None
    address: str
    program: str
    created_at: datetime
    expires_at: datetime
    answered_at: datetime | None

    def is_waiting(self, now: datetime) -> bool:
        """Return whether it could be answered when it was read; `answer` decides."""
        return self.answered_at is None and self.expires_at > now


_FIND_WAITING = select(*prepared.columns(WaitingDevice, _DEVICES)).where(
    _DEVICES.c.user_code_digest == bindparam("digest")
)


def find_waiting(connection: Connection, user_code_digests: Sequence[str]) -> WaitingDevice | None:
    """Find the device whose user code has one of these digests, whether it still waits or not."""
    for digest in user_code_digests:
        if row := prepared.first(connection, _FIND_WAITING, {"digest": digest}):
            return prepared.record(WaitingDevice, row)
    return None


_SLOW_DOWN = (
    update(_DEVICES)
    .where(
        _DEVICES.c.digest == bindparam("device_digest"),
        _DEVICES.c.interval == bindparam("before"),
        _DEVICES.c.answered_at.is_(None),
    )
    .values(interval=bindparam("longer"))
)


def slow_down(connection: Connection, digest: str, before: int, longer: int) -> bool:
    """Lengthen the interval of a device; return False if another poll already did."""
    values = {"device_digest": digest, "before": before, "longer": longer}
    return prepared.changed(connection, _SLOW_DOWN, values)


_ANSWER = (
    update(_DEVICES)
    .where(
        _DEVICES.c.digest == bindparam("device_digest"),
        _DEVICES.c.answered_at.is_(None),
        _DEVICES.c.expires_at > bindparam("now"),
    )
    .values(answered_at=bindparam("now"), grant_id=bindparam("grant"))
)


def answer(connection: Connection, digest: str, grant_id: UUID | None) -> bool:
    """Answer a device: with a grant, or with a refusal.

    Return False if it already was answered, or has expired. Atomic.
    """
    values = {"device_digest": digest, "now": clock.now(), "grant": grant_id}
    return prepared.changed(connection, _ANSWER, values)


_REDEMPTION = Redemption(
    update(_DEVICES)
    .where(
        _DEVICES.c.digest == bindparam("device_digest"),
        _DEVICES.c.used_at.is_(None),
        _DEVICES.c.expires_at > bindparam("now"),
        exists().where(
            Grant.id == _DEVICES.c.grant_id,
            Grant.client_id == bindparam("client"),
            Grant.ended_at.is_(None),
        ),
    )
    .values(used_at=bindparam("now"))
)


def redeem(connection: Connection, digest: str, client_id: str, token: NewToken) -> bool:
    """Redeem a device code and store the new token; return False if the code cannot be redeemed.

    It has to be unused, unexpired, approved, and of this client, and its grant live. Atomic.
    """
    values = {"device_digest": digest, "client": client_id, "now": token.issued_at}
    return _REDEMPTION.run(connection, token, values)


_FIND_REDEEMED = refusals.find_redeemed(_DEVICES, _DEVICES.c.digest, _DEVICES.c.used_at)
_REASONS = refusals.find_reasons(
    _DEVICES,
    _DEVICES.c.digest == bindparam("digest"),
    digest=_DEVICES.c.digest,
    expires_at=_DEVICES.c.expires_at,
    used_at=_DEVICES.c.used_at,
)


def find_redeemed(connection: Connection, digest: str, client_id: str) -> RedeemedReasons | None:
    """Find a device code of this client that was redeemed and whose grant is live."""
    row = prepared.first(connection, _FIND_REDEEMED, {"digest": digest, "client": client_id})
    return prepared.record(RedeemedReasons, row) if row else None


def refusal_reasons_of(connection: Connection, digest: str) -> RefusalReasons | None:
    """Find facts about a refused device code that was approved; `None` for any other one."""
    row = prepared.first(connection, _REASONS, {"digest": digest})
    return prepared.record(RefusalReasons, row) if row else None


def programs_of(grant_ids: Sequence[UUID]) -> dict[UUID, str]:
    """Return the programs of devices by their grants."""
    rows = db.session.execute(
        select(DeviceCode.grant_id, DeviceCode.program).where(DeviceCode.grant_id.in_(grant_ids))
    )
    return {grant_id: program or "?" for grant_id, program in rows if grant_id}
