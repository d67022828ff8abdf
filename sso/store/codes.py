"""Statements about authorization codes; single use is decided here."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, bindparam, exists, select, update

from sso.models import AuthorizationCode, Client, Grant
from sso.store import clients, live_grants, prepared, refusal_reasons
from sso.store.clients import RegisteredClient
from sso.store.issuance import NewToken, Redemption
from sso.store.live_grants import LiveGrant
from sso.store.refusal_reasons import Redeemed, RefusalReasons

_CODES = prepared.table(AuthorizationCode)


@dataclass(frozen=True)
class PresentedCode:
    """A code that a client presents, redeemed or not."""

    redirect_uri: str
    nonce: str | None
    code_challenge: str | None
    dpop_jkt: str | None
    expires_at: datetime
    used_at: datetime | None

    def is_live(self, now: datetime) -> bool:
        """Whether it may be redeemed, as far as the row tells; `redeem` decides."""
        return self.used_at is None and self.expires_at > now


_FIND_WITH_CLIENT = live_grants.join_live_grant(
    select(
        *clients.COLUMNS,
        _CODES.c.digest.label("code_digest"),
        *prepared.columns(PresentedCode, _CODES, "code_"),
        *live_grants.LIVE_GRANT,
    )
    .select_from(Client)
    .outerjoin(_CODES, _CODES.c.digest == bindparam("digest")),
    _CODES.c.grant_id,
).where(Client.client_id == bindparam("client"), Client.disabled_at.is_(None))


def find_with_client(
    connection: Connection, client_id: str, digest: str, now: datetime
) -> tuple[RegisteredClient | None, PresentedCode | None, LiveGrant | None]:
    """In one statement: the enabled client, the code with this digest, redeemed or not, and the
    grant that it stands for, if that is the client's and lives.
    """
    values = {"client": client_id, "digest": digest, "now": now}
    row = prepared.first(connection, _FIND_WITH_CLIENT, values)
    if row is None:
        return None, None, None
    code = prepared.record(PresentedCode, row, "code_") if row["code_digest"] else None
    return clients.registered_client(row), code, live_grants.live_grant_of(row)


_REDEMPTION = Redemption(
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


def redeem(connection: Connection, digest: str, client_id: str, token: NewToken) -> bool:
    """Redeem a code for a token response, which is stored, if the code is unused, unexpired, this
    client's, and its grant lives. Atomic.
    """
    values = {"code_digest": digest, "client": client_id, "now": token.issued_at}
    return _REDEMPTION.run(connection, token, values)


_FIND_REDEEMED = refusal_reasons.find_redeemed(_CODES, _CODES.c.digest, _CODES.c.used_at)
_REASONS = refusal_reasons.find_reasons(
    _CODES,
    _CODES.c.digest == bindparam("digest"),
    digest=_CODES.c.digest,
    expires_at=_CODES.c.expires_at,
    used_at=_CODES.c.used_at,
)


def find_redeemed(connection: Connection, digest: str, client_id: str) -> Redeemed | None:
    """A code of this client that was redeemed before, and whose grant has not ended."""
    row = prepared.first(connection, _FIND_REDEEMED, {"digest": digest, "client": client_id})
    return prepared.record(Redeemed, row) if row else None


def refusal_reasons_of(connection: Connection, digest: str) -> RefusalReasons | None:
    """Why a code may have been refused; `None`: there is no such code."""
    row = prepared.first(connection, _REASONS, {"digest": digest})
    return prepared.record(RefusalReasons, row) if row else None
