"""Statements about consents."""

from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

from sqlalchemy import delete, select
from sqlalchemy.dialects import postgresql, sqlite

from sso import clock
from sso.extensions import db
from sso.models import Consent


def find(user_id: UUID, client_id: str) -> Consent | None:
    return db.session.scalar(
        select(Consent).where(Consent.user_id == user_id, Consent.client_id == client_id)
    )


def remember(
    user_id: UUID, client_id: str, allowed: Iterable[str], declined: Iterable[str] = ()
) -> datetime:
    """Remember what was allowed and what was unticked, beside what was said before of other
    scopes; also by two tabs at once. Gives the moment that is noted.
    """
    insert = postgresql.insert if db.engine.dialect.name == "postgresql" else sqlite.insert
    now = clock.now()
    db.session.execute(
        insert(Consent)
        .values(
            user_id=user_id,
            client_id=client_id,
            scope="",
            declined="",
            created_at=now,
            updated_at=now,
        )
        .on_conflict_do_nothing()
    )
    consent = db.session.scalars(
        select(Consent)
        .where(Consent.user_id == user_id, Consent.client_id == client_id)
        .with_for_update()
        .execution_options(populate_existing=True)
    ).one()
    consent.scope = _merged(consent.scope, allowed, declined)
    consent.declined = _merged(consent.declined, declined, allowed)
    consent.updated_at = now
    db.session.flush()
    return now


def _merged(before: str, more: Iterable[str], fewer: Iterable[str]) -> str:
    gone = set(fewer)
    return " ".join(name for name in dict.fromkeys((*before.split(), *more)) if name not in gone)


def withdraw(user_id: UUID, client_id: str) -> None:
    """Forget what a user allowed a client; its grants are another statement's business."""
    db.session.execute(
        delete(Consent).where(Consent.user_id == user_id, Consent.client_id == client_id)
    )
