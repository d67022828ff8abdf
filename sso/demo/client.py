"""The client: Authlib's, as any Flask application would use it, and what it returned.

Between requests it is kept in a bounded dictionary of this process.
"""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

from authlib.integrations.flask_client import OAuth, OAuthError
from flask import Flask, request, session
from joserfc import jwt
from joserfc.jwk import KeySet
from werkzeug.wrappers import Response

from . import steps
from .steps import Part, Step

T = TypeVar("T")


class BoundedMemory(Generic[T]):
    """The newest entries, each until it expires.

    Tokens are too big for a cookie, so the cookie carries a random key and the rest is here. A real
    application uses a database or Redis. The methods are those that Authlib expects of a cache.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: OrderedDict[str, tuple[float, T]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: str) -> T | None:
        """The value of a key, unless it expired."""
        with self._lock:
            entry = self._entries.get(key)
        return entry[1] if entry and time.monotonic() < entry[0] else None

    def set(self, key: str, value: T, seconds: float) -> None:
        """Keep a value; the oldest entries make room for it."""
        with self._lock:
            self._entries.pop(key, None)
            self._entries[key] = (time.monotonic() + seconds, value)
            while len(self._entries) > self._size:
                self._entries.popitem(last=False)

    def discard(self, condition: Callable[[T], bool]) -> None:
        """Forget every value that meets a condition."""
        with self._lock:
            found = [key for key, (_, value) in self._entries.items() if condition(value)]
            for key in found:
                del self._entries[key]

    def delete(self, key: str) -> None:
        """Forget a value."""
        with self._lock:
            self._entries.pop(key, None)


_LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"
_PENDING = "_state_"  # the prefix of Authlib's keys in the session
_MOST_PENDING = 8


@dataclass
class SignIn:
    """A completed sign-in: who it is, the tokens, and the steps that led here."""

    profile: Mapping[str, Any]
    subject: str
    sid: str | None
    token: Mapping[str, Any]
    steps: tuple[Step, ...]
    refreshes: tuple[Step, ...] = ()
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    lock: Lock = field(default_factory=Lock)


class SampleClient:
    """A confidential client of one server: authorization code, PKCE, OpenID Connect."""

    def __init__(self, app: Flask, *, issuer: str, client_id: str, client_secret: str) -> None:
        self._issuer = issuer
        self._client_id = client_id
        # With a cache, the PKCE verifier stays here and does not travel in the cookie.
        pending: BoundedMemory[str] = BoundedMemory(size=1000)
        self._client: Any = OAuth(app, cache=pending).register(
            "sample",
            client_id=client_id,
            client_secret=client_secret,
            server_metadata_url=f"{issuer}/.well-known/openid-configuration",
            client_kwargs={
                "scope": "openid profile email",
                "code_challenge_method": "S256",
                "token_endpoint_auth_method": "client_secret_post",
                # The rest is for the demo: record exchanges, do not wait forever, do not send
                # loopback requests to a proxy, use a token until its last second.
                "hooks": {"response": [steps.record]},
                "default_timeout": 10,
                "trust_env": False,
                "leeway": 0,
            },
        )

    def _metadata(self) -> Mapping[str, Any]:
        metadata: Mapping[str, Any] = self._client.load_server_metadata()
        if metadata.get("issuer") != self._issuer:  # OIDC Discovery §4.3
            raise OAuthError("wrong_issuer", f"The metadata is not that of {self._issuer}.")
        return metadata

    def _claims_options(self) -> dict[str, Any]:
        return {"iss": {"values": [self._issuer]}, "aud": {"values": [self._client_id]}}

    def begin(self, callback: str) -> Response:
        """Send the browser to the server."""
        self._metadata()
        pending = [key for key in session if key.startswith(_PENDING)]
        pending.sort(key=lambda key: float(session[key]["exp"]))
        for key in pending[: -_MOST_PENDING or None]:  # the cookie must not grow without end
            session.pop(key)
        answer: Response = self._client.authorize_redirect(callback)
        return answer

    def complete(self) -> SignIn:
        """Check the answer that the browser brought, exchange the code, fetch the profile."""
        state = request.args.get("state")
        started = self._client.framework.get_state_data(session, state)
        if started is None:
            raise OAuthError(
                "mismatching_state", "This answer belongs to no sign-in begun in this browser."
            )
        self._check_iss()
        if "error" in request.args:
            self._client.framework.clear_state_data(session, state)
        token = self._client.authorize_access_token(claims_options=self._claims_options())
        identity = token.pop("userinfo", None)
        if identity is None:
            raise OAuthError("missing_id_token", "The server gave no identity token.")
        profile = self._client.userinfo(token=token)
        if profile.get("sub") != identity["sub"]:  # OIDC Core §5.3.2
            raise OAuthError("wrong_subject", "The profile is that of somebody else.")
        answer = list(request.args.items(multi=True))
        return SignIn(
            profile=profile,
            subject=identity["sub"],
            sid=identity.get("sid"),
            token=token,
            steps=steps.of_sign_in(started["url"], answer, token, identity, self._metadata()),
        )

    def _check_iss(self) -> None:
        """The answer must come from the server that was asked (RFC 9207 §2.4)."""
        iss = request.args.get("iss")
        required = self._metadata().get("authorization_response_iss_parameter_supported")
        if iss != self._issuer and (iss is not None or required):
            raise OAuthError("wrong_issuer", f"The answer did not come from {self._issuer}.")

    def refresh(self, sign_in: SignIn) -> None:
        """Trade the refresh token for new tokens; it is used once and replaced by its successor."""
        with sign_in.lock:
            old = sign_in.token
            if not old.get("refresh_token"):
                raise OAuthError("missing_token", "The server gave no refresh token.")
            token = self._client.fetch_access_token(
                grant_type="refresh_token",
                refresh_token=old["refresh_token"],
                scope=old.get("scope"),
            )
            identity = None
            if "id_token" in token:
                identity = self._client.parse_id_token(
                    token, nonce=None, claims_options=self._claims_options()
                )
                if identity["sub"] != sign_in.subject:  # OIDC Core §12.2
                    raise OAuthError("wrong_subject", "The new tokens are somebody else's.")
            sign_in.refreshes = steps.of_refresh(token, identity, self._metadata())
            sign_in.token = {**old, **token}

    def end_session_url(self, sign_in: SignIn, back: str) -> str:
        """Where the browser goes to sign out everywhere (RP-Initiated Logout 1.0 §2)."""
        asked = {"id_token_hint": sign_in.token["id_token"], "post_logout_redirect_uri": back}
        return f"{self._metadata()['end_session_endpoint']}?{urlencode(asked)}"

    def verify_logout_token(self, token: str) -> Mapping[str, Any]:
        """The claims of a logout token (Back-Channel Logout 1.0 §2.6).

        Raises `JoseError` or `ValueError`.
        """
        keys = KeySet.import_key_set(self._client.fetch_jwk_set(force=True))
        found = jwt.decode(token, keys, algorithms=["RS256", "ES256", "EdDSA"])
        if found.header.get("typ") != "logout+jwt":
            raise ValueError("its type is not logout+jwt")
        jwt.JWTClaimsRegistry(
            iss={"essential": True, "value": self._issuer},
            aud={"essential": True, "value": self._client_id},
            iat={"essential": True},
            exp={"essential": True},
            jti={"essential": True},
        ).validate(found.claims)
        if _LOGOUT_EVENT not in found.claims.get("events", {}):
            raise ValueError("it is about another event")
        if "nonce" in found.claims or not {"sub", "sid"} & found.claims.keys():
            raise ValueError("it has a nonce, or no subject and session")
        return found.claims

    def last_exchange(self) -> tuple[Part, ...]:
        """What was last said with the server while this page was made, to explain a failure."""
        return steps.of_failure(self._client.server_metadata)
