"""What both grants answer with: an access token (RFC 9068), a refresh token, and their row."""

from datetime import timedelta
from typing import Any

from sso import clock, current, digests, keys
from sso.models import Client
from sso.oauth import access_tokens, client_authentication
from sso.oauth.request import ProtocolRequest
from sso.store import tokens
from sso.store.tokens import NewToken
from sso.store.users import Person


class TokenResponse:
    """Mix into an Authlib grant: makes the token response of one approval.

    Authlib's JWT generator takes no `kid`, ignores the lifetime and asks for the keys each time.
    """

    request: ProtocolRequest

    def find_client(self, client_id: str) -> Client | None:
        """The enabled client; with it the grant finds what the client presents."""
        raise NotImplementedError

    def authenticate_token_endpoint_client(self) -> Client:
        return client_authentication.authenticate(self.request, self.find_client, "token")

    def generate_token(
        self,
        user: Person,
        scope: str,
        grant_type: str | None = None,
        expires_in: int | None = None,
        include_refresh_token: bool = True,
    ) -> dict[str, Any]:
        """The members of the answer (RFC 6749 §5.1) but for the identity token."""
        settings, now = current.settings(), clock.now()
        approval = self.request.approval
        if approval is None:
            raise RuntimeError("tokens are asked for without an approval")
        refresh_token, refresh_digest = self.refresh_token()
        lifetime = timedelta(seconds=settings.access_token_lifetime)
        jti = keys.make_jti()
        access_token = access_tokens.sign(jti, scope, now, now + lifetime, approval)
        self.request.issued = NewToken(
            jti=jti,
            access_digest=digests.digest(access_token),
            grant_id=approval.id,
            scope=scope,
            issued_at=now,
            expires_at=now + lifetime,
            refresh_digest=refresh_digest,
            refresh_expires_at=now + timedelta(seconds=settings.refresh_token_lifetime)
            if refresh_digest
            else None,
        )
        return {
            "access_token": access_token,
            "token_type": "Bearer",
            "expires_in": settings.access_token_lifetime,
            "refresh_token": refresh_token,
            "scope": scope,
        }

    def refresh_token(self) -> tuple[str, str | None]:
        """A refresh token to hand out, and the digest to store; `None` if it is stored already."""
        secret = digests.make(digests.REFRESH_TOKEN)
        return secret, digests.digest(secret)

    def save_token(self, token: dict[str, Any]) -> None:
        """Store the row of the response; the endpoint commits."""
        if self.request.issued is not None:
            tokens.add(self.request.issued)
