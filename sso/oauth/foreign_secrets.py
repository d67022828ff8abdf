"""Client secrets of which only the hash of another server is stored."""

from sqlalchemy import Connection

from sso.crypto import passwords
from sso.ratelimit import limiting
from sso.store import secret_hashes
from sso.store.clients import RegisteredClient

_PAUSE = 1  # second


def is_right(connection: Connection, client: RegisteredClient, secret: str) -> bool:
    """Return whether a secret is one of them, and store its digest if so.

    A check costs as much as that of a password. So it is limited before, not only after failures:
    until a client has used its secret here, a flood of wrong ones delays it. Raises
    `TooManyAttempts`.
    """
    digests = client.foreign_digests
    if not digests:
        return False
    _, seconds = limiting.ask(limiting.CLIENT_AUTHENTICATION, client.client_id)
    if seconds:
        raise limiting.TooManyAttempts(seconds)
    hashes = secret_hashes.hashes(connection, client.client_id, digests)
    try:
        for digest, stored in hashes.items():
            if passwords.verify_foreign(secret, stored):
                secret_hashes.replace(connection, client.client_id, digest, secret)
                return True
    except passwords.Busy:
        raise limiting.TooManyAttempts(_PAUSE) from None
    return False
