"""Statements about authorization codes; single use is decided here."""

from datetime import datetime

from sqlalchemy import exists, select, update
from sqlalchemy.orm import contains_eager

from sso.extensions import db
from sso.models import AuthorizationCode, Grant


def add(code: AuthorizationCode) -> None:
    db.session.add(code)
    db.session.flush()


def use(digest: str, client_id: str, now: datetime) -> AuthorizationCode | None:
    """Use a code up, if it is unused, unexpired and this client's: one atomic statement."""
    return db.session.scalar(
        update(AuthorizationCode)
        .where(
            AuthorizationCode.digest == digest,
            AuthorizationCode.used_at.is_(None),
            AuthorizationCode.expires_at > now,
            exists().where(Grant.id == AuthorizationCode.grant_id, Grant.client_id == client_id),
        )
        .values(used_at=now)
        .returning(AuthorizationCode)
        .execution_options(synchronize_session=False)
    )


def find_used(digest: str, client_id: str) -> AuthorizationCode | None:
    """A code of this client that was used before, with its grant."""
    return db.session.scalar(
        select(AuthorizationCode)
        .join(AuthorizationCode.grant)
        .options(contains_eager(AuthorizationCode.grant))
        .where(
            AuthorizationCode.digest == digest,
            AuthorizationCode.used_at.is_not(None),
            Grant.client_id == client_id,
        )
        .execution_options(populate_existing=True)
    )
