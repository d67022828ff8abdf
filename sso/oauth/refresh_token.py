"""The refresh token grant (RFC 6749 §6) with rotation (RFC 9700 §4.14.2)."""

from datetime import timedelta
from typing import Any

from authlib.oauth2.rfc6749.errors import InvalidGrantError, InvalidScopeError
from authlib.oauth2.rfc6749.grants import RefreshTokenGrant as AuthlibRefreshTokenGrant

from sso import audit, clock, current, digests, sealing
from sso.flow import scopes
from sso.models import Client
from sso.oauth import client_authentication
from sso.oauth.token_response import TokenResponse
from sso.store import grants, tokens
from sso.store.grants import Approval
from sso.store.users import Person

_SUCCESSOR = "refresh token successor"


class RefreshTokenGrant(TokenResponse, AuthlibRefreshTokenGrant):
    """A refresh token works once and gives its successor; the endpoint commits."""

    TOKEN_ENDPOINT_AUTH_METHODS = client_authentication.METHODS
    INCLUDE_NEW_REFRESH_TOKEN = True

    is_repeated = False
    presented: Approval | None = None

    def find_client(self, client_id: str) -> Client | None:
        """The client, and in the same statement what its refresh token stands for."""
        digest = digests.digest(self.request.form.get("refresh_token", ""))
        client, self.presented = tokens.find_with_client(client_id, digest, clock.now())
        return client

    def authenticate_refresh_token(self, refresh_token: str) -> Approval:
        """Use the token up, or see that it is a retry within the leeway, or a reuse.

        Gives the approval that it stands for; to Authlib that is the refresh token.
        """
        digest, client_id = digests.digest(refresh_token), self.request.client.client_id
        used = tokens.use_refresh(digest, client_id, clock.now())
        if not used and not self._is_repeated(digest, client_id):
            self._note_reason(digest, client_id)
            raise InvalidGrantError("The refresh token is unknown, expired, used or revoked.")
        if self.presented is None:
            self._note_reason(digest, client_id)
            raise InvalidGrantError("The refresh token's grant has ended.")
        self.request.approval = self.presented
        return self.presented

    def _is_repeated(self, digest: str, client_id: str) -> bool:
        """Whether a used token comes again within the leeway; later it ends the family."""
        used = tokens.find_used_refresh(digest, client_id)
        if used is None:
            return False
        leeway = timedelta(seconds=current.settings().refresh_token_leeway)
        if leeway and clock.now() - used.used_at <= leeway:
            self.is_repeated = True
            return True
        grants.end_one(used.grant_id, "refresh_token_reuse")
        self.request.keep_changes = True
        self.request.details["user"] = used.user_id
        audit.event(
            "refresh_token_reused", user=used.user_id, client=client_id, grant=used.grant_id
        )
        raise InvalidGrantError("The refresh token was used before; its grant has been revoked.")

    def _note_reason(self, digest: str, client_id: str) -> None:
        """What the answer does not tell apart is told to the log and the audit trail."""
        found = tokens.circumstances_of_refresh(digest)
        reason = found.reason_for(client_id, clock.now()) if found else "unknown"
        self.request.details |= {"reason": reason, "user": found.user_id if found else None}

    def refresh_token(self) -> tuple[str, str | None]:
        """The successor, derived, so that a retry gets the same one."""
        presented = self.request.form["refresh_token"]
        derived = [
            digests.derive(digests.REFRESH_TOKEN, presented, key)
            for key in sealing.derive_keys(current.settings().secret_keys, _SUCCESSOR)
        ]
        if not self.is_repeated:
            return derived[0], digests.digest(derived[0])
        # The first answer may have come from the secret key before this one.
        before = [one for one in derived[1:] if tokens.is_refresh_digest(digests.digest(one))]
        return (before or derived)[0], None

    def _validate_token_scope(self, token: Approval) -> None:
        # The whole grant may be asked for again after a narrower refresh (RFC 6749 §6).
        asked = scopes.split(self.request.payload.scope)
        if not set(asked) <= set(scopes.split(token.scope)):
            raise InvalidScopeError("The scope goes beyond what was granted.")

    def issue_token(self, user: Person, refresh_token: Approval) -> dict[str, Any]:
        asked = scopes.split(self.request.payload.scope)
        return self.generate_token(user, " ".join(asked) or refresh_token.scope)

    def authenticate_user(self, refresh_token: Approval) -> Person:
        return refresh_token.user

    def revoke_old_credential(self, refresh_token: Approval) -> None:
        """Nothing: it is used up by a statement of its own (`authenticate_refresh_token`)."""
