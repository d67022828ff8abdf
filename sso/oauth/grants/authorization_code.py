"""The authorization code grant at the token endpoint (RFC 6749 §4.1.3, RFC 7636, OIDC Core §3.1.3).

Read from top to bottom: it is the exchange. `oauth.authorization` validates the request
and issues the code.
"""

import re
from datetime import timedelta
from functools import partial
from typing import Any, NoReturn

from authlib.oauth2.rfc6749.errors import (
    InvalidGrantError,
    InvalidRequestError,
    UnauthorizedClientError,
)
from authlib.oauth2.rfc6749.grants import AuthorizationCodeGrant as AuthlibAuthorizationCodeGrant
from authlib.oauth2.rfc7636 import create_s256_code_challenge

from sso import audit, clock
from sso.audit.events import Event
from sso.crypto import secrets
from sso.flow.refusals import Cause, KeyFault, PkceFault, Reason, because, describe
from sso.oauth import client_authentication, dpop, tokens
from sso.oauth.authlib_request import ProtocolRequest
from sso.oauth.authorization import AuthorizationEndpoint
from sso.store import grants, redemption
from sso.store.clients import RegisteredClient
from sso.store.grants import LiveGrant
from sso.store.redemption import PresentedCode

# A double click sends the same code twice; it is refused, and signs nobody out.
BENIGN_REUSE = timedelta(seconds=1)
_VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}\Z")


class AuthorizationCodeGrant(AuthorizationEndpoint, AuthlibAuthorizationCodeGrant):
    """Exchanges a code for tokens, all or nothing; the endpoint commits.

    A redeemed code's row stays until it is purged, so that its reuse is seen.
    """

    request: ProtocolRequest
    TOKEN_ENDPOINT_AUTH_METHODS = client_authentication.METHODS

    code: PresentedCode | None = None
    live_grant: LiveGrant | None = None

    def validate_token_request(self) -> None:
        """Steps 1 to 4. Raises `OAuth2Error`; the endpoint then rolls back."""
        request = self.request

        # 1. Authenticate the client. One statement finds it, its code, and the grant of the code.
        client = client_authentication.authenticate(request, self._find, "token")
        if not client.check_grant_type(self.GRANT_TYPE):
            raise UnauthorizedClientError(f"The client may not use grant_type={self.GRANT_TYPE}.")
        dpop.read(request, "token", is_needed=client.requires_dpop)

        # 2. Find the code.
        if "code" not in request.form:
            raise InvalidRequestError(describe(Cause.MISSING_PARAMETER, name="code"))
        if not request.payload.redirect_uri:
            raise InvalidRequestError(describe(Cause.MISSING_PARAMETER, name="redirect_uri"))
        if self.code is None or self.live_grant is None or not self.code.is_live(clock.now()):
            self._refuse(client)
        request.details["user"] = self.live_grant.user_id

        # 3. Compare the redirect_uri with the one of the authorization request.
        if request.payload.redirect_uri != self.code.redirect_uri:
            request.facts |= {
                "redirect_uri": request.payload.redirect_uri,
                "authorized_redirect_uri": self.code.redirect_uri,
            }
            raise InvalidGrantError(
                "The 'redirect_uri' does not match the one of the authorization request."
            )

        # 4. Verify PKCE, and the key that the code is bound to.
        verifier, challenge = request.form.get("code_verifier"), self.code.code_challenge
        try:
            if challenge is None and client.is_public:
                raise InvalidGrantError(
                    "The code was issued without PKCE, which this client requires."
                )
            verify_code_verifier(verifier, challenge)
        except InvalidGrantError:
            request.facts["pkce"] = _pkce_fault(verifier, challenge)
            raise
        if self.code.dpop_jkt not in (None, request.dpop_jkt):
            request.facts["dpop"] = KeyFault.BOUND_CODE
            raise InvalidGrantError(
                "The code is bound to another key than that of a DPoP proof in this request."
            )

    def create_token_response(self) -> tuple[int, dict[str, Any], list[tuple[str, str]]]:
        """Steps 5 and 6. Raises `OAuth2Error`; the endpoint then rolls back."""
        request, code, live_grant = self.request, self.code, self.live_grant
        if code is None or live_grant is None:
            raise RuntimeError("tokens are issued before the request is validated")

        # 5. Sign what the grant still allows.
        granted = live_grant.scope
        live_grant = tokens.as_allowed_now(live_grant, request)
        tokens.choose_audience(request, granted, live_grant.scope)
        # 6. Redeem the code for it: of several requests, one gets past this statement.
        redeem = partial(
            redemption.redeem_code, request.connection, self._digest, request.client.client_id
        )
        save = dpop.with_proof(request.proof, redeem)
        refresh_token = tokens.NO_REFRESH_TOKEN if code.once else tokens.new_refresh_token()
        answer = tokens.issue(request, live_grant, refresh_token, save, nonce=code.nonce)
        if answer is None:
            self._refuse(request.client)
        return 200, answer, self.TOKEN_RESPONSE_HEADER

    @property
    def _digest(self) -> str:
        return secrets.digest(self.request.form.get("code", ""))

    def _find(self, client_id: str) -> RegisteredClient | None:
        client, self.code, self.live_grant = redemption.find_code_with_client(
            self.request.connection, client_id, self._digest, clock.now()
        )
        return client

    def _refuse(self, client: RegisteredClient) -> NoReturn:
        """Refuse a code that cannot be redeemed. Its reuse ends all it gave (RFC 6749 §4.1.2)."""
        request, connection, now = self.request, self.request.connection, clock.now()
        used = redemption.find_redeemed_code(connection, self._digest, client.client_id)
        if used and now - used.used_at > BENIGN_REUSE:
            grants.end_one(connection, used.grant_id, "code_reuse")
            request.keep_changes = True
            request.details["user"] = used.user_id
            request.facts["used_at"] = used.used_at
            audit.event(
                Event.CODE_REUSED, user=used.user_id, client=client.client_id, grant=used.grant_id
            )
            raise InvalidGrantError("The code was used before; all that it gave has been revoked.")
        # The answer does not tell the reasons apart; the log and the audit trail do.
        reasons = redemption.refusal_reasons_of(connection, self._digest)
        unknown = because(Reason.UNKNOWN)
        request.details["reason"] = (
            reasons.reason_for(client.client_id, now) if reasons else unknown
        )
        request.details["user"] = reasons.user_id if reasons else None
        request.facts |= reasons.facts() if reasons else {}
        raise InvalidGrantError(
            "The code is unknown, expired or used, it was issued to another client, "
            "or what the user approved with it has ended."
        )


def verify_code_verifier(verifier: str | None, challenge: str | None) -> None:
    """Compare verifier and challenge (RFC 7636 §4.6), S256 only. Raises `InvalidGrantError`."""
    if challenge is None and verifier is None:
        return
    if challenge is None:
        # RFC 9700 §4.8.2: else a downgrade would go unnoticed.
        raise InvalidGrantError("A code_verifier was sent, but no code_challenge before.")
    if verifier is None:
        raise InvalidGrantError("The code_verifier is missing.")
    if not _VERIFIER.match(verifier) or not secrets.is_equal(
        create_s256_code_challenge(verifier), challenge
    ):
        raise InvalidGrantError("The code_verifier does not fit the code_challenge.")


def _pkce_fault(verifier: str | None, challenge: str | None) -> PkceFault:
    """Return the fault of PKCE, for `flask explain`."""
    if challenge is None:
        return PkceFault.NO_CHALLENGE
    if verifier is None:
        return PkceFault.NO_VERIFIER
    is_plain = verifier == challenge
    return PkceFault.CHALLENGE_AS_VERIFIER if is_plain else PkceFault.WRONG_VERIFIER
