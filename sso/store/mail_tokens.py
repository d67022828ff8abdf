"""Statements about the secrets in the links of mails."""

from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

from sqlalchemy import ColumnElement, and_, delete, or_, select, update

from sso import clock
from sso.extensions import db
from sso.models import MailToken, User
from sso.store import users
from sso.store.lists import update_returning, write, write_one


def _live(digest: str, purposes: Iterable[str]) -> ColumnElement[bool]:
    return and_(
        MailToken.digest == digest,
        MailToken.purpose.in_(tuple(purposes)),
        MailToken.used_at.is_(None),
        MailToken.expires_at > clock.now(),
    )


def find_live(digest: str, purposes: Iterable[str]) -> tuple[MailToken, User | None] | None:
    """Return a live token with its enabled user, or without one if there is no account yet."""
    row = db.session.execute(
        select(MailToken, User)
        .outerjoin(User, User.id == MailToken.user_id)
        .where(_live(digest, purposes), or_(User.id.is_(None), users.enabled()))
    ).first()
    return (row[0], row[1]) if row else None


def use(token: MailToken) -> bool:
    """Redeem a token; return False if another request has redeemed it."""
    is_live = _live(token.digest, [token.purpose])
    return write_one(update(MailToken).where(is_live).values(used_at=clock.now()))


def add(token: MailToken) -> None:
    db.session.add(token)
    db.session.flush()


def end(user_id: UUID, purpose: str, bound_to: str) -> None:
    """End a user's unused tokens with this purpose and binding."""
    write(
        update(MailToken)
        .where(
            MailToken.user_id == user_id,
            MailToken.purpose == purpose,
            MailToken.bound_to == bound_to,
            MailToken.used_at.is_(None),
        )
        .values(used_at=clock.now())
    )


def end_all(user_id: UUID, purposes: Iterable[str]) -> None:
    """End all unused tokens of a user that have one of these purposes."""
    write(
        update(MailToken)
        .where(
            MailToken.user_id == user_id,
            MailToken.purpose.in_(tuple(purposes)),
            MailToken.used_at.is_(None),
        )
        .values(used_at=clock.now())
    )


def spend_try(user_id: UUID, purpose: str, bound_to: str, most: int) -> MailToken | None:
    """Count a try of the live token with this binding, and return the token; `None` if no live
    token has tries left.
    """
    return _spend_try(purpose, most, MailToken.user_id == user_id, MailToken.bound_to == bound_to)


def spend_try_of(token_id: UUID, purpose: str, most: int) -> MailToken | None:
    """Do as `spend_try`, for the token with this id."""
    return _spend_try(purpose, most, MailToken.id == token_id)


def _spend_try(purpose: str, most: int, *which: ColumnElement[bool]) -> MailToken | None:
    """One statement counts and reads: guesses at the same instant wait for each other."""
    tokens = update_returning(
        MailToken,
        update(MailToken)
        .where(
            *which,
            MailToken.purpose == purpose,
            MailToken.used_at.is_(None),
            MailToken.expires_at > clock.now(),
            MailToken.failures < most,
        )
        .values(failures=MailToken.failures + 1),
    )
    return tokens[0] if tokens else None


def find(token_id: UUID, purpose: str) -> MailToken | None:
    """Return a token, live or not."""
    return db.session.scalar(
        select(MailToken).where(MailToken.id == token_id, MailToken.purpose == purpose)
    )


def end_one(token_id: UUID, purpose: str) -> None:
    """End a token, unless it was used."""
    write(
        update(MailToken)
        .where(MailToken.id == token_id, MailToken.purpose == purpose, MailToken.used_at.is_(None))
        .values(used_at=clock.now())
    )


def set_code(
    token_id: UUID, purpose: str, *, digest: str, user: User, bound_to: str, expires_at: datetime
) -> bool:
    """Give a live token the code that is mailed to a user; return False if it has ended."""
    return write_one(
        update(MailToken)
        .where(
            MailToken.id == token_id,
            MailToken.purpose == purpose,
            MailToken.used_at.is_(None),
            MailToken.expires_at > clock.now(),
        )
        .values(digest=digest, user_id=user.id, bound_to=bound_to, expires_at=expires_at)
    )


def remove(token_id: UUID) -> None:
    """Delete a token whose mail never reached anybody."""
    db.session.execute(delete(MailToken).where(MailToken.id == token_id))
