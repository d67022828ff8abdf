"""Definitions of attributes that are deleted while somebody writes values."""

from threading import Event, Thread

from flask import Flask

from sso import audit
from sso.extensions import db
from sso.services import attributes
from sso.store import attributes as stored
from tests.support.factories import make_attribute

OLGA = audit.Actor("olga")


def test_a_definition_stays_while_values_are_written(app: Flask) -> None:
    """A new user's password is hashed between the check of the values and their INSERT."""
    make_attribute(app, "desk")
    is_deleted = Event()

    def delete() -> None:
        with app.app_context():
            attributes.delete(OLGA, "desk")
            db.session.commit()
        is_deleted.set()

    deletion = Thread(target=delete)
    with app.app_context():
        stored.share()
        deletion.start()
        assert not is_deleted.wait(0.5)
        assert stored.find("desk")
        db.session.commit()
    assert is_deleted.wait(15)
    deletion.join()
    with app.app_context():
        assert stored.find("desk") is None
