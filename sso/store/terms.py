"""Statements about the terms of service: the version that a user has accepted."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import update

from sso.models import User
from sso.store.lists import update_returning


def accept(user_id: UUID, version: str, at: datetime) -> bool:
    """Record the version that a user accepts; return False if it was accepted before. Atomic.

    Applications do not learn of it: `updated_at` and `version` of the user stay.
    """
    rows = update_returning(
        User,
        update(User)
        .where(User.id == user_id, User.terms_version.is_distinct_from(version))
        .values(
            terms_version=version,
            terms_accepted_at=at,
            updated_at=User.updated_at,
            version=User.version,
        ),
    )
    return bool(rows)
