"""Sign-ins through a provider: each begins one session. Long requests that wait for one."""

from datetime import timedelta

from flask import Flask
from sqlalchemy import select

from sso import audit
from sso.clock import now
from sso.extensions import db
from sso.jobs import upkeep
from sso.models import BrowserSession, Identity, UpstreamSession, User
from sso.services import clients
from sso.store import identities
from tests.conftest import Clock
from tests.support.actors import Browser
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


def test_a_sign_in_begins_one_session(app: Flask, user: User) -> None:
    """Of two requests that complete it, the later one begins nothing."""
    for _ in range(2):
        Browser(app).sign_in()
    with app.app_context():
        first, second = db.session.scalars(select(BrowserSession.id)).all()
        identity = Identity(user_id=user.id, provider="corp", issuer="i", subject="1")
        identities.add(identity)
        sign_ins = [UpstreamSession(identity_id=identity.id, amr="fed") for _ in range(2)]
        for sign_in in sign_ins:
            identities.add_session(sign_in)
        assert identities.bind(sign_ins[0], first)
        assert not identities.bind(sign_ins[0], second)
        assert identities.unused_session(sign_ins[0].id, user.id) is None
        assert identities.unused_session(sign_ins[1].id, user.id) is not None
        assert identities.sessions_of(identity.id) == [first]
        assert identities.bind(sign_ins[1], second)
