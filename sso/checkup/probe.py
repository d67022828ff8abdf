"""The user and the client that exist for one sign-in of a check."""

import secrets
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID, uuid4

from sso import clock
from sso.audit import Actor
from sso.config.urls import DOCTOR_DOMAIN
from sso.extensions import db
from sso.mfa import totp
from sso.services import accounts, clients
from sso.services.checks import RegistrationError
from sso.store import approvals, sessions, users
from sso.store import clients as stored_clients

CALLBACK = f"https://{DOCTOR_DOMAIN}/callback"
# Longer than any run takes: older ones were left behind by a run that was killed.
_LEFT_BEHIND = timedelta(minutes=10)


@dataclass(frozen=True)
class Person:
    """The user to sign in as."""

    user_id: UUID
    email: str
    password: str
    totp_secret: str | None


@dataclass(frozen=True)
class Probe:
    """The user and the client to try the code flow with."""

    person: Person
    client_id: str
    client_secret: str


class Busy(Exception):
    """There is a temporary user of this name already."""


@contextmanager
def temporary_user(
    actor: Actor,
    name: str | None = None,
    *,
    groups: Iterable[str] = (),
    has_second_factor: bool = False,
) -> Iterator[Person]:
    """Create a user, who gets no mail; delete it with everything that depends on it at the end.

    `name`: before the @ of its email address; otherwise a random one. Raises `Busy`.
    """
    _remove_left_behind(actor)
    user_id, password = uuid4(), secrets.token_urlsafe(24)
    email = f"{name or f'doctor-{secrets.token_hex(8)}'}@{DOCTOR_DOMAIN}"
    secret = totp.new_secret() if has_second_factor else None
    with _until_asked_to_end():
        try:
            _create(actor, user_id, email, password, groups)
            if secret:
                # The code of the step before: each counts once, and the sign-in needs this one's.
                totp.enrol(user_id, secret, totp.code(secret, steps=-1))
            db.session.commit()
            yield Person(user_id, email, password, secret)
        finally:
            db.session.rollback()
            _remove_user(actor, user_id)


def _create(actor: Actor, user_id: UUID, email: str, password: str, groups: Iterable[str]) -> None:
    try:
        accounts.create(
            actor,
            user_id=user_id,
            email=email,
            name="Doctor",
            password=password,
            email_verified=True,
            groups=groups,
        )
    except RegistrationError:
        db.session.rollback()
        if users.find_by_email(email):
            raise Busy from None
        raise


@contextmanager
def temporary_probe(actor: Actor, name: str | None = None) -> Iterator[Probe]:
    """A temporary user, and a client that is deleted, too. Raises `Busy`."""
    with temporary_user(actor, name) as person:
        client_id = f"doctor-{secrets.token_hex(8)}"
        metadata = {"client_name": f"flask {person.email}", "redirect_uris": [CALLBACK]}
        try:
            _, client_secret = clients.register(actor, metadata, client_id=client_id)
            db.session.commit()
            yield Probe(person, client_id, client_secret)
        finally:
            db.session.rollback()
            _remove_client(actor, client_id)


@contextmanager
def _until_asked_to_end() -> Iterator[None]:
    """At SIGTERM what is to be done in the end is done, as at SIGINT."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def ip_address_of(user_id: UUID) -> str | None:
    """The IP address from which, to the server, the user signed in."""
    found = sessions.of_user(user_id)
    db.session.rollback()
    return found[0].address if found else None


def _remove_left_behind(actor: Actor) -> None:
    before = clock.now() - _LEFT_BEHIND
    for client in stored_clients.every():
        if client.redirect_uris == [CALLBACK] and client.created_at < before:
            _remove_client(actor, client.client_id)
    for user in users.of_domain(DOCTOR_DOMAIN, before):
        _remove_user(actor, user.id)


def _remove_user(actor: Actor, user_id: UUID) -> None:
    if user := users.lock_any(user_id):
        # Otherwise a real application would be sent a logout token of somebody it has never met.
        approvals.drop_all_unredeemed(user_id)
        user.groups = []  # it may be the last administrator, who could not be deleted
        accounts.delete(actor, user)
    db.session.commit()


def _remove_client(actor: Actor, client_id: str) -> None:
    with suppress(LookupError):
        clients.delete(actor, client_id)
    db.session.commit()
