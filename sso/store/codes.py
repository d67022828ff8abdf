"""Statements about authorization codes; single use is decided here."""

from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import bindparam, exists, insert, select, update

from sso.models import AuthorizationCode, Grant
from sso.store import prepared

_CODES = prepared.table(AuthorizationCode)
_ADD = insert(_CODES)


def add(**columns: Any) -> None:
    """Store a code."""
    prepared.run(_ADD, columns)


class UsedCode(NamedTuple):
    """A code that was used up just now."""

    grant_id: UUID
    redirect_uri: str
    nonce: str | None
    code_challenge: str | None


_USE = (
    update(_CODES)
    .where(
        _CODES.c.digest == bindparam("code_digest"),
        _CODES.c.used_at.is_(None),
        _CODES.c.expires_at > bindparam("now"),
        exists().where(Grant.id == _CODES.c.grant_id, Grant.client_id == bindparam("client")),
    )
    .values(used_at=bindparam("now"))
    .returning(*(_CODES.c[name] for name in UsedCode._fields))
)


def use(digest: str, client_id: str, now: datetime) -> UsedCode | None:
    """Use a code up, if it is unused, unexpired and this client's: one atomic statement."""
    row = prepared.first(_USE, {"code_digest": digest, "client": client_id, "now": now})
    return UsedCode._make(row) if row else None


class Reused(NamedTuple):
    """A code that was used before."""

    grant_id: UUID
    user_id: UUID
    used_at: datetime


_FIND_USED = (
    select(_CODES.c.grant_id, Grant.user_id, _CODES.c.used_at)
    .join_from(_CODES, Grant, Grant.id == _CODES.c.grant_id)
    .where(
        _CODES.c.digest == bindparam("digest"),
        _CODES.c.used_at.is_not(None),
        Grant.client_id == bindparam("client"),
    )
)


def find_used(digest: str, client_id: str) -> Reused | None:
    """A code of this client that was used before."""
    row = prepared.first(_FIND_USED, {"digest": digest, "client": client_id})
    return Reused._make(row) if row else None
