"""What both grants answer with: an access token (RFC 9068), a refresh token, and their row."""

from datetime import datetime, timedelta
from typing import Any

from authlib.oauth2.rfc6749.errors import InvalidGrantError

from sso import clock, context
from sso.crypto import digests, keys
from sso.flow import narrowing
from sso.models import Client
from sso.oauth import access_tokens, client_authentication
from sso.oauth.request import ProtocolRequest
from sso.store import tokens
from sso.store.live_grants import LiveGrant
from sso.store.tokens import NewToken
from sso.store.users import UserProfile


def family_ends_at(approved_at: datetime) -> datetime:
    """When the last refresh token of an approval expires, however often they are used."""
    lifetime = context.settings().refresh_token_absolute_lifetime
    return approved_at + timedelta(seconds=lifetime)


class TokenResponse:
    """Mix into an Authlib grant: makes the token response of one approval.

    Authlib's JWT generator takes no `kid`, ignores the lifetime and asks for the keys each time.
    """

    request: ProtocolRequest
    is_narrowed = False  # whether the client asked for less than it may have

    def find_client(self, client_id: str) -> Client | None:
        """The enabled client; with it the grant finds what the client presents."""
        raise NotImplementedError

    def authenticate_token_endpoint_client(self) -> Client:
        return client_authentication.authenticate(self.request, self.find_client, "token")

    @staticmethod
    def as_allowed_now(approval: LiveGrant, client: Client) -> LiveGrant:
        """The approval, reduced to what is allowed by now. Raises `InvalidGrantError`."""
        allowed = narrowing.allowed(client, approval.user.groups, approval)
        scope = allowed.scope_of(approval.scope)
        if allowed.refusal or not scope:
            raise InvalidGrantError(allowed.refusal or narrowing.NOTHING_LEFT)
        return approval._replace(scope=scope, claims=allowed.claims_of(approval.claims))

    def generate_token(
        self,
        user: UserProfile,
        scope: str,
        grant_type: str | None = None,
        expires_in: int | None = None,
        include_refresh_token: bool = True,
    ) -> dict[str, Any]:
        """The members of the answer (RFC 6749 §5.1) but for the identity token."""
        settings, now = context.settings(), clock.now()
        approval = self.request.approval
        if approval is None:
            raise RuntimeError("tokens are asked for without an approval")
        refresh_token, refresh_digest = self.refresh_token()
        refresh_lifetime = timedelta(seconds=settings.refresh_token_lifetime)
        lifetime = timedelta(seconds=settings.access_token_lifetime)
        jti = keys.make_jti()
        access_token = access_tokens.sign(jti, scope, now, now + lifetime, approval)
        self.request.issued = NewToken(
            jti=jti,
            access_digest=digests.digest(access_token),
            grant_id=approval.id,
            scope=scope,
            is_narrowed=self.is_narrowed,
            issued_at=now,
            expires_at=now + lifetime,
            refresh_digest=refresh_digest,
            refresh_expires_at=min(now + refresh_lifetime, family_ends_at(approval.created_at))
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
