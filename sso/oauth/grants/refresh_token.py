"""The refresh token grant (RFC 6749 §6) with rotation (RFC 9700 §4.14.2), from top to bottom."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NoReturn

from authlib.oauth2.rfc6749.errors import (
    InvalidGrantError,
    InvalidRequestError,
    InvalidScopeError,
    UnauthorizedClientError,
)
from authlib.oauth2.rfc6749.grants import RefreshTokenGrant as AuthlibRefreshTokenGrant

from sso import audit, clock, context
from sso.audit.events import Event
from sso.crypto import secrets
from sso.flow import narrowing, resources, scopes
from sso.flow.refusals import Cause, KeyFault, Reason, because, describe
from sso.oauth import client_authentication, dpop, tokens
from sso.oauth.authlib_request import ProtocolRequest
from sso.store import grants, redemption
from sso.store import tokens as store
from sso.store.clients import RegisteredClient
from sso.store.grants import LiveGrant
from sso.store.redemption import NewToken, SingleUse
from sso.store.tokens import PresentedRefresh

_SUCCESSOR = "refresh token successor"


class RefreshTokenGrant(AuthlibRefreshTokenGrant):
    """A refresh token works once and gives its successor, all or nothing; the endpoint commits.

    A retry within the leeway gets the same successor again.
    """

    request: ProtocolRequest
    TOKEN_ENDPOINT_AUTH_METHODS = client_authentication.METHODS
    INCLUDE_NEW_REFRESH_TOKEN = True

    live_grant: LiveGrant | None = None
    presented: PresentedRefresh | None = None
    successor: str | None = None
    is_retry = False
    is_proof_used = False

    def validate_token_request(self) -> None:
        """Steps 1 to 3. Raises `OAuth2Error`; the endpoint then rolls back."""
        request = self.request

        # 1. Authenticate the client. One statement finds it, and the grant of its refresh token.
        client = client_authentication.authenticate(request, self._find, "token")
        if not client.check_grant_type(self.GRANT_TYPE):
            raise UnauthorizedClientError(f"The client may not use grant_type={self.GRANT_TYPE}.")
        dpop.read(request, "token", is_needed=client.requires_dpop)

        # 2. Find the refresh token. One that was used is a retry, or a reuse, which ends its grant.
        if "refresh_token" not in request.form:
            raise InvalidRequestError(describe(Cause.MISSING_PARAMETER, name="refresh_token"))
        bound_to = self.presented.dpop_jkt if self.presented else None
        if client.is_public and bound_to not in (None, request.dpop_jkt):
            # Not its reuse, either: without the key, the token is of no use to a thief (RFC 9449
            # §5). What a confidential client has is bound by its authentication.
            request.facts["dpop"] = KeyFault.BOUND_REFRESH_TOKEN
            raise InvalidGrantError(
                "The refresh token is bound to another key than that of a DPoP proof in this "
                "request."
            )
        if self.presented is None or not self.presented.is_live(clock.now()):
            self._check_retry(client)
        if self.live_grant is None:
            self._refuse(client)
        request.details["user"] = self.live_grant.user_id
        if tokens.family_ends_at(self.live_grant.created_at) <= clock.now():
            raise InvalidGrantError(
                "The user approved this too long ago, and has to be asked for approval again."
            )

        # 3. Compare the requested scope with what was granted, all of which may be asked for
        # again after a narrower refresh (§6), and with what is allowed by now.
        allowed = tokens.as_allowed_now(self.live_grant, request)
        tokens.choose_audience(request, self.live_grant.scope, allowed.scope)
        requested = set(scopes.split(request.payload.scope))
        if not requested <= self._names(self.live_grant.scope).keys():
            request.facts |= {
                "requested_scope": request.payload.scope,
                "granted_scope": self.live_grant.scope,
            }
            raise InvalidScopeError("The scope goes beyond what was granted.")
        if requested and requested.isdisjoint(self._names(allowed.scope)):
            raise InvalidScopeError("None of the scopes asked for is allowed any more.")
        self.live_grant = allowed

    def create_token_response(self) -> tuple[int, dict[str, Any], list[tuple[str, str]]]:
        """Steps 4 and 5. Raises `OAuth2Error`; the endpoint then rolls back."""
        request, live_grant = self.request, self.live_grant
        if live_grant is None:
            raise RuntimeError("tokens are issued before the request is validated")

        # 4. Sign. A narrower scope limits single claims, too, also of the identity token.
        requested, names = scopes.split(request.payload.scope), self._names(live_grant.scope)
        scope_names = [names[name] for name in requested if name in names]
        is_narrowed = 0 < len(scope_names) < len(names)
        scope_names = scope_names or list(scopes.split(live_grant.scope))
        claims = (
            narrowing.within(live_grant.claims, scope_names) if is_narrowed else live_grant.claims
        )
        live_grant = replace(live_grant, scope=" ".join(scope_names), claims=claims)
        if request.client.is_fapi2 and not self.is_retry:
            refresh_token = tokens.RefreshToken(request.form["refresh_token"], None)
        else:
            successor = self.successor or self._successors()[0]
            refresh_token = tokens.RefreshToken(
                successor, None if self.is_retry else secrets.digest(successor)
            )

        # 5. Redeem the refresh token for it: of several requests, one gets past this statement.
        save = self._add_again if self.is_retry else dpop.with_proof(request.proof, self._redeem)
        answer = tokens.issue(request, live_grant, refresh_token, save, is_narrowed=is_narrowed)
        if answer is None:
            self._check_retry(request.client)
            return self.create_token_response()
        return 200, answer, self.TOKEN_RESPONSE_HEADER

    def _names(self, scope: str) -> dict[str, str]:
        """Return the names in the scope of a grant, by the scope that a request would name.

        They are this server's own scopes, and those of the API that the token is for.
        """
        audience = self.request.audience
        return {
            resources.scope_of(name): name
            for name in scopes.split(scope)
            if not resources.is_of_api(name) or resources.api_of(name) == audience
        }

    @property
    def _digest(self) -> str:
        return secrets.digest(self.request.form.get("refresh_token", ""))

    def _find(self, client_id: str) -> RegisteredClient | None:
        client, self.presented, self.live_grant = store.find_with_client(
            self.request.connection, client_id, self._digest, clock.now()
        )
        return client

    def _redeem(self, token: NewToken, *, use: SingleUse | None) -> bool:
        client, connection = self.request.client, self.request.connection
        self.is_proof_used = True
        return store.redeem_refresh(
            connection, self._digest, client.client_id, token, self._kept_until(client), use
        )

    def _add_again(self, token: NewToken) -> bool:
        if not self.is_proof_used:
            dpop.use(self.request.connection, self.request.proof)
        return redemption.add_tokens(self.request.connection, token)

    def _kept_until(self, client: RegisteredClient) -> datetime | None:
        """Return the new end of a token that is not replaced (FAPI 2.0 Security Profile §5.3.2.1).

        It is of use with the client's key alone, and a new one that got lost would lock it out.
        """
        if not client.is_fapi2 or self.live_grant is None:
            return None
        return tokens.refresh_expiry(self.live_grant.created_at, clock.now())

    def _check_retry(self, client: RegisteredClient) -> None:
        """Accept a retry: a used token within the leeway, whose successor is unused.

        Otherwise the reuse of a used token ends its grant. Raises `InvalidGrantError`.
        """
        request, used = self.request, self._find_redeemed(client)
        if used is None:
            self._refuse(client)
        leeway = timedelta(seconds=context.settings().refresh_token_leeway)
        if client.is_public:
            # Nothing but the token proves who sends it. A used one has to be invalid at once: its
            # reuse is the only sign of a thief (RFC 9700 §4.14.2).
            leeway = timedelta()
        is_early = leeway and clock.now() - used.used_at <= leeway
        if is_early and used.successor_used_at is None:
            # Without a successor, the key that it was derived with has been replaced since. It
            # cannot be handed out again then, and it is no sign of a thief.
            if not used.has_successor:
                self._refuse(client)
            self.is_retry = True
            return
        grants.end_one(request.connection, used.grant_id, "refresh_token_reuse")
        request.keep_changes = True
        request.details["user"] = used.user_id
        request.facts["used_at"] = used.used_at
        audit.event(
            Event.REFRESH_TOKEN_REUSED,
            user=used.user_id,
            client=client.client_id,
            grant=used.grant_id,
        )
        raise InvalidGrantError("The refresh token was used before; its grant has been revoked.")

    def _find_redeemed(self, client: RegisteredClient) -> store.RedeemedRefresh | None:
        """Return the used token and its successor, whichever secret key that is derived from."""
        used = None
        for successor in self._successors():
            used = store.find_redeemed_refresh(
                self.request.connection,
                self._digest,
                client.client_id,
                secrets.digest(successor),
            )
            if used is None or used.has_successor:
                self.successor = successor
                break
        return used

    def _successors(self) -> list[str]:
        """The successor, derived, so that a retry gets the same one: by today's secret key first.

        The first answer may have come from the secret key before this one.
        """
        return [
            secrets.derive_secret(secrets.REFRESH_TOKEN, self.request.form["refresh_token"], key)
            for key in secrets.derive_keys(context.settings().secret_keys, _SUCCESSOR)
        ]

    def _refuse(self, client: RegisteredClient) -> NoReturn:
        # The answer does not tell the reasons apart; the log and the audit trail do.
        reasons = store.refusal_reasons_of_refresh(self.request.connection, self._digest)
        reason = (
            reasons.reason_for(client.client_id, clock.now())
            if reasons
            else because(Reason.UNKNOWN)
        )
        self.request.details |= {"reason": reason, "user": reasons.user_id if reasons else None}
        self.request.facts |= reasons.facts() if reasons else {}
        raise InvalidGrantError("The refresh token is unknown, expired, used or revoked.")
