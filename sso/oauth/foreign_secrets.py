"""Client secrets of which only the hash of another server is stored.

A check costs as much as that of a password, and waits for others. So the request is answered twice:
the first time until such a secret is found, the second time with the result of the check. In
between, no transaction is open, and the connection is free for others.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

from sso import database
from sso.crypto import passwords
from sso.oauth.authlib_request import ProtocolRequest
from sso.ratelimit import limiting
from sso.store import secret_hashes
from sso.store.clients import RegisteredClient

_PAUSE = 1  # second

Answer = TypeVar("Answer")


class _Unchecked(Exception):
    """A secret has to be checked before the request can be answered."""

    def __init__(self, secret: str, hashes: Mapping[str, str]) -> None:
        super().__init__("a secret has not been checked yet")
        self.secret, self.hashes = secret, hashes


def answered(request: ProtocolRequest, answer: Callable[[], Answer]) -> Answer:
    """Answer a request in a transaction that `answer` begins and ends, a second time if necessary.

    Raises `TooManyAttempts`.
    """
    try:
        return answer()
    except _Unchecked as error:
        unchecked = error
    database.end_session()
    request.foreign_digest = _matched(unchecked.secret, unchecked.hashes)
    return answer()


def _matched(secret: str, hashes: Mapping[str, str]) -> str:
    """Return the digest that stands for the hash of a secret; "" if it is wrong."""
    try:
        return next(
            (d for d, stored in hashes.items() if passwords.verify_foreign(secret, stored)), ""
        )
    except passwords.Busy:
        raise limiting.TooManyAttempts(_PAUSE) from None


def is_right(request: ProtocolRequest, client: RegisteredClient, secret: str) -> bool:
    """Return whether a secret is one of them, and store its digest if so. Within `answered`.

    A check is limited before, not only after failures: until a client has used its secret here, a
    flood of wrong ones delays it. Raises `TooManyAttempts`.
    """
    digests = client.foreign_digests
    if not digests:
        return False
    if request.foreign_digest is None:
        _, seconds = limiting.ask(limiting.CLIENT_AUTHENTICATION, client.client_id)
        if seconds:
            raise limiting.TooManyAttempts(seconds)
        hashes = secret_hashes.hashes(request.connection, client.client_id, digests)
        raise _Unchecked(secret, hashes)
    if request.foreign_digest not in digests:
        return False
    secret_hashes.replace(request.connection, client.client_id, request.foreign_digest, secret)
    return True
