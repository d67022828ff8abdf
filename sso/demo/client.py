"""The client itself: Authlib's, as any Flask application would use it, and what it brought back."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any
from urllib.parse import urlencode

from authlib.integrations.flask_client import OAuth, OAuthError
from flask import Flask, request, session
from werkzeug.wrappers import Response

from . import logout_token, narration
from .memory import BoundedMemory
from .recording import remember
from .steps import Part, Step

_PENDING = "_state_"  # how Authlib's keys in the session begin
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
                # From here on it is about this page: look on, do not wait for ever, do not send
                # loopback requests to a proxy, use a token to its last second.
                "hooks": {"response": [remember]},
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
        """Check the answer that the browser brought, exchange the code, ask who it is."""
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
        steps = narration.of_sign_in(started["url"], answer, token, identity, self._metadata())
        return SignIn(
            profile=profile,
            subject=identity["sub"],
            sid=identity.get("sid"),
            token=token,
            steps=steps,
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
            sign_in.refreshes = narration.of_refresh(token, identity, self._metadata())
            sign_in.token = {**old, **token}

    def end_session_address(self, sign_in: SignIn, back: str) -> str:
        """Where the browser goes to sign out everywhere (RP-Initiated Logout 1.0 §2)."""
        asked = {"id_token_hint": sign_in.token["id_token"], "post_logout_redirect_uri": back}
        return f"{self._metadata()['end_session_endpoint']}?{urlencode(asked)}"

    def verify_logout_token(self, token: str) -> Mapping[str, Any]:
        """The claims of a logout token. Raises `JoseError` or `ValueError`."""
        keys = logout_token.key_set(self._client.fetch_jwk_set(force=True))
        return logout_token.verify(token, keys, self._issuer, self._client_id)

    def last_exchange(self) -> tuple[Part, ...]:
        """What was last said with the server while this page was made, to explain a failure."""
        return narration.of_failure(self._client.server_metadata)
