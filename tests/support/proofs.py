"""Makes DPoP proofs (RFC 9449), good and bad ones, with joserfc."""

import base64
import hashlib
import json
import secrets
from typing import Any

from joserfc import jws
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey

from sso import clock
from tests.support.actors import BASE, ISSUER, ORIGIN, RelyingParty

LEFT_OUT = object()


def make_key(alg: str = "ES256", bits: int = 2048) -> Key:
    if alg == "ES256":
        return ECKey.generate_key("P-256")
    return (
        RSAKey.generate_key(bits) if alg in ("PS256", "RS256") else OKPKey.generate_key("Ed25519")
    )


def sign(header: dict[str, Any], claims: Any, key: Key) -> str:
    """A JWS, whatever its header says; `claims` may be text."""
    payload = claims if isinstance(claims, str) else json.dumps(claims)
    registry = jws.JWSRegistry(algorithms=[header["alg"]], strict_check_header=False)
    return jws.serialize_compact(header, payload, key, registry=registry)


class DPoP:
    """A client's key, and the proofs that it makes."""

    def __init__(self, alg: str = "ES256") -> None:
        self.alg, self.key = alg, make_key(alg)

    @property
    def jkt(self) -> str:
        return self.key.thumbprint()

    def proof(
        self,
        path: str = "/oauth2/token",
        *,
        token: str | None = None,
        header: dict[str, Any] | None = None,
        **claims: Any,
    ) -> str:
        """A proof for an endpoint; `LEFT_OUT` leaves a member out."""
        head = {"typ": "dpop+jwt", "alg": self.alg, "jwk": self.key.as_dict(private=False)}
        body: dict[str, Any] = {
            "jti": secrets.token_urlsafe(16),
            "htm": "GET" if path.endswith("userinfo") else "POST",
            "htu": ISSUER + path,
            "iat": int(clock.now().timestamp()),
        }
        if token is not None:
            body["ath"] = ath_of(token)
        made = [{**head, **(header or {})}, {**body, **claims}]
        head, body = ({k: v for k, v in one.items() if v is not LEFT_OUT} for one in made)
        return sign(head, body, self.key)

    def header(self, path: str = "/oauth2/token", **more: Any) -> dict[str, str]:
        return {"DPoP": self.proof(path, **more)}

    def userinfo(self, client: RelyingParty, token: str, **more: Any) -> Any:
        """Ask userinfo with a proof; `proof` replaces it."""
        proof = more.pop("proof", None) or self.proof("/oauth2/userinfo", token=token, **more)
        headers = {"Authorization": f"DPoP {token}", "DPoP": proof}
        backend = client.app.test_client(use_cookies=False)
        return backend.get(f"{BASE}/oauth2/userinfo", headers=headers, base_url=ORIGIN)


def ath_of(token: str) -> str:
    digest = hashlib.sha256(token.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
