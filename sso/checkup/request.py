"""An authorization request, as a client makes it."""

import secrets
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import urlencode


@dataclass(frozen=True)
class Request:
    """An authorization request of a client, and what it must remember."""

    url: str
    issuer: str
    callback: str
    state: str
    nonce: str
    verifier: str

    @classmethod
    def make(
        cls,
        base_url: str,
        client_id: str,
        callback: str,
        scope: str,
        push: Callable[[Mapping[str, str]], str] | None = None,
    ) -> "Request":
        """`push`: stores the parameters, and gives the request URI."""
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        challenge = urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        values = {
            "response_type": "code",
            "client_id": client_id,
            "redirect_uri": callback,
            "scope": scope,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        query = {"client_id": client_id, "request_uri": push(values)} if push else values
        url = f"{base_url}/oauth2/authorize?{urlencode(query)}"
        return cls(url, base_url, callback, state, nonce, verifier)
