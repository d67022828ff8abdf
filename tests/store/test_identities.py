"""Long requests that wait for a provider: bounded in time, and gone with their client."""

from datetime import timedelta

from flask import Flask

from sso import audit
from sso.clock import now
from sso.extensions import db
from sso.jobs import upkeep
from sso.services import clients
from sso.store import identities
from tests.conftest import Clock
from tests.support.factories import make_client


def test_it_is_purged_when_its_time_is_over(app: Flask, clock: Clock) -> None:
    client = make_client(app)
    with app.app_context():
        identities.add_waiting("a", client.client_id, "signed", now() + timedelta(minutes=15))
        db.session.commit()
        clock.move(minutes=15)
        assert upkeep.purge()["waiting_sign_ins"] == 0  # the clock of another node may be slow
        clock.move(minutes=2)
        assert upkeep.purge()["waiting_sign_ins"] == 1


def test_it_is_deleted_with_its_client(app: Flask) -> None:
    client, other = make_client(app), make_client(app)
    with app.app_context():
        for digest, waiting_for in (("a", client), ("b", other)):
            until = now() + timedelta(minutes=15)
            identities.add_waiting(digest, waiting_for.client_id, "signed", until)
        clients.delete(audit.SYSTEM, client.client_id)
        db.session.commit()
        db.session.expire_all()
        assert identities.find_waiting("a") is None
        assert identities.find_waiting("b") is not None
