"""Statements about authorization codes; single use is decided here."""

from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import bindparam, exists, insert, select, update
from sqlalchemy.orm import contains_eager

from sso.extensions import db
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


def find_used(digest: str, client_id: str) -> AuthorizationCode | None:
    """A code of this client that was used before, with its grant."""
    return db.session.scalar(
        select(AuthorizationCode)
        .join(AuthorizationCode.grant)
        .options(contains_eager(AuthorizationCode.grant))
        .where(
            AuthorizationCode.digest == digest,
            AuthorizationCode.used_at.is_not(None),
            Grant.client_id == client_id,
        )
        .execution_options(populate_existing=True)
    )
