"""Statements about users by what they have at clients."""

from collections.abc import Sequence

from sqlalchemy import or_, select

from sso.extensions import db
from sso.models import Client, Grant, User
from sso.store.groups import has_member


def not_admitted(client: Client) -> Sequence[User]:
    """The users with something at a client that has not ended who are in none of its groups."""
    if not client.groups:
        return ()
    live = select(Grant.user_id).where(
        Grant.client_id == client.client_id, Grant.ended_at.is_(None)
    )
    outside = ~or_(*(has_member(name) for name in client.groups))
    return db.session.scalars(select(User).where(User.id.in_(live), outside)).all()
