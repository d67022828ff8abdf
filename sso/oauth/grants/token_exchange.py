"""The token exchange grant (RFC 8693): an access token for one API is exchanged for another API.

Authlib has no such grant; this one follows the interface of its grants. Read from top to bottom.
"""

from datetime import timedelta
from typing import Any, NoReturn

from authlib.oauth2.rfc6749 import BaseGrant, TokenEndpointMixin
from authlib.oauth2.rfc6749.errors import (
    InvalidRequestError,
    InvalidScopeError,
    UnauthorizedClientError,
)

from sso import clock, context
from sso.config.client_fields import TOKEN_EXCHANGE
from sso.crypto import keys, secrets
from sso.flow import exchange, resources, scopes, token_claims
from sso.flow.refusals import Cause, KeyFault, Reason, because, describe
from sso.i18n.message import Message
from sso.oauth import client_authentication, dpop, id_jag, present_rights, tokens
from sso.oauth.authlib_request import ProtocolRequest
from sso.oauth.id_jag import NewIdJag
from sso.ratelimit import limiting
from sso.store import apis, clients, exchanges
from sso.store import tokens as stored_tokens
from sso.store.clients import RegisteredClient
from sso.store.exchanges import ExchangedToken, SubjectToken

ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 (no secret)


class UnacceptableSubject(InvalidRequestError):
    """A subject token that is invalid, or that the policy refuses.

    RFC 8693 §2.2.2 asks for `invalid_request`, unlike other grants, which answer `invalid_grant`.
    """


class TokenExchangeGrant(BaseGrant, TokenEndpointMixin):
    """Exchanges a token, all or nothing; the endpoint commits. It gives no refresh token."""

    request: ProtocolRequest
    GRANT_TYPE = TOKEN_EXCHANGE
    TOKEN_ENDPOINT_AUTH_METHODS = client_authentication.CONFIDENTIAL_METHODS

    subject: SubjectToken
    subject_scope: str  # what the subject token may do now
    actors: list[str]
    audience: str
    scope: str
    id_jag: NewIdJag | None = None  # what is issued in place of an access token

    def validate_token_request(self) -> None:
        """Steps 1 to 4. Raises `OAuth2Error` and `TooManyAttempts`."""
        request = self.request

        # 1. Authenticate the client, which is never a public one.
        client = client_authentication.authenticate(
            request, self._find_client, "token", self.TOKEN_ENDPOINT_AUTH_METHODS
        )
        if not client.check_grant_type(self.GRANT_TYPE):
            raise UnauthorizedClientError(f"The client may not use grant_type={self.GRANT_TYPE}.")
        limiting.spend_own(limiting.EXCHANGED_TOKENS, client.client_id, kind="client")
        dpop.read(request, "token", is_needed=client.requires_dpop)
        if request.form.get("requested_token_type") == id_jag.ID_JAG:
            self.id_jag = id_jag.prepare(request, client)
            dpop.use(request.connection, request.proof)
            return
        self._check_types()

        # 2. Find the subject token, which has to be the client's, or for an API that it acts as.
        self.subject = self._find_subject(client)
        request.details["user"] = self.subject.grant.user_id
        self._check_subject()

        # 3. Find the API that the new token is for.
        resource, audience = request.form.get("resource"), request.form.get("audience")
        issuer = context.settings().issuer_of(client)
        try:
            self.audience = exchange.target(
                resource, audience, client.default_api, request.apis, issuer
            )
        except resources.InvalidTarget as error:
            request.facts["resource"] = resource or audience or client.default_api or ""
            raise tokens.InvalidTarget(error.description) from None

        # 4. Compare the scope with what the client may do there for this user.
        self.scope = self._scope(client)
        dpop.use(request.connection, request.proof)

    def create_token_response(self) -> tuple[int, dict[str, Any], list[tuple[str, str]]]:
        """Steps 5 and 6. Raises `OAuth2Error`; the endpoint then rolls back."""
        if self.id_jag:
            return 200, id_jag.issue(self.request, self.id_jag), self.TOKEN_RESPONSE_HEADER
        request, client, subject = self.request, self.request.client, self.subject

        # 5. Sign. The token does not outlive the subject token.
        api, now, jti = request.apis[self.audience], clock.now(), keys.make_jti()
        seconds = api.access_token_lifetime or context.settings().access_token_lifetime
        expires_at = min(now + timedelta(seconds=seconds), subject.expires_at)
        claims = token_claims.of_exchanged_token(
            subject.grant,
            client.client_id,
            self.scope,
            exchange.act_claim(self.actors),
            issuer=context.settings().issuer_of(client),
            jti=jti,
            issued_at=now,
            expires_at=expires_at,
            dpop_jkt=request.dpop_jkt,
            api=api,
            own=client.own_claims,
            subject_attribute=client.subject_attribute,
        )
        access_token = context.key_ring().sign(claims, keys.ACCESS_TOKEN_ALGORITHM, "at+jwt")

        # 6. Store it, if the grant has not ended, and the client is still as it was in step 1.
        token = ExchangedToken(
            user_id=subject.grant.user_id,
            jti=jti,
            access_digest=secrets.digest(access_token),
            grant_id=subject.grant.id,
            client_id=client.client_id,
            actors=" ".join(self.actors),
            scope=self.scope,
            audience=self.audience,
            is_narrowed=False,
            dpop_jkt=request.dpop_jkt,
            issued_at=now,
            expires_at=expires_at,
        )
        if not exchanges.add(request.connection, token, client.updated_at):
            self._find_subject(client)
            raise client_authentication.ClientAuthenticationFailed(
                client_authentication.CHANGED, basic=request.used_basic
            )
        request.exchanged_token = token
        answer = {
            "access_token": access_token,
            "issued_token_type": ACCESS_TOKEN,
            "token_type": tokens.token_type(request.dpop_jkt),
            "expires_in": int((expires_at - now).total_seconds()),
            "scope": self.scope,
        }
        return 200, answer, self.TOKEN_RESPONSE_HEADER

    def _find_client(self, client_id: str) -> RegisteredClient | None:
        return clients.find_enabled(self.request.connection, client_id)

    def _check_types(self) -> None:
        form = self.request.form
        for name in ("subject_token", "subject_token_type"):
            if name not in form:
                raise InvalidRequestError(describe(Cause.MISSING_PARAMETER, name=name))
        for name in ("actor_token", "actor_token_type"):
            if name in form:
                raise InvalidRequestError(describe(Cause.ACTOR_TOKEN))
        for name in ("subject_token_type", "requested_token_type"):
            if form.get(name, ACCESS_TOKEN) != ACCESS_TOKEN:
                fault = describe(Cause.UNSUPPORTED_TOKEN_TYPE, name=name)
                raise InvalidRequestError(fault)

    def _find_subject(self, client: RegisteredClient) -> SubjectToken:
        """Return the subject token. Raises `UnacceptableSubject`."""
        request, text = self.request, self.request.form["subject_token"]
        if tokens.is_of_service(text):
            raise UnacceptableSubject(describe(Cause.SUBJECT_OF_SERVICE))
        jti = tokens.claimed_jti(text)
        subject = exchanges.find(request.connection, jti) if jti else None
        if (
            subject is None
            or not tokens.is_genuine(text, subject.access_digest)
            or not present_rights.has_present_issuer(request.connection, subject, text)
            or not subject.is_live()
            or not exchange.is_party(client, subject.issued_to, subject.audience)
        ):
            self._refuse(client)
        return subject

    def _check_subject(self) -> None:
        """Check the key, the user's present rights, and the actors. Raises `OAuth2Error`."""
        request, subject = self.request, self.subject
        if subject.dpop_jkt not in (None, request.dpop_jkt):
            request.facts["dpop"] = KeyFault.BOUND_SUBJECT_TOKEN
            raise UnacceptableSubject(
                "The subject_token is bound to another key than that of a DPoP proof in this "
                "request."
            )
        present = present_rights.present(request.connection, subject)
        if present.refusal:
            raise UnacceptableSubject(present.refusal)
        self.subject_scope = present.scope
        try:
            self.actors = exchange.actors(request.client, subject.actor_ids)
        except exchange.TooManyActors as error:
            raise UnacceptableSubject(error.description) from None

    def _scope(self, client: RegisteredClient) -> str:
        """Return the scope of the new token. Raises `OAuth2Error`."""
        request, subject = self.request, self.subject
        rights = present_rights.by_exchange(request.connection, client, subject)
        if rights.refusal:
            raise UnacceptableSubject(rights.refusal)
        source = subject.audience
        source_names = apis.scopes_of(request.connection, source) if source else frozenset[str]()
        available = exchange.available(
            rights,
            self.audience,
            request.apis,
            granted=subject.grant.scope,
            source_scope=self.subject_scope,
            source_names=source_names,
        )
        if available is None:
            request.facts["resource"] = self.audience
            raise tokens.InvalidTarget(self._why_no_access())
        requested = scopes.split(request.payload.scope)
        if not set(requested) <= set(available):
            request.facts |= {
                "requested_scope": request.payload.scope,
                "granted_scope": " ".join(available),
            }
            raise InvalidScopeError(describe(Cause.NOT_AVAILABLE, resource=self.audience))
        return " ".join(name for name in available if not requested or name in requested)

    def _why_no_access(self) -> Message:
        admits = self.request.apis[self.audience].admits(self.subject.grant.user.groups)
        cause = Cause.RESOURCE_NOT_APPROVED if admits else Cause.NOT_A_MEMBER_OF_API
        return describe(cause, resource=self.audience)

    def _refuse(self, client: RegisteredClient) -> NoReturn:
        """Refuse the subject token. The answer does not tell the reasons apart; the log does."""
        request = self.request
        text = request.form["subject_token"]
        jti = tokens.claimed_jti(text)
        reasons = stored_tokens.refusal_reasons_of_access(request.connection, jti) if jti else None
        if reasons is None:
            reason: Message | None = because(Reason.UNKNOWN if jti else Reason.NOT_OURS)
        elif not tokens.is_genuine(text, reasons.digest):
            reason = because(Reason.ALTERED)
        else:
            reason = reasons.reason(clock.now()) or because(Reason.NOT_A_PARTY)
            request.details["user"] = reasons.user_id
            request.facts |= reasons.facts()
            request.facts["audience"] = (tokens.unverified_claims(text) or {}).get("aud")
        request.details["reason"] = reason
        raise UnacceptableSubject(describe(Cause.SUBJECT_REFUSED))
