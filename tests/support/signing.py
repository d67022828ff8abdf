"""A relying party that authenticates with its key instead of a secret (private_key_jwt)."""

import json
import secrets
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flask import Flask
from joserfc import jws
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey
from joserfc.util import urlsafe_b64encode
from werkzeug.test import TestResponse

from sso import clock
from sso.config.auth_methods import PRIVATE_KEY_JWT
from tests.support.actors import ISSUER, Browser, Page, RelyingParty, pkce
from tests.support.factories import make_client
from tests.support.proofs import DPoP

ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
EC, OTHER_EC = ECKey.generate_key("P-256"), ECKey.generate_key("P-256")
ED = OKPKey.generate_key("Ed25519")
RSA = RSAKey.generate_key(2048)
KEYS: dict[str, Key] = {"ES256": EC, "EdDSA": ED, "Ed25519": ED, "PS256": RSA, "RS256": RSA}


def public(key: Key, kid: str = "k1", **more: Any) -> dict[str, Any]:
    return {**key.as_dict(private=False), "kid": kid, **more}


def sign(claims: Mapping[str, Any] | str, key: Key = EC, **header: Any) -> str:
    """A JWT; the claims may be JSON that no dictionary can hold. `None` leaves something out."""
    head = {name: value for name, value in {"alg": "ES256", "kid": "k1", **header}.items()
            if value is not None}  # fmt: skip
    body = claims if isinstance(claims, str) else json.dumps(claims)
    registry = jws.JWSRegistry(algorithms=[str(head.get("alg"))], strict_check_header=False)
    registry.header_registry = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return jws.serialize_compact(head, body, key, registry=registry)


def unsigned(header: Any, claims: Any, signature: bytes = b"") -> str:
    parts = (json.dumps(header).encode(), json.dumps(claims).encode(), signature)
    return ".".join(urlsafe_b64encode(part).decode() for part in parts)


@dataclass
class KeyedParty(RelyingParty):
    """It makes a new assertion for each request."""

    key: Key = field(default_factory=lambda: EC)
    alg: str = "ES256"
    kid: str | None = "k1"

    def claims(self, **more: Any) -> dict[str, Any]:
        """Of an assertion that is accepted; `None` leaves one out."""
        now = int(clock.now().timestamp())
        values = {
            "iss": self.client_id, "sub": self.client_id, "aud": ISSUER, "iat": now,
            "exp": now + 60, "jti": secrets.token_urlsafe(16), **more,
        }  # fmt: skip
        return {name: value for name, value in values.items() if value is not None}

    def assertion(self, header: Mapping[str, Any] | None = None, **claims: Any) -> str:
        head = {"alg": self.alg, "kid": self.kid, **(header or {})}
        return sign(self.claims(**claims), self.key, **head)

    def credentials(self) -> dict[str, str]:
        return {"client_assertion_type": ASSERTION_TYPE, "client_assertion": self.assertion()}


def make_keyed_client(app: Flask, alg: str = "ES256", **more: Any) -> KeyedParty:
    """A client with a key of its own for this algorithm; it does PKCE."""
    key = KEYS[alg]
    given = {"auth_method": PRIVATE_KEY_JWT, "name": "Bank", **more}
    if "jwks_uri" not in given:
        given.setdefault("jwks", {"keys": [public(key)]})
    made = make_client(app, **given)
    return KeyedParty(app, made.client_id, "", made.redirect_uri, pkce()[0], key, alg)


@dataclass
class FapiParty(KeyedParty):
    """As FAPI 2.0 Security Profile wants it: it pushes its requests, and has a DPoP key."""

    dpop: DPoP = field(default_factory=DPoP)

    def send(self, browser: Browser, **more: str | None) -> Page:
        """Push a request, and send the browser with its URI."""
        answer = self.push(**more)
        assert answer.status_code == 201, answer.text
        uri = answer.get_json()["request_uri"]
        return browser.open_authorize({"client_id": self.client_id, "request_uri": uri})

    def approve(self, browser: Browser, **more: str | None) -> Page:
        """The whole way to the code."""
        page = self.send(browser, **more)
        if "password" in page.fields:
            page = browser.sign_in()
        return browser.allow() if ("decision", "allow") in page.buttons else page

    def exchange(
        self, code: str, headers: dict[str, str] | None = None, /, **more: str | None
    ) -> TestResponse:
        return super().exchange(code, self.dpop.header() if headers is None else headers, **more)

    def refresh(
        self, refresh_token: str, headers: dict[str, str] | None = None, /, **more: str
    ) -> TestResponse:
        given = self.dpop.header() if headers is None else headers
        return super().refresh(refresh_token, given, **more)


def make_fapi_client(app: Flask, alg: str = "ES256", **more: Any) -> FapiParty:
    """A client of the profile fapi2."""
    made = make_keyed_client(app, alg, profile="fapi2", **more)
    return FapiParty(app, made.client_id, "", made.redirect_uri, made.verifier, made.key, alg)
