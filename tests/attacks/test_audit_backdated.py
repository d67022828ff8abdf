"""Who can write to the database wants the worker to remove the traces."""

from datetime import UTC, datetime

from flask import Flask

from sso import audit
from sso.audit import chain
from sso.audit.events import Event
from sso.extensions import db
from sso.models import AuditEvent

NEW = "another long password"
THIEFS = "the password of a thief"


def test_backdated_events_are_not_purged_unseen(app: Flask) -> None:
    with app.app_context():
        for number in range(5):
            audit.event(Event.EXPORTED, user=f"user {number}")
        db.session.commit()
        chain.append_to_chain()
        noted = chain.verify()
        assert not noted.faults
        # Somebody who can write to the database, and no more, wants events 1 to 4 gone.
        for event in db.session.query(AuditEvent).filter(AuditEvent.number <= 4):
            event.at = datetime(2020, 1, 1, tzinfo=UTC)
        db.session.commit()
        assert chain.verify().faults
        chain.purge_due()  # the worker, within the hour
        found = chain.verify((noted.head_number, noted.head_seal))
        assert found.faults, "the worker has removed the traces itself"
