"""Issue identity assertions (ID-JAG): a client shows at another server who its user is.

Token exchange of an identity token (draft-ietf-oauth-identity-assertion-authz-grant §4). Nobody is
asked: the operator lists, for each client, the servers that it gets assertions for. The other
server decides what the client may do there.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NoReturn
from uuid import UUID

from authlib.oauth2.rfc6749.errors import InvalidRequestError, InvalidScopeError

from sso import clock, context
from sso.crypto import keys
from sso.flow import narrowing, resources, scopes, token_claims
from sso.flow.refusals import Cause, SubjectFault, describe
from sso.oauth import tokens
from sso.oauth.authlib_request import ProtocolRequest
from sso.store import assertions
from sso.store.clients import RegisteredClient
from sso.store.grants import LiveGrant

ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
ID_JAG_PROFILE = "urn:ietf:params:oauth:grant-profile:id-jag"
ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105 (no secret)
TYPE = "oauth-id-jag+jwt"
LIFETIME = 300  # seconds; it is used at once, and only once
# Any server can verify it: RFC 8414 §2 makes RS256 the algorithm that all support.
ALGORITHM = "RS256"
MAX_SCOPE = 1000  # characters


@dataclass(frozen=True)
class NewIdJag:
    """An assertion that may be issued."""

    grant: LiveGrant
    audience: str
    client_id: str  # of the client at the other server
    resource: str | None
    scope: str


def prepare(request: ProtocolRequest, client: RegisteredClient) -> NewIdJag:
    """Check a request for an assertion. The client has been authenticated. Raises `OAuth2Error`."""
    form = request.form
    for name in ("subject_token", "subject_token_type", "audience"):
        if not form.get(name):
            raise InvalidRequestError(describe(Cause.MISSING_PARAMETER, name=name))
    for name in ("actor_token", "actor_token_type"):
        if name in form:
            raise InvalidRequestError(describe(Cause.ACTOR_TOKEN))
    if form["subject_token_type"] != ID_TOKEN:
        _refuse(request, SubjectFault.TYPE)
    audience = form["audience"]
    entry = client.id_jag_audiences.get(audience)
    if entry is None:
        request.facts["resource"] = audience
        fault = describe(Cause.NO_ID_JAG_AUDIENCE, resource=resources.readable(audience))
        raise tokens.InvalidTarget(fault)
    client_id, available = entry
    grant = _grant_of(request, client)
    resource = form.get("resource")
    if resource is not None and resources.readable(resource) != resource:
        raise tokens.InvalidTarget(describe(Cause.UNREADABLE_RESOURCE))
    return NewIdJag(grant, audience, client_id, resource, _scope(request, audience, available))


def issue(request: ProtocolRequest, assertion: NewIdJag) -> dict[str, Any]:
    """Sign an assertion, and return the members of the response (RFC 8693 §2.2.1)."""
    now = clock.now()
    claims = token_claims.of_id_jag(
        assertion.grant,
        assertion.client_id,
        assertion.audience,
        issuer=context.settings().issuer_of(request.client),
        jti=keys.make_jti(),
        issued_at=now,
        expires_at=now + timedelta(seconds=LIFETIME),
        resource=assertion.resource,
        scope=assertion.scope,
    )
    request.live_grant, request.id_jag_audience = assertion.grant, assertion.audience
    answer = {
        "access_token": context.key_ring().sign(claims, ALGORITHM, TYPE),
        "issued_token_type": ID_JAG,
        "token_type": "N_A",  # RFC 8693 §2.2.1: it is no access token
        "expires_in": LIFETIME,
    }
    return {**answer, "scope": assertion.scope} if assertion.scope else answer


def _grant_of(request: ProtocolRequest, client: RegisteredClient) -> LiveGrant:
    """Return the live grant that the identity token came from. Raises `OAuth2Error`."""
    claims = context.key_ring().verify(request.form["subject_token"], typ="JWT")
    settings, now = context.settings(), clock.now()
    # A JWT without at_hash is another one for the client, such as a response (JARM).
    if claims is None or claims.get("iss") != settings.issuer_of(client) or "at_hash" not in claims:
        _refuse(request, SubjectFault.INVALID)
    if claims.get("aud") != client.client_id:
        request.facts["issued_to"] = claims.get("aud")
        _refuse(request, SubjectFault.ANOTHER_CLIENT)
    if not isinstance(claims.get("exp"), int) or claims["exp"] <= now.timestamp():
        _refuse(request, SubjectFault.EXPIRED)
    # The subject of such a client may be any text; the token is genuine, so its sign-in counts.
    user_id = None if client.subject_attribute else UUID(claims["sub"])
    grant = assertions.find_grant(request.connection, user_id, client.client_id, claims["sid"])
    request.details["user"] = user_id or (grant.user_id if grant else None)
    if grant is None:
        _refuse(request, SubjectFault.ENDED)
    try:
        narrowing.what_is_left(client, grant.user.groups, grant)
    except narrowing.NothingLeft as error:
        raise InvalidRequestError(error.description) from None
    return grant


def _scope(request: ProtocolRequest, audience: str, available: tuple[str, ...]) -> str:
    """Return the requested scopes, by default all that are available. Raises `OAuth2Error`."""
    requested = list(dict.fromkeys(scopes.split(request.payload.scope)))
    if len(" ".join(requested)) > MAX_SCOPE or (available and not {*requested} <= {*available}):
        request.facts |= {"requested_scope": request.payload.scope, "resource": audience}
        raise InvalidScopeError(describe(Cause.SCOPE_NOT_AT_AUDIENCE))
    return " ".join(requested or available)


def _refuse(request: ProtocolRequest, fault: SubjectFault) -> NoReturn:
    """Refuse the identity token. Which of the reasons applies is not for the client."""
    request.facts["fault"] = fault
    raise InvalidRequestError(describe(Cause.SUBJECT_NO_ID_TOKEN))
