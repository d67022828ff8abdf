"""An authenticator in software (WebAuthn §6), for what Chromium's virtual one never does: lie."""

import hashlib
import html
import json
import re
import secrets
from typing import Any
from urllib.parse import urlsplit

import cbor2
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from webauthn.helpers import base64url_to_bytes, bytes_to_base64url

from tests.support.actors import Page

ORIGIN = "http://localhost:5000"
PRESENT, VERIFIED, SYNCED, ATTESTED = 0x01, 0x04, 0x08 | 0x10, 0x40


class Authenticator:
    """One passkey of one user."""

    def __init__(self, origin: str = ORIGIN, synced: bool = False) -> None:
        self.origin, self.synced, self.count = origin, synced, 0
        self.aaguid = bytes(16)
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.id = secrets.token_bytes(32)
        self.handle = ""

    def create(self, options: dict[str, Any], verified: bool = True) -> str:
        """Answer `navigator.credentials.create`."""
        self.handle = options["user"]["id"]
        point = self.key.public_key().public_numbers()
        cose = {1: 2, 3: -7, -1: 1, -2: point.x.to_bytes(32), -3: point.y.to_bytes(32)}
        attested = self.aaguid + len(self.id).to_bytes(2) + self.id + cbor2.dumps(cose)
        data = self._data(verified, ATTESTED) + attested
        made = cbor2.dumps({"fmt": "none", "attStmt": {}, "authData": data})
        return self._answer(
            clientDataJSON=self._client_data("webauthn.create", options), attestationObject=made
        )

    def get(self, options: dict[str, Any], verified: bool = True, handle: str | None = None) -> str:
        """Answer `navigator.credentials.get`; `handle`: the user that it claims to be of."""
        self.count += not self.synced  # copies could not keep one count
        data, client_data = self._data(verified), self._client_data("webauthn.get", options)
        signed = data + hashlib.sha256(client_data).digest()
        return self._answer(
            clientDataJSON=client_data,
            authenticatorData=data,
            signature=self.key.sign(signed, ec.ECDSA(SHA256())),
            userHandle=base64url_to_bytes(self.handle if handle is None else handle),
        )

    def _data(self, verified: bool, more: int = 0) -> bytes:
        flags = PRESENT | more | (VERIFIED if verified else 0) | (SYNCED if self.synced else 0)
        rp_id = (urlsplit(self.origin).hostname or "").encode()
        return hashlib.sha256(rp_id).digest() + bytes([flags]) + self.count.to_bytes(4)

    def _client_data(self, kind: str, options: dict[str, Any]) -> bytes:
        content = {"type": kind, "challenge": options["challenge"], "origin": self.origin}
        return json.dumps(content).encode()

    def _answer(self, **response: bytes) -> str:
        return json.dumps(
            {
                "id": bytes_to_base64url(self.id),
                "rawId": bytes_to_base64url(self.id),
                "type": "public-key",
                "clientExtensionResults": {},
                "response": {name: bytes_to_base64url(value) for name, value in response.items()},
            }
        )


def options_of(page: Page) -> dict[str, Any]:
    """What a page hands to the authenticator."""
    found = re.search(r'data-options="([^"]*)"', page.html)
    assert found
    options: dict[str, Any] = json.loads(html.unescape(found[1]))
    return options
