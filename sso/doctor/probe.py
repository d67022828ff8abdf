"""A user and a client that exist for one run of `flask doctor`."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from sso import audit, clock
from sso.extensions import db
from sso.services import accounts, clients
from sso.store import clients as stored_clients
from sso.store import sessions, users

# A reserved domain (RFC 2606 §2): no mail and no redirect ever reaches anyone.
DOMAIN = "sso-doctor.example"
CALLBACK = f"https://{DOMAIN}/callback"
# Longer than any run takes: older ones were left behind by a run that was killed.
_LEFT_BEHIND = timedelta(minutes=10)


@dataclass(frozen=True)
class Probe:
    """The user and the client to try the code flow with."""

    user_id: UUID
    email: str
    password: str
    client_id: str
    client_secret: str


@contextmanager
def temporary_probe() -> Iterator[Probe]:
    """Create a user and a client; delete them with everything that depends on them at the end."""
    _remove_left_behind()
    name, password = f"doctor-{secrets.token_hex(8)}", secrets.token_urlsafe(24)
    actor, email = audit.operator(by="doctor"), f"{name}@{DOMAIN}"
    user = accounts.create(
        actor, email=email, name="Doctor", password=password, email_verified=True
    )
    metadata = {"client_name": f"flask {name}", "redirect_uris": [CALLBACK]}
    client, client_secret = clients.register(actor, metadata)
    db.session.commit()
    try:
        yield Probe(user.id, user.email, password, client.client_id, client_secret)
    finally:
        db.session.rollback()
        _remove(user.id, client.client_id)


def ip_address_of(user_id: UUID) -> str | None:
    """The IP address from which, to the server, the user signed in."""
    found = sessions.of_user(user_id)
    db.session.rollback()
    return found[0].address if found else None


def _remove_left_behind() -> None:
    before = clock.now() - _LEFT_BEHIND
    for user in users.every():
        if user.email.endswith(f"@{DOMAIN}") and user.created_at < before:
            _remove(user.id, None)
    for client in stored_clients.every():
        if client.redirect_uris == [CALLBACK] and client.created_at < before:
            _remove(None, client.client_id)


def _remove(user_id: UUID | None, client_id: str | None) -> None:
    actor = audit.operator(by="doctor")
    client = stored_clients.lock_to_remove(client_id) if client_id else None  # before the user
    if user_id and (user := users.find(user_id)):
        accounts.delete(actor, user)
    if client:
        clients.delete(actor, client.client_id)
    db.session.commit()
