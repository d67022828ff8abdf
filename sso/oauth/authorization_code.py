"""The authorization code grant (RFC 6749 §4.1)."""

from dataclasses import dataclass
from datetime import timedelta

from authlib.oauth2.rfc6749.errors import (
    AccessDeniedError,
    InvalidClientError,
    InvalidGrantError,
    InvalidRequestError,
    OAuth2Error,
)
from authlib.oauth2.rfc6749.grants import AuthorizationCodeGrant as AuthlibAuthorizationCodeGrant

from sso import audit, clock, context
from sso.audit.events import Event
from sso.crypto import digests
from sso.flow.decision import reached_acr
from sso.models import Client
from sso.oauth import authorization_response, client_authentication
from sso.oauth.refusal import UnregisteredRedirectUri
from sso.oauth.request import ProtocolRequest
from sso.oauth.token_response import TokenResponse
from sso.ratelimit import refusals
from sso.store import clients, codes, grants
from sso.store.live_grants import LiveGrant
from sso.store.sessions import Presence
from sso.store.users import UserProfile

# A double click sends the same code twice; it is refused, and signs nobody out.
BENIGN_REUSE = timedelta(seconds=1)


class Overtaken(Exception):
    """What the decision was made from has changed under way: decide again."""


@dataclass(frozen=True)
class RedeemedCode:
    """A code that was used up just now and what it stands for, as Authlib asks for it."""

    code: codes.Presented
    approval: LiveGrant

    def get_redirect_uri(self) -> str:
        return self.code.redirect_uri

    def get_scope(self) -> str:
        return self.approval.scope

    def get_nonce(self) -> str | None:
        return self.code.nonce


class AuthorizationCodeGrant(TokenResponse, AuthlibAuthorizationCodeGrant):
    """Codes are rows that are used up by one statement; the endpoint commits."""

    TOKEN_ENDPOINT_AUTH_METHODS = client_authentication.METHODS

    presence: Presence
    presented: codes.Presented | None = None

    @classmethod
    def check_authorization_endpoint(cls, request: ProtocolRequest) -> bool:
        """Always: the response type is judged after the address is proven."""
        return True

    def validate_authorization_request(self) -> str:
        """Prove client and address, then judge the rest. Returns the proven `redirect_uri`.

        Errors raised before the marked line have no `redirect_uri`: they become a page.
        """
        payload = self.request.payload
        if not payload.client_id:
            raise InvalidRequestError("The parameter 'client_id' is missing.")
        client = self.server.query_client(payload.client_id)
        if client is None:
            self.request.details["reason"] = clients.why_not_enabled(payload.client_id)
            raise InvalidClientError("No client with this client_id is registered and enabled.")
        redirect_uri = self.validate_authorization_redirect_uri(self.request, client)
        # ---- from here on the address is proven, and errors go to the client ----
        if payload.response_type is None:
            raise InvalidRequestError(
                "The parameter 'response_type' is missing; send code.", redirect_uri=redirect_uri
            )
        if payload.response_type != "code":
            raise OAuth2Error(
                error="unsupported_response_type",
                description="The only response_type is code.",
                redirect_uri=redirect_uri,
            )
        return str(super().validate_authorization_request())

    @staticmethod
    def validate_authorization_redirect_uri(request: ProtocolRequest, client: Client) -> str:
        """Exact comparison (RFC 9700 §4.1.3); the description never echoes the address."""
        redirect_uri = request.payload.redirect_uri
        if not redirect_uri:
            raise InvalidRequestError("The parameter 'redirect_uri' is missing.")
        if not client.check_redirect_uri(redirect_uri):
            request.details["redirect_uri"] = refusals.without_query(redirect_uri)
            raise UnregisteredRedirectUri
        return str(redirect_uri)

    def validate_requested_scope(self) -> None:
        """Nothing here: unknown scopes are dropped when the request is parsed."""

    def create_authorization_response(
        self, redirect_uri: str, grant_user: Presence | None
    ) -> authorization_response.AuthlibAnswer:
        """Answer with a code for the user that is signed in (RFC 6749 §4.1.2)."""
        if grant_user is None:
            raise AccessDeniedError("The user refused.", redirect_uri=redirect_uri)
        self.presence = self.request.user = grant_user
        code = digests.make(digests.AUTHORIZATION_CODE)
        self.save_authorization_code(code, self.request)
        asked = self.request.asked
        return authorization_response.to_client(
            redirect_uri, [("code", code)], asked.state, asked.response_mode
        )

    def save_authorization_code(self, code: str, request: ProtocolRequest) -> None:
        """Store one approval and its code. Raises `Overtaken`."""
        asked, presence, now = request.asked, self.presence, clock.now()
        lifetime = timedelta(seconds=context.settings().authorization_code_lifetime)
        grant_id = grants.add(
            self.client.updated_at,
            presence.user_seen,
            presence.consent.updated_at if presence.consent else None,
            codes_since=now - lifetime,
            user_id=presence.user_id,
            client_id=asked.client_id,
            session_id=presence.session_id,
            sid=str(presence.session_id),
            scope=asked.scope,
            claims=asked.claims.stored(),
            auth_time=presence.auth_time,
            amr=presence.amr,
            acr=reached_acr(asked, presence.acr) if asked.asks_for_acr else None,
        )
        if grant_id is None:
            raise Overtaken
        codes.add(
            digest=digests.digest(code),
            grant_id=grant_id,
            redirect_uri=asked.redirect_uri,
            nonce=asked.nonce,
            code_challenge=asked.code_challenge,
            expires_at=now + lifetime,
        )

    def find_client(self, client_id: str) -> Client | None:
        """The client, and in the same statement what its code stands for."""
        digest = digests.digest(self.request.form.get("code", ""))
        client, self.presented = codes.find_with_client(client_id, digest, clock.now())
        return client

    def query_authorization_code(self, code: str, client: Client) -> RedeemedCode:
        """Use the code up; the endpoint rolls that back if a later check fails."""
        redirect_uri = self.request.payload.redirect_uri
        if not redirect_uri:
            raise InvalidRequestError("The parameter 'redirect_uri' is missing.")
        digest = digests.digest(code)
        if not codes.use(digest, client.client_id, clock.now()):
            self._note_reuse(digest, client)
            self._note_reason(digest, client)
            raise InvalidGrantError(
                "The code is unknown, expired or used, it was issued to another client, "
                "or what the user approved with it has ended."
            )
        if self.presented is None or self.presented.approval is None:
            self._note_reason(digest, client)
            raise InvalidGrantError("What the user approved with this code has ended.")
        self.request.details["user"] = self.presented.approval.user_id
        if redirect_uri != self.presented.redirect_uri:
            raise InvalidGrantError(
                "The 'redirect_uri' does not match the one of the authorization request."
            )
        approval = self.as_allowed_now(self.presented.approval, client)
        self.request.approval = approval
        return RedeemedCode(self.presented, approval)

    def _note_reuse(self, digest: str, client: Client) -> None:
        """A second use ends all that the first one gave (RFC 6749 §4.1.2)."""
        used = codes.find_used(digest, client.client_id)
        if used is None or clock.now() - used.used_at <= BENIGN_REUSE:
            return
        grants.end_one(used.grant_id, "code_reuse")
        self.request.keep_changes = True
        self.request.details["user"] = used.user_id
        audit.event(
            Event.CODE_REUSED,
            user=used.user_id,
            client=client.client_id,
            grant=used.grant_id,
        )
        raise InvalidGrantError("The code was used before; all that it gave has been revoked.")

    def _note_reason(self, digest: str, client: Client) -> None:
        """What the answer does not tell apart is told to the log and the audit trail."""
        found = codes.circumstances_of(digest)
        reason = found.reason_for(client.client_id, clock.now()) if found else "unknown"
        self.request.details |= {"reason": reason, "user": found.user_id if found else None}

    def delete_authorization_code(self, authorization_code: RedeemedCode) -> None:
        """Nothing: the used row stays until it is purged, so that reuse is seen."""

    def authenticate_user(self, authorization_code: RedeemedCode) -> UserProfile:
        return authorization_code.approval.user
