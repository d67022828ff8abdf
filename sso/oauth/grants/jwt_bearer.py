"""The JWT bearer grant (RFC 7523 §2.1), for identity assertions (ID-JAG) of listed servers.

Another identity server vouches for its user; the operator lists, for each client, the servers whose
assertions count. The user is the one who has linked the account there. Read from top to bottom.
"""

from datetime import UTC, datetime
from functools import partial
from typing import Any, NoReturn, TypeGuard
from uuid import uuid4

from authlib.oauth2.drafts.id_jag import IDJAGGrant
from authlib.oauth2.rfc6749.errors import (
    InvalidGrantError,
    InvalidRequestError,
    InvalidScopeError,
    OAuth2Error,
    UnauthorizedClientError,
)

from sso import audit, clock, context, database
from sso.crypto import client_jwt
from sso.crypto.client_jwt import ClientJwt, InvalidJwt, JwtFault
from sso.flow import resources, scopes
from sso.flow.refusals import Cause, describe
from sso.flow.resources import Api
from sso.oauth import client_authentication, dpop, key_sets, tokens
from sso.oauth.authlib_request import ProtocolRequest
from sso.oauth.key_sets import Keys, KeySetUnavailable
from sso.ratelimit import limiting
from sso.store import approvals, assertions, clients, redemption
from sso.store.approvals import Seen
from sso.store.assertions import AssertedUser
from sso.store.clients import RegisteredClient
from sso.store.grants import LiveGrant
from sso.store.redemption import NewToken, TooManyUsed

_MAX_SUBJECT = 255  # characters of an identity's subject
_STRANGER = "its iss is none whose assertions this client may present"


def read_keys(request: ProtocolRequest) -> None:
    """Read the keys of an assertion's issuer, if its client lists it. No transaction may be open.

    The client has not authenticated yet: only an issuer that it lists is ever called.
    """
    try:
        jwt = client_jwt.read(request.form.get("assertion", ""))
        issuer, client_id, kid = jwt.claims.get("iss"), jwt.claims.get("client_id"), jwt.kid
    except InvalidJwt:
        return  # the grant says why
    if not _is_text(issuer) or not _is_text(client_id):
        return
    with database.connection() as connection:
        client = clients.find_enabled(connection, client_id)
    if client is None or issuer not in client.id_jag_issuers:
        return
    try:
        keys: Keys = key_sets.of_issuer(issuer, kid)
        request.assertion_keys = lambda: keys
    except KeySetUnavailable as error:
        request.assertion_keys = partial(_unavailable, request, error)


class JwtBearerGrant(IDJAGGrant):
    """Issues an access token for one API, without a refresh token; the endpoint commits.

    Authlib's class names the grant and its type. Its checks are replaced: they take a list of
    audiences, a subject that is no text, and RS256, ES256 and HS256 alone; and they read the keys
    during the transaction.
    """

    request: ProtocolRequest
    TOKEN_ENDPOINT_AUTH_METHODS = client_authentication.CONFIDENTIAL_METHODS

    jwt: ClientJwt
    api: Api
    live_grant: LiveGrant
    expires: float  # of the assertion

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
        if "assertion" not in request.form:
            raise InvalidRequestError(describe(Cause.MISSING_PARAMETER, name="assertion"))

        # 2. Verify the assertion.
        try:
            self._verify(client)
        except InvalidJwt as error:
            request.facts |= {"jwt": error.fault, "fault": str(error)}
            raise InvalidGrantError(describe(Cause.ASSERTION_REFUSED, fault=str(error))) from None

        # 3. Find the API and the scope, within what the assertion names.
        self.api = self._find_api(client)
        scope = self._scope()

        # 4. Find the user, and what the client may do for the user.
        claims = self.jwt.claims
        asserted = assertions.find_user(
            request.connection, claims["iss"], claims["sub"], client.client_id
        )
        if asserted is None:
            raise InvalidGrantError(describe(Cause.UNKNOWN_SUBJECT))
        request.details["user"] = asserted.user.id
        self.live_grant = self._grant(client, asserted, scope)

    def create_token_response(self) -> tuple[int, dict[str, Any], list[tuple[str, str]]]:
        """Steps 5 and 6. Raises `OAuth2Error`; the endpoint then rolls back."""
        request, granted = self.request, self.live_grant.scope
        live_grant = tokens.as_allowed_now(self.live_grant, request)
        tokens.choose_audience(request, granted, live_grant.scope)

        # 5. Use the assertion: of several requests, one gets past this statement.
        dpop.use(request.connection, request.proof)
        self._use_once()

        # 6. Sign and store, if client and user are still as they were.
        no_refresh_token = tokens.RefreshToken("", None)
        answer = tokens.issue(request, live_grant, no_refresh_token, self._store)
        if answer is None:
            fault = "the client or its user has just been changed; try again"
            self._refuse(fault, JwtFault.OVERTAKEN)
        del answer["refresh_token"]
        return 200, answer, self.TOKEN_RESPONSE_HEADER

    def _find_client(self, client_id: str) -> RegisteredClient | None:
        return clients.find_enabled(self.request.connection, client_id)

    def _verify(self, client: RegisteredClient) -> None:
        """Verify signature, type and claims. Raises `InvalidJwt` and `OAuth2Error`."""
        self.jwt = jwt = client_jwt.read(self.request.form["assertion"])
        claims = jwt.claims
        self.request.facts |= {
            name: audit.clean(value, client_authentication.MAX_FACT)
            for name in ("iss", "sub", "aud")
            if isinstance(value := claims.get(name), str)
        }
        if jwt.kid:
            self.request.facts["kid"] = audit.clean(jwt.kid, client_authentication.MAX_FACT)
        if (named := claims.get("client_id")) != client.client_id:
            if isinstance(named, str):
                longest = client_authentication.MAX_FACT
                self.request.facts["sent"] = audit.clean(named, longest)
            fault = "its client_id is not the client that sends it"
            raise InvalidJwt(fault, JwtFault.CLIENT)
        keys = self.request.assertion_keys
        if keys is None or claims.get("iss") not in client.id_jag_issuers:
            raise InvalidJwt(_STRANGER, JwtFault.ISSUER)
        types = (self.REQUIRED_TYP,)
        client_jwt.verify(jwt, keys(), client_jwt.ALGORITHMS, types, "its issuer")
        issuer = context.settings().issuer_of(client)
        if claims.get("aud") not in (issuer, [issuer]):
            raise InvalidJwt(f"its aud has to be {issuer} alone", JwtFault.AUDIENCE)
        if "cnf" in claims:
            raise InvalidJwt("it is bound to a key (cnf), which is not supported")
        if client_jwt.moment(claims, "iat") is None:
            raise InvalidJwt("it has no iat")
        self.expires = client_jwt.expiry(claims, clock.now().timestamp())
        for name, longest in (("sub", _MAX_SUBJECT), ("jti", client_jwt.MAX_ID)):
            if not _is_text(claims.get(name), longest):
                raise InvalidJwt(f"it has no {name}, a text of at most {longest} characters")

    def _find_api(self, client: RegisteredClient) -> Api:
        """Return the API that the token is for. Raises `InvalidTarget`."""
        request, named = self.request, self.jwt.claims.get("resource")
        listed = [named] if isinstance(named, str) else named or []
        if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
            self._refuse("its resource is neither a text nor a list of texts")
        resource = request.form.get("resource") or (listed[0] if listed else None)
        try:
            api = resources.of_service(
                resource, client.default_api, request.apis, context.settings().issuer_of(client)
            )
        except resources.InvalidTarget as error:
            request.facts["resource"] = resource or client.default_api or ""
            raise tokens.InvalidTarget(error.description) from None
        if listed and api.identifier not in map(resources.normalized, listed):
            request.facts["resource"] = api.identifier
            fault = describe(Cause.RESOURCE_NOT_ASSERTED, resource=api.identifier)
            raise tokens.InvalidTarget(fault)
        return api

    def _scope(self) -> str:
        """Return the scope at the API: what is requested, within the assertion's (RFC 7521 §4.1).

        Raises `OAuth2Error`.
        """
        request, claims = self.request, self.jwt.claims
        requested, asserted = request.payload.scope, claims.get("scope")
        # An empty one must not pass for a missing one, which leaves all scopes (RFC 6749 §3.3).
        if "scope" in claims and not (isinstance(asserted, str) and scopes.split(asserted)):
            self._refuse("its scope is no text, or has no scope in it")
        if asserted is not None and not {*scopes.split(requested)} <= {*scopes.split(asserted)}:
            request.facts |= {"requested_scope": requested, "granted_scope": asserted}
            raise InvalidScopeError(describe(Cause.SCOPE_NOT_ASSERTED))
        scope = resources.scope_of_service(requested or asserted, self.api)
        if scope is None:
            request.facts |= {
                "requested_scope": requested or asserted,
                "resource": self.api.identifier,
            }
            raise InvalidScopeError(describe(Cause.NO_SCOPE_OF_API, resource=self.api.identifier))
        return scope

    def _grant(self, client: RegisteredClient, asserted: AssertedUser, scope: str) -> LiveGrant:
        """Return the grant to store. It has no session here, so its `sid` is empty."""
        claims, now = self.jwt.claims, clock.now()
        identifier, user = self.api.identifier, asserted.user
        if not self.api.admits(user.groups):
            self.request.facts["resource"] = identifier
            fault = describe(Cause.NOT_A_MEMBER_OF_API, resource=identifier)
            raise tokens.InvalidTarget(fault)
        names = [resources.qualified(identifier, name) for name in scopes.split(scope) or [""]]
        signed_in = _signed_in_at(claims, now)
        return LiveGrant(
            id=uuid4(),
            user_id=user.id,
            client_id=client.client_id,
            sid="",
            scope=" ".join(names),
            claims={},
            auth_time=signed_in,
            amr="",  # how the user signed in there proves no second factor of this server
            acr=None,
            created_at=now,
            session_is_live=True,
            consented=None,
            declined=asserted.declined,
            user=user,
        )

    def _use_once(self) -> None:
        """Use the assertion. Raises `InvalidGrantError` if it was used before."""
        claims, client = self.jwt.claims, self.request.client
        expires_at = datetime.fromtimestamp(self.expires, UTC)
        use = redemption.SingleUse(
            "id-jag", client.client_id, claims["jti"], expires_at, claims["iss"]
        )
        try:
            is_first = redemption.use_once(self.request.connection, use, now=clock.now())
        except TooManyUsed:
            raise OAuth2Error(
                describe(Cause.TOO_MANY_ASSERTIONS),
                error="temporarily_unavailable",
                status_code=503,
            ) from None
        if not is_first:
            fault = "it was used before; get a new one for each request"
            self._refuse(fault, JwtFault.USED_BEFORE)

    def _store(self, token: NewToken) -> bool:
        request, claims, grant = self.request, self.jwt.claims, self.live_grant
        is_stored = approvals.add_by_assertion(
            request.connection,
            Seen(request.client.updated_at, grant.user.updated_at, None),
            claims["iss"],
            claims["sub"],
            id=grant.id,
            user_id=grant.user_id,
            client_id=grant.client_id,
            session_id=None,
            sid=grant.sid,
            scope=grant.scope,
            claims=grant.claims,
            auth_time=grant.auth_time,
            amr=grant.amr,
            acr=grant.acr,
            created_at=grant.created_at,
        )
        return is_stored and redemption.add_tokens(request.connection, token)

    def _refuse(self, fault: str, code: JwtFault | None = None) -> NoReturn:
        self.request.facts |= {"jwt": code, "fault": fault}
        raise InvalidGrantError(describe(Cause.ASSERTION_REFUSED, fault=fault))


def _signed_in_at(claims: Any, now: datetime) -> datetime:
    """Return when the user signed in at the issuer, as far as the assertion says so."""
    try:
        moment = client_jwt.moment(claims, "auth_time") or client_jwt.moment(claims, "iat")
    except InvalidJwt:
        moment = None
    return min(now, datetime.fromtimestamp(moment, UTC)) if moment else now


def _is_text(value: Any, longest: int = 500) -> TypeGuard[str]:
    """Return whether a database can look a value up: a short text without control characters."""
    return isinstance(value, str) and 0 < len(value) <= longest and value.isprintable()


def _unavailable(request: ProtocolRequest, error: KeySetUnavailable) -> NoReturn:
    request.facts["fault"] = error.reason
    fault = describe(Cause.ISSUER_UNREAD, fault=error.reason)
    if error.is_passing:
        raise OAuth2Error(fault, error="temporarily_unavailable", status_code=503)
    raise InvalidGrantError(fault)
