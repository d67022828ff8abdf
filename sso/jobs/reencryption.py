"""Encrypts what is in the database with another secret key.

Each row is changed by a statement that requires the text that was read, so that nothing that a
server wrote meanwhile is lost. What the newest secret key encrypts already is left alone: the work
can be interrupted and started again at any time.
"""

from collections.abc import Callable
from typing import NamedTuple

from sso import audit, context
from sso.audit.events import Event
from sso.crypto import keys, secrets
from sso.extensions import db
from sso.mfa import totp
from sso.models import KeyState
from sso.store import factors, webhooks
from sso.store import keys as stored_keys

BATCH = 100


class Count(NamedTuple):
    """How many rows were encrypted again, and those that no secret key decrypts."""

    changed: int
    unreadable: tuple[str, ...] = ()


def reencrypt_signing_keys() -> Count:
    """Encrypt the private keys with the newest secret key; commits."""
    changed, unreadable = 0, []
    for row in stored_keys.every_signing_key():
        try:
            text = keys.reencrypt(context.settings().secret_keys, row)
        except secrets.InvalidToken:
            if row.state != KeyState.RETIRED:  # of a retired one only the public half is needed
                unreadable.append(row.kid)
        else:
            before = row.sealed_private_jwk
            changed += bool(text and stored_keys.replace_signing_key(row.kid, before, text))
    return _done("signing_keys", changed, unreadable)


def reencrypt_totp_secrets(report: Callable[[int, int], None] | None = None) -> Count:
    """Encrypt the secrets of authenticator apps with the newest secret key; commits in batches.

    `report` gets the number of secrets since its last call, and of all.
    """
    changed, unreadable, last = 0, [], None
    total = factors.count_totp_secrets() if report else 0
    while rows := factors.totp_secret_batch(last, BATCH):
        last = rows[-1].user_id
        for row in rows:
            try:
                text = totp.reencrypt(row)
            except secrets.InvalidToken:
                unreadable.append(str(row.user_id))
            else:
                before = row.sealed_secret
                changed += bool(text and factors.replace_totp_secret(row.user_id, before, text))
        db.session.commit()
        if report:
            report(len(rows), total)
    return _done("totp_secrets", changed, unreadable)


def reencrypt_webhook_secrets() -> Count:
    """Encrypt the secrets of webhooks with the newest secret key; commits."""
    changed, unreadable = 0, []
    for row in webhooks.every():
        before = row.sealed_secret
        try:
            text = secrets.reencrypt_webhook_secret(context.settings().secret_keys, before)
        except secrets.InvalidToken:
            unreadable.append(str(row.id))
        else:
            changed += bool(text and webhooks.replace_sealed(row.id, before, text))
    return _done("webhook_secrets", changed, unreadable)


def _done(what: str, changed: int, unreadable: list[str]) -> Count:
    if changed:
        audit.event(Event.REENCRYPTED, what=what, count=changed)
    db.session.commit()
    db.session.expunge_all()
    return Count(changed, tuple(unreadable))
