"""Statements for single use: of codes, refresh tokens, pushed requests and the `jti` of a JWT.

On PostgreSQL a code exchange and a refresh take two round trips instead of five: one statement
reads, and one redeems and stores, without BEGIN and COMMIT. That saves 10 % of the CPU time of
server and database.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import (
    Connection,
    FromClause,
    Integer,
    Label,
    Select,
    String,
    Update,
    bindparam,
    exists,
    insert,
    literal_column,
    select,
    update,
)
from sqlalchemy.sql.dml import Insert

from sso.crypto import secrets
from sso.database import dialects
from sso.extensions import UtcDateTime
from sso.flow.refusals import Reason
from sso.models import AuthorizationCode, Client, Grant, PushedRequest, Token, UsedOnce
from sso.store import clients, grants, prepared, refusals
from sso.store.clients import RegisteredClient
from sso.store.grants import LiveGrant
from sso.store.refusals import RedeemedReasons, RefusalReasons

_TOKENS = prepared.table(Token)


@dataclass(frozen=True)
class NewToken:
    """The row of a new token response."""

    jti: str
    access_digest: str
    grant_id: UUID
    scope: str
    audience: str | None
    is_narrowed: bool
    dpop_jkt: str | None
    address: str | None
    issued_at: datetime
    expires_at: datetime
    refresh_digest: str | None
    refresh_expires_at: datetime | None


_ADD_TOKENS = insert(_TOKENS)
_NAMES = tuple(field.name for field in fields(NewToken))


def add_tokens(connection: Connection, token: NewToken) -> bool:
    """Store a token response."""
    return prepared.changed(connection, _ADD_TOKENS, vars(token))


KEPT_ONCE = 20_000  # the most unexpired identifiers of a holder
_USED = prepared.table(UsedOnce)


class TooManyUsed(Exception):
    """The holder has too many unexpired identifiers for another one to be stored."""


class UsedBefore(Exception):
    """The identifier was used before."""


@dataclass(frozen=True)
class SingleUse:
    """An identifier that works once.

    `holder`: a client ID, or a key's thumbprint. `kind` and `namespace`, by default the holder,
    qualify the identifier. `expires_at`: when it can no longer be presented.
    """

    kind: str
    holder: str
    identifier: str
    expires_at: datetime
    namespace: str | None = None

    def values(self, now: datetime) -> dict[str, Any]:
        """Return the parameters of the statements that use it."""
        namespace = self.namespace or self.holder
        return {
            "used_digest": secrets.digest(f"{self.kind}\n{namespace}\n{self.identifier}"),
            "used_holder": self.holder,
            "used_expires_at": self.expires_at,
            "now": now,
            "others": KEPT_ONCE - 1,
        }


def _insert_used(dialect: str, source: FromClause | None = None) -> Insert:
    """Return the statement that uses an identifier; nothing is used unless `source` has a row."""
    unexpired: Select[Any] = select(literal_column("1")).where(
        _USED.c.holder == bindparam("used_holder", type_=String),
        _USED.c.expires_at > bindparam("now", type_=UtcDateTime),
    )
    is_full = unexpired.offset(bindparam("others", type_=Integer)).limit(1).exists()
    row = select(
        bindparam("used_digest", type_=String),
        bindparam("used_holder", type_=String),
        bindparam("used_expires_at", type_=UtcDateTime),
    ).where(~is_full)
    if source is not None:
        row = row.select_from(source)
    names = ["digest", "holder", "expires_at"]
    return dialects.insert(_USED, dialect).from_select(names, row).on_conflict_do_nothing()


_ADD_USED = {dialect: _insert_used(dialect) for dialect in ("postgresql", "sqlite")}
_FIND_USED = select(_USED.c.digest).where(_USED.c.digest == bindparam("used_digest"))


def use_once(
    connection: Connection, use: SingleUse, *, now: datetime, is_alone: bool = False
) -> bool:
    """Use an identifier once; return False if it was used before. Atomic, in one statement.

    A transaction that is rolled back frees the identifier. `is_alone`: the transaction has no other
    statement, so it may be committed at once. Raises `TooManyUsed`.
    """
    change = prepared.changed_at_once if is_alone else prepared.changed
    values = use.values(now)
    if change(connection, _ADD_USED[connection.dialect.name], values):
        return True
    used = {"used_digest": values["used_digest"]}
    if prepared.first(connection, _FIND_USED, used) is None:
        raise TooManyUsed(use.holder)
    return False


class Redemption:
    """The statements that redeem one row and store the token response that it is redeemed for."""

    def __init__(self, redeem: Update) -> None:
        self._redeem = redeem
        self._redeem_and_add = _and_add_tokens(redeem)
        # All or nothing: the row is locked first, then the identifier is used, and only then is the
        # row redeemed. An UPDATE that waits for another one looks at its row again, for which
        # PostgreSQL needs `used` in FROM and not in a subquery.
        table = redeem.table
        number: Label[int] = literal_column("1", Integer).label("one")
        assert redeem.whereclause is not None
        row = select(number).select_from(table).where(redeem.whereclause)
        live = row.with_for_update(of=table, key_share=True).cte("live")
        used = _insert_used("postgresql", live).returning(number).cte("used")
        self._use_redeem_and_add = _and_add_tokens(redeem.where(used.c.one == number))

    def run(
        self,
        connection: Connection,
        token: NewToken,
        values: Mapping[str, Any],
        use: SingleUse | None = None,
    ) -> bool:
        """Redeem the row and store the token response; return False if no row can be redeemed.

        It must be the last statement of its request: on PostgreSQL it is committed at once. `use`
        counts together with it, if both are possible. Raises `TooManyUsed` and `UsedBefore`.
        """
        if connection.dialect.name == "sqlite":  # WITH does not write there
            _use(connection, use, token.issued_at)
            return prepared.changed(connection, self._redeem, values) and add_tokens(
                connection, token
            )
        values = {**values, **{"new_" + name: value for name, value in vars(token).items()}}
        if use:
            both = {**values, **use.values(token.issued_at)}
            if prepared.changed_at_once(connection, self._use_redeem_and_add, both):
                return True
            _use(connection, use, token.issued_at)  # which of the two is not possible?
        return prepared.changed_at_once(connection, self._redeem_and_add, values)


def _and_add_tokens(redeem: Update) -> Insert:
    redeemed = redeem.returning(literal_column("1")).cte("redeemed")
    # SQLAlchemy would set the columns of the UPDATE by parameters of their names.
    row = (bindparam("new_" + name, type_=_TOKENS.c[name].type).label(name) for name in _NAMES)
    return insert(_TOKENS).from_select(
        _NAMES, select(*row).select_from(redeemed), include_defaults=False
    )


def _use(connection: Connection, use: SingleUse | None, now: datetime) -> None:
    if use and not use_once(connection, use, now=now):
        raise UsedBefore


_CODES = prepared.table(AuthorizationCode)


@dataclass(frozen=True)
class PresentedCode:
    """A code that a client presents, redeemed or not."""

    redirect_uri: str
    nonce: str | None
    code_challenge: str | None
    dpop_jkt: str | None
    once: bool
    expires_at: datetime
    used_at: datetime | None

    def is_live(self, now: datetime) -> bool:
        """Return whether it is unused and unexpired; `redeem_code` makes the decision."""
        return self.used_at is None and self.expires_at > now


_FIND_WITH_CLIENT = grants.join_live_grant(
    select(
        *clients.COLUMNS,
        _CODES.c.digest.label("code_digest"),
        *prepared.columns(PresentedCode, _CODES, "code_"),
        *grants.LIVE_GRANT,
    )
    .select_from(Client)
    .outerjoin(_CODES, _CODES.c.digest == bindparam("digest")),
    _CODES.c.grant_id,
).where(Client.client_id == bindparam("client"), Client.disabled_at.is_(None))


def find_code_with_client(
    connection: Connection, client_id: str, digest: str, now: datetime
) -> tuple[RegisteredClient | None, PresentedCode | None, LiveGrant | None]:
    """Return the enabled client, the code with this digest, redeemed or not, and the code's grant,
    if it belongs to the client and has not ended. One statement.
    """
    values = {"client": client_id, "digest": digest, "now": now}
    row = prepared.first(connection, _FIND_WITH_CLIENT, values)
    if row is None:
        return None, None, None
    code = prepared.record(PresentedCode, row, "code_") if row["code_digest"] else None
    return clients.registered_client(row), code, grants.live_grant_of(row)


_REDEEM_CODE = (
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
_REDEMPTION = Redemption(_REDEEM_CODE)


def redeem_code(
    connection: Connection,
    digest: str,
    client_id: str,
    token: NewToken,
    use: SingleUse | None = None,
) -> bool:
    """Redeem a code and store the token response; return False unless the code is unused, unexpired
    and this client's, and its grant has not ended. Atomic.

    `use` counts together with it. Raises `TooManyUsed` and `UsedBefore`.
    """
    values = {"code_digest": digest, "client": client_id, "now": token.issued_at}
    return _REDEMPTION.run(connection, token, values, use)


def use_code(connection: Connection, digest: str, client_id: str, now: datetime) -> bool:
    """Redeem a code without tokens; return False as `redeem_code` does. Atomic."""
    values = {"code_digest": digest, "client": client_id, "now": now}
    return prepared.changed(connection, _REDEEM_CODE, values)


_FIND_REDEEMED = refusals.find_redeemed(_CODES, _CODES.c.digest, _CODES.c.used_at)
_REASONS = refusals.find_reasons(
    _CODES,
    _CODES.c.digest == bindparam("digest"),
    digest=_CODES.c.digest,
    expires_at=_CODES.c.expires_at,
    used_at=_CODES.c.used_at,
)


def find_redeemed_code(
    connection: Connection, digest: str, client_id: str
) -> RedeemedReasons | None:
    """Return a code of this client that was redeemed before, if its grant has not ended."""
    row = prepared.first(connection, _FIND_REDEEMED, {"digest": digest, "client": client_id})
    return prepared.record(RedeemedReasons, row) if row else None


def refusal_reasons_of(connection: Connection, digest: str) -> RefusalReasons | None:
    """Return the reasons to refuse a code; `None`: there is no such code."""
    row = prepared.first(connection, _REASONS, {"digest": digest})
    return prepared.record(RefusalReasons, row) if row else None


PUSHED_LIFETIME = timedelta(seconds=60)  # until a browser brings the request URI (RFC 9126 §2.2)
PUSHED_WAITS = timedelta(hours=1)  # for the user, once one of our pages is shown

_PUSHED = prepared.table(PushedRequest)


@dataclass(frozen=True)
class Pushed:
    """A pushed request, as it is stored."""

    client_id: str
    parameters: str
    expires_at: datetime
    waits_until: datetime | None
    used_at: datetime | None

    def refusal(self, client_id: str, now: datetime, *, is_waiting: bool) -> Reason | None:
        """Return why it cannot be used now, if so; `is_waiting`: a browser brought it in time."""
        if self.client_id != client_id:
            return Reason.ISSUED_TO_ANOTHER
        if self.used_at:
            return Reason.USED_BEFORE
        if is_waiting:
            # The page may have been shown by another version, or after another redirect.
            until = self.waits_until or self.expires_at + PUSHED_LIFETIME
            return None if now < until else Reason.WAITED_TOO_LONG
        return None if now < self.expires_at else Reason.EXPIRED


_ADD_PUSHED = insert(_PUSHED)
_FIND_PUSHED = select(*prepared.columns(Pushed, _PUSHED)).where(
    _PUSHED.c.digest == bindparam("digest")
)
_WAIT = (
    update(_PUSHED)
    .where(_PUSHED.c.digest == bindparam("pushed_digest"), _PUSHED.c.used_at.is_(None))
    .values(waits_until=bindparam("until"))
)
_USE = (
    update(_PUSHED)
    .where(_PUSHED.c.digest == bindparam("pushed_digest"), _PUSHED.c.used_at.is_(None))
    .values(used_at=bindparam("now"), parameters=bindparam("left"))
)


def add_pushed(
    connection: Connection, digest: str, client_id: str, parameters: str, now: datetime
) -> None:
    """Store a request, as the last statement of its transaction."""
    values = {
        "digest": digest,
        "client_id": client_id,
        "parameters": parameters,
        "expires_at": now + PUSHED_LIFETIME,
        "waits_until": None,
        "used_at": None,
    }
    prepared.changed_at_once(connection, _ADD_PUSHED, values)


def find_pushed(connection: Connection, digest: str) -> Pushed | None:
    """Return the request with this digest, whether it can be used or not."""
    row = prepared.first(connection, _FIND_PUSHED, {"digest": digest})
    return prepared.record(Pushed, row) if row else None


def let_pushed_wait(connection: Connection, digest: str, now: datetime) -> None:
    """Prolong a request while a page is shown to the user.

    Like `use_pushed`, it must be the last statement of its transaction.
    """
    prepared.changed(connection, _WAIT, {"pushed_digest": digest, "until": now + PUSHED_WAITS})


def use_pushed(connection: Connection, digest: str, now: datetime, parameters: str) -> bool:
    """Use a request once; return False if it was used before. `parameters` replace the request's.

    It must be the last statement of its transaction: another answer waits for the row.
    """
    values = {"pushed_digest": digest, "now": now, "left": parameters}
    return prepared.changed(connection, _USE, values)
