"""The terms of service: the version that people have to accept. Nothing here commits."""

from sso import audit, clock, context
from sso.audit import Actor
from sso.audit.events import Event
from sso.models import User
from sso.store import terms


def missing(user: User | None) -> str | None:
    """Return the version of the terms that a user has still to accept; `None`: there is none.

    `user`: `None` before there is an account.
    """
    version = context.settings().terms_version
    return version if user is None or user.terms_version != version else None


@audit.acting
def accept(actor: Actor, user: User, version: str) -> None:
    """Record that a user has accepted a version. Accepting it again keeps the first time."""
    if terms.accept(user.id, version, clock.now()):
        audit.event(Event.TERMS_ACCEPTED, user=user.id, version=version)
