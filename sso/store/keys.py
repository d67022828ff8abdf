"""Statements about signing keys and API tokens."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Connection, Select, delete, or_, select, update

from sso import clock, database
from sso.crypto.keys import SAML
from sso.database import dialects
from sso.extensions import db
from sso.models import ApiToken, KeyState, SigningKey
from sso.store import lists, prepared
from sso.store.lists import Match, Order, write, write_one


def every_signing_key() -> Sequence[SigningKey]:
    """Return all keys, oldest first."""
    return db.session.scalars(
        select(SigningKey).order_by(SigningKey.created_at, SigningKey.alg, SigningKey.kid)
    ).all()


class StoredSigningKey(NamedTuple):
    """The columns of a signing key that the key ring reads."""

    kid: str
    alg: str
    state: str
    public_jwk: str
    sealed_private_jwk: str
    retired_at: datetime | None


_KEYS = prepared.table(SigningKey)
_COLUMNS = select(*(_KEYS.c[name] for name in StoredSigningKey._fields))
_STORED = _COLUMNS.where(_KEYS.c.alg != SAML)
_STORED_SAML = _COLUMNS.where(_KEYS.c.alg == SAML).order_by(_KEYS.c.created_at)


def saml_keys(connection: Connection) -> list[StoredSigningKey]:
    """Return the keys of SAML, oldest first."""
    return [StoredSigningKey._make(row) for row in connection.execute(_STORED_SAML)]


def stored_signing_keys() -> list[StoredSigningKey]:
    """Return the keys of tokens for the key ring, read on a connection of their own."""
    with database.connection() as connection:
        return [StoredSigningKey._make(row) for row in connection.execute(_STORED)]


def replace_signing_key(kid: str, before: str, after: str) -> bool:
    """Store the new encryption of a private key; return False if another process has changed it."""
    return write_one(
        update(SigningKey)
        .where(SigningKey.kid == kid, SigningKey.sealed_private_jwk == before)
        .values(sealed_private_jwk=after)
    )


def find_signing_key(kid: str) -> SigningKey | None:
    return db.session.scalar(select(SigningKey).where(SigningKey.kid == kid))


def move_signing_key(
    kid: str, state: KeyState, to: KeyState, moment: datetime
) -> SigningKey | None:
    """Change the state of a key and return it; `None` if it is in another state by now."""
    since = SigningKey.activated_at if to == KeyState.ACTIVE else SigningKey.retired_at
    return db.session.scalar(
        update(SigningKey)
        .where(SigningKey.kid == kid, SigningKey.state == state)
        .values({SigningKey.state: to, since: moment})
        .returning(SigningKey)
        .execution_options(populate_existing=True)
    )


def oldest_activation() -> datetime | None:
    """Return when the oldest active key of tokens was activated."""
    return db.session.scalar(
        select(SigningKey.activated_at)
        .where(SigningKey.state == KeyState.ACTIVE, SigningKey.alg != SAML)
        .order_by(SigningKey.activated_at)
        .limit(1)
    )


def add_signing_key(key: SigningKey) -> None:
    db.session.add(key)
    db.session.flush()


def add_missing_signing_key(key: SigningKey) -> None:
    """Store a key, unless another process has added one of its algorithm and state."""
    names = (column.name for column in SigningKey.__table__.columns)
    dialects.insert_or_ignore(SigningKey, [{name: getattr(key, name) for name in names}])


def remove_signing_key(key: SigningKey) -> None:
    """Delete a key; the object remains usable, to be shown."""
    db.session.expunge(key)
    db.session.execute(delete(SigningKey).where(SigningKey.kid == key.kid))


NEWEST_API_TOKENS = Order((ApiToken.created_at, ApiToken.id), is_descending=True)
API_TOKENS_BY_NAME = Order((ApiToken.name, ApiToken.id))
API_TOKENS_BY_END = Order((ApiToken.expires_at, ApiToken.id))
_NOTED_EVERY = timedelta(minutes=1)


def add_api_token(token: ApiToken) -> None:
    db.session.add(token)
    db.session.flush()


def every_api_token() -> Sequence[ApiToken]:
    """Return all tokens, oldest first."""
    return db.session.scalars(select(ApiToken).order_by(ApiToken.created_at, ApiToken.id)).all()


def selected_api_tokens(text: str = "", state: str = "") -> Select[ApiToken]:
    """Select the tokens with this text in their names and of this state, to be ordered as
    `NEWEST_API_TOKENS` and its neighbours say; "" selects any.
    """
    statement, is_over = select(ApiToken), ApiToken.expires_at <= clock.now()
    if text:
        statement = statement.where(ApiToken.name.icontains(text, autoescape=True))
    match state:
        case "revoked":
            return statement.where(ApiToken.revoked_at.is_not(None))
        case "expired":
            return statement.where(ApiToken.revoked_at.is_(None), is_over)
        case "valid":
            return statement.where(ApiToken.revoked_at.is_(None), ~is_over)
    return statement


def api_tokens_with(token_ids: Collection[UUID]) -> Sequence[ApiToken]:
    """Return the tokens with these ids."""
    return db.session.scalars(select(ApiToken).where(ApiToken.id.in_(token_ids))).all()


def find_api_token(token_id: UUID) -> ApiToken | None:
    return db.session.scalar(select(ApiToken).where(ApiToken.id == token_id))


def find_api_token_by_digest(digest: str) -> ApiToken | None:
    return db.session.scalar(select(ApiToken).where(ApiToken.digest == digest))


def lock_api_token(token_id: UUID) -> ApiToken | None:
    """Lock a token until the transaction ends, and return its current row."""
    return dialects.lock(ApiToken, ApiToken.name, ApiToken.id == token_id)


def matching_api_tokens(text: str) -> Match[ApiToken]:
    """Return the tokens that an operator may mean; see `lists.matching`."""
    return lists.matching(every_api_token(), text, lambda token: token.name)


def of_owner(owner_id: UUID) -> Sequence[ApiToken]:
    """Return the tokens of an administrator that are neither revoked nor expired, by name."""
    live = ApiToken.revoked_at.is_(None), ApiToken.expires_at > clock.now()
    owned = select(ApiToken).where(ApiToken.owner_id == owner_id, *live)
    return db.session.scalars(owned.order_by(ApiToken.name)).all()


_BATCH = 100


def ending_api_tokens(now: datetime, until: datetime) -> Sequence[ApiToken]:
    """Return some tokens that expire in this time and whose end was not announced."""
    statement = select(ApiToken).where(
        ApiToken.expires_at > now,
        ApiToken.expires_at <= until,
        ApiToken.revoked_at.is_(None),
        ApiToken.end_announced_at.is_(None),
    )
    return db.session.scalars(
        statement.order_by(ApiToken.expires_at, ApiToken.name).limit(_BATCH)
    ).all()


def note_announced(token: ApiToken) -> bool:
    """Record that the end of a token is announced; return False if another worker did it."""
    return write_one(
        update(ApiToken)
        .where(ApiToken.id == token.id, ApiToken.end_announced_at.is_(None))
        .values(end_announced_at=clock.now())
    )


def revoke_of(owner_ids: Collection[UUID]) -> Sequence[ApiToken]:
    """Revoke all tokens of these administrators; return those that were not revoked before."""
    return lists.update_returning(
        ApiToken,
        update(ApiToken)
        .where(ApiToken.owner_id.in_(owner_ids), ApiToken.revoked_at.is_(None))
        .values(revoked_at=clock.now()),
    )


def note_api_token_use(token: ApiToken, ip_address: str | None) -> None:
    """Record that a token is used now, at most once a minute."""
    now = clock.now()
    if token.last_used_at and token.last_used_at > now - _NOTED_EVERY:
        return
    write(
        update(ApiToken)
        .where(
            ApiToken.id == token.id,
            or_(ApiToken.last_used_at.is_(None), ApiToken.last_used_at < now),
        )
        .values(last_used_at=now, last_used_address=ip_address)
    )
