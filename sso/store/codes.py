"""Statements about authorization codes; single use is decided here."""

from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import bindparam, exists, insert, select, update

from sso.models import AuthorizationCode, Client, Grant
from sso.store import circumstances, clients, live_grants, prepared, reuse
from sso.store.circumstances import Circumstances
from sso.store.live_grants import LiveGrant

_CODES = prepared.table(AuthorizationCode)
_ADD = insert(_CODES)


def add(**columns: Any) -> None:
    """Store a code."""
    prepared.run(_ADD, columns)


class Presented(NamedTuple):
    """A code, used or not, and the approval that it stands for, if that lives."""

    redirect_uri: str
    nonce: str | None
    code_challenge: str | None
    approval: LiveGrant | None


_OF_CODE = [_CODES.c[name] for name in Presented._fields if name != "approval"]
_FIND_WITH_CLIENT = live_grants.join_live_grant(
    select(*clients.COLUMNS, *_OF_CODE, *live_grants.LIVE_GRANT)
    .select_from(Client)
    .outerjoin(_CODES, _CODES.c.digest == bindparam("code_digest")),
    _CODES.c.grant_id,
).where(Client.client_id == bindparam("client"), Client.disabled_at.is_(None))


def find_with_client(
    client_id: str, digest: str, now: datetime
) -> tuple[Client | None, Presented | None]:
    """In one statement: the enabled client, and the code with this digest."""
    values = {"client": client_id, "code_digest": digest, "now": now}
    row = prepared.first(_FIND_WITH_CLIENT, values)
    if row is None:
        return None, None
    client, rest = clients.and_rest(row)
    of_code = len(_OF_CODE)
    return client, Presented._make((*rest[:of_code], live_grants.live_grant_of(rest[of_code:])))


_USE = (
    update(_CODES)
    .where(
        _CODES.c.digest == bindparam("code_digest"),
        _CODES.c.used_at.is_(None),
        _CODES.c.expires_at > bindparam("now"),
        exists().where(
            Grant.id == _CODES.c.grant_id,
            Grant.client_id == bindparam("client"),
            Grant.ended_at.is_(None),
        ),
    )
    .values(used_at=bindparam("now"))
)


def use(digest: str, client_id: str, now: datetime) -> bool:
    """Use a code up, if it is unused, unexpired, this client's, and its grant lives.

    One atomic statement.
    """
    return prepared.changed(_USE, {"code_digest": digest, "client": client_id, "now": now})


_CIRCUMSTANCES = circumstances.statement(
    _CODES,
    _CODES.c.digest == bindparam("code_digest"),
    digest=_CODES.c.digest,
    expires_at=_CODES.c.expires_at,
    used_at=_CODES.c.used_at,
)


def circumstances_of(digest: str) -> Circumstances | None:
    """Why a code may have been refused; `None`: there is no such code."""
    row = prepared.first(_CIRCUMSTANCES, {"code_digest": digest})
    return Circumstances._make(row) if row else None


_FIND_USED = reuse.statement(_CODES, _CODES.c.digest, _CODES.c.used_at)


def find_used(digest: str, client_id: str) -> reuse.Used | None:
    """A code of this client that was used before."""
    return reuse.find(_FIND_USED, digest, client_id)
