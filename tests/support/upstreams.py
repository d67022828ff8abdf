"""Upstream providers within the process: they sign tokens, and answer what is sent to them."""

import hashlib
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from joserfc.jwk import Key
from joserfc.util import urlsafe_b64encode

from sso import clock
from sso.config.upstream.oidc import OidcProvider
from sso.metrics.exporter import Counters
from sso.observability import counters
from sso.process.http_call import Answer
from tests.support.actors import ISSUER, challenge_of
from tests.support.signing import EC, public, sign

DANA = {
    "sub": "1",
    "email": "dana@example.com",
    "email_verified": True,
    "name": "Dana There",
}


def provider(name: str = "corp", **more: Any) -> OidcProvider:
    usual: dict[str, Any] = {
        "id": name,
        "type": "oidc",
        "name": name.title(),
        "issuer": f"https://{name}.example",
        "client_id": f"us-at-{name}",
        "client_secret": "s3cret",
        "trust_email": True,
    }
    return OidcProvider(**(usual | more))


@dataclass
class Upstream:
    """One provider. `says`: its claims about the person; `None` leaves one out.

    `token`: what its identity tokens have in place of the right claims; `answers`: what it answers
    to a request for a URL that ends so, in place of the right thing.
    """

    issuer: str = "https://corp.example"
    client_id: str = "us-at-corp"
    key: Key = field(default_factory=lambda: EC)
    kid: str = "k1"
    says: dict[str, Any] = field(default_factory=lambda: dict(DANA))
    token: dict[str, Any] = field(default_factory=dict)
    header: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    answers: dict[str, Answer | Exception] = field(default_factory=dict)
    is_let_in: bool = True
    gives_refresh_tokens: bool = True
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    # By code: nonce, challenge, redirect URI.
    codes: dict[str, tuple[str | None, str, str]] = field(default_factory=dict)

    def authorize(self, url: str, **more: str | None) -> str:
        """The person signs in: where their browser is sent back to."""
        asked = dict(parse_qsl(urlsplit(url).query))
        assert url.startswith(f"{self.issuer}/authorize?"), url
        assert asked["code_challenge_method"] == "S256"
        assert asked["client_id"] == self.client_id
        code = secrets.token_urlsafe(8)
        self.codes[code] = (
            asked.get("nonce"),
            asked["code_challenge"],
            asked["redirect_uri"],
        )
        usual = {"code": code, "state": asked["state"], "iss": self.issuer}
        answer = {name: value for name, value in (usual | more).items() if value is not None}
        return f"{asked['redirect_uri']}?{urlencode(answer)}"

    def id_token(self, nonce: str | None, access_token: str | None = None) -> str:
        now = clock.timestamp(clock.now())
        claims = {
            "iss": self.issuer,
            "aud": self.client_id,
            "iat": now,
            "exp": now + 300,
            "nonce": nonce,
            "at_hash": half_hash(access_token) if access_token else None,
            **self.says,
            **self.token,
        }
        return self.sign(claims)

    def sign(self, claims: Mapping[str, Any], **header: Any) -> str:
        given = {name: value for name, value in claims.items() if value is not None}
        return sign(given, self.key, **{"kid": self.kid, **self.header, **header})

    def logout_token(self, **more: Any) -> str:
        now = clock.timestamp(clock.now())
        event: dict[str, Any] = {"http://schemas.openid.net/event/backchannel-logout": {}}
        claims = {
            "iss": self.issuer,
            "aud": self.client_id,
            "iat": now,
            "exp": now + 120,
            "jti": secrets.token_urlsafe(8),
            "events": event,
            "sub": self.says["sub"],
        }
        return self.sign({**claims, **more}, typ="logout+jwt")

    def sent_to(self, path: str) -> list[dict[str, str]]:
        """The forms that an endpoint got. Documents are read again at any time, beside them."""
        return [form for url, form in self.asked if url == f"{self.issuer}{path}"]

    def call(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        form = dict(parse_qsl((body or b"").decode()))
        self.asked.append((url, form))
        path = url.removeprefix(self.issuer)
        if path in self.answers:
            answer = self.answers[path]
            if isinstance(answer, Exception):
                raise answer
            return answer
        if path == "/.well-known/openid-configuration":
            return answered(self.document())
        if path == "/jwks":
            return answered({"keys": [public(self.key, self.kid)]})
        if path == "/token":
            return self._token(form)
        if path == "/introspect":
            return answered({"active": form["token"] == "at" and self.is_let_in})
        if path == "/userinfo":
            assert {k.lower(): v for k, v in headers.items()}["authorization"] == "Bearer at"
            return answered(self.says)
        return answered({}, 404)

    def document(self) -> dict[str, Any]:
        urls = {
            "authorization_endpoint": "authorize",
            "token_endpoint": "token",
            "jwks_uri": "jwks",
            "userinfo_endpoint": "userinfo",
            "end_session_endpoint": "logout",
        }
        return {
            "issuer": self.issuer,
            **{name: f"{self.issuer}/{path}" for name, path in urls.items()},
            "authorization_response_iss_parameter_supported": True,
            **self.metadata,
        }

    def _token(self, form: Mapping[str, str]) -> Answer:
        if form.get("grant_type") == "refresh_token":
            return answered({"access_token": "at", "token_type": "Bearer", "refresh_token": "rt2"})
        nonce, challenge, redirect_uri = self.codes.pop(form["code"], (None, "", ""))
        if challenge_of(form["code_verifier"]) != challenge or form["redirect_uri"] != redirect_uri:
            return answered({"error": "invalid_grant"}, 400)
        tokens = {"access_token": "at", "id_token": self.id_token(nonce, "at")}
        more = {"refresh_token": "rt"} if self.gives_refresh_tokens else {}
        return answered({**tokens, **more, "token_type": "Bearer"})


class Internet:
    """Stands for `http_call.call`: each upstream answers for its issuer's URLs."""

    def __init__(self, *upstreams: Upstream) -> None:
        self.upstreams = list(upstreams)

    def call(
        self,
        method: str,
        url: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        **_: Any,
    ) -> Answer:
        for one in self.upstreams:
            if url.startswith(one.issuer):
                return one.call(method, url, body, headers or {})
        raise OSError(f"nothing is at {url}")


def answered(body: Any, status: int = 200) -> Answer:
    return Answer(status, {"content-type": "application/json"}, {}, json.dumps(body).encode())


def half_hash(access_token: str) -> str:
    digest = hashlib.sha256(access_token.encode()).digest()
    return urlsafe_b64encode(digest[:16]).decode()


def counted(monkeypatch: pytest.MonkeyPatch) -> Callable[[], dict[tuple[str, str], float]]:
    """What the metric of upstream sign-ins says from now on, by provider and outcome."""
    made = Counters()
    monkeypatch.setattr(counters, "_counters", made)

    def read() -> dict[tuple[str, str], float]:
        samples = (one for family in made.registry.collect() for one in family.samples)
        return {
            (one.labels["provider"], one.labels["outcome"]): one.value
            for one in samples
            if one.name == "sso_upstream_sign_ins_total"
        }

    return read


def redirect_uri(name: str = "corp") -> str:
    return f"{ISSUER}/sign-in/callback/{name}"
