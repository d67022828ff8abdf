"""Statements about API tokens."""

from collections.abc import Collection, Sequence
from datetime import timedelta
from uuid import UUID

from sqlalchemy import Select, or_, select, update

from sso import clock
from sso.extensions import db
from sso.models import ApiToken
from sso.store.keyset import Order
from sso.store.lookup import Match
from sso.store.statements import write

NEWEST_FIRST = Order((ApiToken.created_at, ApiToken.id), is_descending=True)
_NOTED_EVERY = timedelta(minutes=1)


def add(token: ApiToken) -> None:
    db.session.add(token)
    db.session.flush()


def every() -> Sequence[ApiToken]:
    """All tokens, oldest first."""
    return db.session.scalars(select(ApiToken).order_by(ApiToken.created_at, ApiToken.id)).all()


def selected() -> Select[ApiToken]:
    """All tokens; see `NEWEST_FIRST`."""
    return select(ApiToken)


def find(token_id: UUID) -> ApiToken | None:
    return db.session.scalar(select(ApiToken).where(ApiToken.id == token_id))


def find_by_digest(digest: str) -> ApiToken | None:
    return db.session.scalar(select(ApiToken).where(ApiToken.digest == digest))


def lock(token_id: UUID) -> ApiToken | None:
    """A token as the row is now, and stays until the transaction ends."""
    # An update instead of FOR UPDATE, which SQLite does not know.
    return db.session.scalar(
        update(ApiToken)
        .where(ApiToken.id == token_id)
        .values(name=ApiToken.name)
        .returning(ApiToken)
        .execution_options(populate_existing=True, synchronize_session=False)
    )


def matching(text: str) -> Match[ApiToken]:
    """The tokens that an operator may mean: by id; else by name; else by how one of these begins,
    in any case.
    """
    text = text.strip().casefold()
    known = [(one, str(one.id), one.name.casefold()) for one in every() if text]
    whole = [one for one, id_, _ in known if id_ == text]
    if whole:
        return Match(whole, is_exact=True)
    named = [one for one, _, name in known if name == text]
    return Match(
        named or [one for one, *begins in known if any(part.startswith(text) for part in begins)]
    )


def of_owner(owner_id: UUID) -> Sequence[ApiToken]:
    """Return the tokens of an administrator that are neither revoked nor expired, by name."""
    live = ApiToken.revoked_at.is_(None), ApiToken.expires_at > clock.now()
    owned = select(ApiToken).where(ApiToken.owner_id == owner_id, *live)
    return db.session.scalars(owned.order_by(ApiToken.name)).all()


def revoke_of(owner_ids: Collection[UUID]) -> Sequence[ApiToken]:
    """Revoke all tokens of these administrators; return those that this has revoked."""
    return db.session.scalars(
        update(ApiToken)
        .where(ApiToken.owner_id.in_(owner_ids), ApiToken.revoked_at.is_(None))
        .values(revoked_at=clock.now())
        .returning(ApiToken)
        .execution_options(populate_existing=True, synchronize_session=False)
    ).all()


def note_use(token: ApiToken, address: str | None) -> None:
    """Note that a token is used now, once a minute."""
    now = clock.now()
    if token.last_used_at and token.last_used_at > now - _NOTED_EVERY:
        return
    write(
        update(ApiToken)
        .where(
            ApiToken.id == token.id,
            or_(ApiToken.last_used_at.is_(None), ApiToken.last_used_at < now),
        )
        .values(last_used_at=now, last_used_address=address)
    )
