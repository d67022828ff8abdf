"""Statements about the secrets in the links of mails."""

from collections.abc import Iterable
from uuid import UUID

from sqlalchemy import ColumnElement, and_, delete, select, update

from sso import clock
from sso.extensions import db
from sso.models import MailToken, User
from sso.store.lists import write


def _live(digest: str, purposes: Iterable[str]) -> ColumnElement[bool]:
    return and_(
        MailToken.digest == digest,
        MailToken.purpose.in_(tuple(purposes)),
        MailToken.used_at.is_(None),
        MailToken.expires_at > clock.now(),
    )


def find_live(digest: str, purposes: Iterable[str]) -> tuple[MailToken, User | None] | None:
    """An unused token with its user, who may sign in; without one if there is no account yet."""
    row = db.session.execute(
        select(MailToken, User)
        .outerjoin(User, User.id == MailToken.user_id)
        .where(_live(digest, purposes), User.disabled_at.is_(None))
    ).first()
    return (row[0], row[1]) if row else None


def use(token: MailToken) -> bool:
    """Redeem a token; false when another request was quicker."""
    return (
        write(
            update(MailToken)
            .where(_live(token.digest, [token.purpose]))
            .values(used_at=clock.now())
        )
        == 1
    )


def add(token: MailToken) -> None:
    db.session.add(token)
    db.session.flush()


def end(user_id: UUID, purpose: str, bound_to: str) -> None:
    """End the unused tokens of a user that are for one purpose and bound alike."""
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
    """End all unused tokens of a user that are for some purposes."""
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
    """The live token that is bound so, one try fewer left; `None` if there is none with tries.

    One statement counts and reads: guesses at the same instant wait for each other.
    """
    return db.session.scalar(
        update(MailToken)
        .where(
            MailToken.user_id == user_id,
            MailToken.purpose == purpose,
            MailToken.bound_to == bound_to,
            MailToken.used_at.is_(None),
            MailToken.expires_at > clock.now(),
            MailToken.failures < most,
        )
        .values(failures=MailToken.failures + 1)
        .returning(MailToken)
        .execution_options(populate_existing=True, synchronize_session=False)
    )


def remove(token_id: UUID) -> None:
    """Forget a token that never reached anybody."""
    db.session.execute(delete(MailToken).where(MailToken.id == token_id))
