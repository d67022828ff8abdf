"""Statements about administrators, as a group of whom one has to remain."""

from collections.abc import Collection
from uuid import UUID

from sqlalchemy import func, select

from sso.extensions import db
from sso.models import User
from sso.store import groups

_KIND, _TURN = 0x73736F, 0  # of advisory locks (see `client_turn`)


def remain(group: str, without: Collection[UUID]) -> bool:
    """Whether others in the group can sign in. The next caller waits until we have committed.

    On PostgreSQL two who remove each other would otherwise both see the other one remain.
    """
    if db.engine.dialect.name == "postgresql":
        db.session.execute(select(func.pg_advisory_xact_lock(_KIND, _TURN)))
    enabled = select(User.id).where(groups.has_member(group), User.disabled_at.is_(None))
    return db.session.scalar(enabled.where(User.id.not_in(without)).limit(1)) is not None
