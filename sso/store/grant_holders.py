"""Statements about users by what they have at clients."""

from collections.abc import Sequence

from sqlalchemy import select

from sso.extensions import db
from sso.models import Grant, User


def with_grants_at(client_id: str) -> Sequence[User]:
    """The users who have something at a client that has not ended."""
    return db.session.scalars(
        select(User).where(
            User.id.in_(
                select(Grant.user_id).where(Grant.client_id == client_id, Grant.ended_at.is_(None))
            )
        )
    ).all()
