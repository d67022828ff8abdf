"""The refresh token grant (RFC 6749 §6) with rotation (RFC 9700 §4.14.2)."""

from datetime import timedelta
from typing import Any

from authlib.oauth2.rfc6749.errors import InvalidGrantError, InvalidScopeError
from authlib.oauth2.rfc6749.grants import RefreshTokenGrant as AuthlibRefreshTokenGrant

from sso import audit, clock, context
from sso.audit.events import Event
from sso.crypto import digests, encryption
from sso.flow import narrowing, scopes
from sso.models import Client
from sso.oauth import client_authentication
from sso.oauth.token_response import TokenResponse, family_ends_at
from sso.store import grants, tokens
from sso.store.live_grants import LiveGrant
from sso.store.users import UserProfile

_SUCCESSOR = "refresh token successor"


class RefreshTokenGrant(TokenResponse, AuthlibRefreshTokenGrant):
    """A refresh token works once and gives its successor; the endpoint commits."""

    TOKEN_ENDPOINT_AUTH_METHODS = client_authentication.METHODS
    INCLUDE_NEW_REFRESH_TOKEN = True

    is_repeated = False
    presented: LiveGrant | None = None
    successor: str | None = None

    def find_client(self, client_id: str) -> Client | None:
        """The client, and in the same statement what its refresh token stands for."""
        digest = digests.digest(self.request.form.get("refresh_token", ""))
        client, self.presented = tokens.find_with_client(client_id, digest, clock.now())
        return client

    def authenticate_refresh_token(self, refresh_token: str) -> LiveGrant:
        """Use the token up, or see that it is a retry within the leeway, or a reuse.

        Gives the approval that it stands for, as far as that is allowed by now; to Authlib that
        is the refresh token.
        """
        digest, client_id = digests.digest(refresh_token), self.request.client.client_id
        used = tokens.use_refresh(digest, client_id, clock.now())
        if not used and not self._is_repeated(digest, client_id):
            self._note_reason(digest, client_id)
            raise InvalidGrantError("The refresh token is unknown, expired, used or revoked.")
        if self.presented is None:
            self._note_reason(digest, client_id)
            raise InvalidGrantError("The refresh token's grant has ended.")
        self.request.details["user"] = self.presented.user_id
        if family_ends_at(self.presented.created_at) <= clock.now():
            raise InvalidGrantError(
                "The user approved this too long ago, and has to be asked for approval again."
            )
        return self.as_allowed_now(self.presented, self.request.client)

    def _is_repeated(self, digest: str, client_id: str) -> bool:
        """Whether this is a retry: a used token within the leeway, whose successor is unused.

        Otherwise the use of a used token ends its family.
        """
        used = self._find_used(digest, client_id)
        if used is None:
            return False
        leeway = timedelta(seconds=context.settings().refresh_token_leeway)
        is_early = leeway and clock.now() - used.used_at <= leeway
        if is_early and used.successor_used_at is None:
            # It is not found if the key that it was derived with has been replaced since. It
            # cannot be handed out again then, and it is no sign of a thief.
            self.is_repeated = used.has_successor
            return self.is_repeated
        grants.end_one(used.grant_id, "refresh_token_reuse")
        self.request.keep_changes = True
        self.request.details["user"] = used.user_id
        audit.event(
            Event.REFRESH_TOKEN_REUSED, user=used.user_id, client=client_id, grant=used.grant_id
        )
        raise InvalidGrantError("The refresh token was used before; its grant has been revoked.")

    def _note_reason(self, digest: str, client_id: str) -> None:
        """What the answer does not tell apart is told to the log and the audit trail."""
        found = tokens.circumstances_of_refresh(digest)
        reason = found.reason_for(client_id, clock.now()) if found else "unknown"
        self.request.details |= {"reason": reason, "user": found.user_id if found else None}

    def _find_used(self, digest: str, client_id: str) -> tokens.UsedRefresh | None:
        """The token, used before, and its successor, whichever secret key that came from."""
        used = None
        for successor in self._successors():
            used = tokens.find_used_refresh(digest, client_id, digests.digest(successor))
            if used is None or used.has_successor:
                self.successor = successor
                break
        return used

    def refresh_token(self) -> tuple[str, str | None]:
        successor = self.successor or self._successors()[0]
        return successor, None if self.is_repeated else digests.digest(successor)

    def _successors(self) -> list[str]:
        """The successor, derived, so that a retry gets the same one: by today's secret key first.

        The first answer may have come from the secret key before this one.
        """
        return [
            digests.derive(digests.REFRESH_TOKEN, self.request.form["refresh_token"], key)
            for key in encryption.derive_keys(context.settings().secret_keys, _SUCCESSOR)
        ]

    def _validate_token_scope(self, token: LiveGrant) -> None:
        # The whole grant may be asked for again after a narrower refresh (RFC 6749 §6).
        asked = set(scopes.split(self.request.payload.scope))
        if self.presented is None or not asked <= set(scopes.split(self.presented.scope)):
            raise InvalidScopeError("The scope goes beyond what was granted.")
        if asked and asked.isdisjoint(scopes.split(token.scope)):
            raise InvalidScopeError("None of the scopes asked for is allowed any more.")

    def issue_token(self, user: UserProfile, refresh_token: LiveGrant) -> dict[str, Any]:
        allowed = scopes.split(refresh_token.scope)
        asked = scopes.split(self.request.payload.scope) or allowed
        given = [name for name in asked if name in allowed]
        approval = refresh_token
        self.is_narrowed = len(given) < len(allowed)
        if self.is_narrowed:  # for the identity token, too
            claims = narrowing.within(approval.claims, given)
            approval = approval._replace(scope=" ".join(given), claims=claims)
        self.request.approval = approval
        return self.generate_token(user, " ".join(given))

    def authenticate_user(self, refresh_token: LiveGrant) -> UserProfile:
        return refresh_token.user

    def revoke_old_credential(self, refresh_token: LiveGrant) -> None:
        """Nothing: it is used up by a statement of its own (`authenticate_refresh_token`)."""
