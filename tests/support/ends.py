"""The worker's work about what has an end, and what it leaves."""

from flask import Flask

from sso.jobs import upkeep
from sso.models import User
from sso.store import users


def work(app: Flask) -> int:
    """Announce and carry out what is due; return how many people it concerned."""
    with app.app_context():
        return upkeep.end_due()


def row(app: Flask, user: User) -> User:
    """The user as stored now."""
    with app.app_context():
        stored = users.find(user.id)
        assert stored is not None
        return stored
