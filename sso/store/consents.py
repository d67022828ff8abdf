"""Statements about consents."""

from uuid import UUID

from sqlalchemy import select

from sso import clock
from sso.extensions import db
from sso.models import Consent


def find(user_id: UUID, client_id: str) -> Consent | None:
    return db.session.scalar(
        select(Consent).where(Consent.user_id == user_id, Consent.client_id == client_id)
    )


def remember(user_id: UUID, client_id: str, scopes: tuple[str, ...]) -> None:
    """Remember what was allowed, beside what was allowed before."""
    consent = db.session.scalar(
        select(Consent)
        .where(Consent.user_id == user_id, Consent.client_id == client_id)
        .with_for_update()
    )
    if consent is None:
        consent = Consent(user_id=user_id, client_id=client_id, scope="")
        db.session.add(consent)
    consent.scope = " ".join(dict.fromkeys((*consent.scope.split(), *scopes)))
    consent.updated_at = clock.now()
    db.session.flush()
