"""Preview: the claims that a client would receive for a user, and why others are missing.

Nothing is written.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import uuid4

from authlib.oidc.core.grants.util import create_half_hash

from sso import clock, context, database
from sso.config.settings import Settings
from sso.crypto import keys
from sso.flow import (
    decision,
    narrowing,
    own_claims,
    resources,
    role_claims,
    saml_claims,
    scopes,
    token_claims,
)
from sso.flow import request as flow_request
from sso.flow.decision import AskConsent, Consent, Forbid, SecondFactor, Session
from sso.flow.request import AuthorizationRequest
from sso.flow.resources import Api, Apis
from sso.flow.token_claims import Missing
from sso.i18n.message import Message
from sso.mfa import policy as mfa_policy
from sso.mfa.policy import Proof
from sso.models import KeyState, User
from sso.services import agent_identity, attributes, checks
from sso.store import apis as stored_apis
from sso.store import clients, factors, grants, saml
from sso.store import keys as stored_keys
from sso.store.clients import RegisteredClient
from sso.store.grants import LiveGrant
from sso.store.users import UserProfile

# A plausible pace: the application asks, the user signs in, then allows, and the code is redeemed.
_ASKED, _SIGNED_IN, _ALLOWED = (timedelta(seconds=seconds) for seconds in (30, 15, 5))
_MOST_STEPS = 5


class Stop(StrEnum):
    """The reason why a sign-in would fail."""

    CLIENT_DISABLED = "client_disabled"
    USER_DISABLED = "user_disabled"
    CANNOT_SIGN_IN = "cannot_sign_in"  # neither a password nor a passkey
    NOT_A_MEMBER = "not_a_member"
    NOT_A_MEMBER_OF_API = "not_a_member_of_api"
    INVALID_SCOPE = "invalid_scope"
    INVALID_TARGET = "invalid_target"
    WITHOUT_PERSON = "without_person"  # it gets tokens for itself alone
    ALL_WITHHELD = "all_withheld"
    NAME_ID_MISSING = "name_id_missing"  # there is nobody whom an assertion could name


class Token(NamedTuple):
    """A token before it is signed."""

    header: dict[str, Any]
    claims: dict[str, Any]


@dataclass(frozen=True)
class Roles:
    """The roles of the user at an application or an API, each with the groups that give it.

    `audience`: the client ID or the identifier. `name`: the name for people.
    """

    audience: str
    name: str
    sources: dict[str, list[str]]


@dataclass(frozen=True)
class OwnClaim:
    """A claim of the client's own: its value, and where that comes from (see `own_claims.Origin`).

    `set_by`: who set the attribute that it comes from, if that is known. `places`: where the client
    receives it; a claim without a value, or without room, has none.
    """

    name: str
    value: Any
    source: str
    names: tuple[str, ...]
    set_by: Message | None
    places: tuple[str, ...]


@dataclass(frozen=True)
class Tokens:
    """The tokens and claims that the client would receive.

    `access_tokens`: one for each audience, first that of a token request that names none.
    """

    access_tokens: tuple[Token, ...]
    id_token: Token | None
    userinfo: dict[str, Any] | None

    @property
    def access_token(self) -> Token:
        return self.access_tokens[0]


@dataclass(frozen=True)
class Assertion:
    """The assertion that a service provider of SAML would receive.

    `kind`: "persistent", or the claim that is the NameID. `name_id` is `None` if a persistent one
    is made at the first sign-on.
    """

    kind: str
    name_id: str | None
    attributes: dict[str, list[str]]


@dataclass(frozen=True)
class Preview:
    """The result of a sign-in. With `stops` the client receives nothing.

    `amr`: the methods of the sign-in, after setting up a second factor if `enrols`. `consent`: the
    scopes that the user would be asked to allow; the rest assumes that all are allowed. `scope`:
    the granted scopes. `dropped`: the requested scopes that are not granted. `api`: the API that
    does not admit the user.
    """

    client: RegisteredClient
    user: User
    stops: tuple[Stop, ...]
    amr: tuple[str, ...] = ()
    enrols: bool = False
    consent: tuple[str, ...] = ()
    scope: str = ""
    dropped: str = ""
    tokens: Tokens | None = None
    missing: tuple[Missing, ...] = ()
    api: Api | None = None
    roles: tuple[Roles, ...] = ()
    own_claims: tuple[OwnClaim, ...] = ()
    assertion: Assertion | None = None


@dataclass(frozen=True)
class _Approval:
    """An approved authorization request, and the steps that led to it."""

    request: AuthorizationRequest
    session: Session
    consent: Consent | None
    proof: Proof
    enrols: bool
    asked_scopes: frozenset[str]
    withheld: frozenset[str]


def make(
    client_id: str,
    user: User,
    scope: str | None = None,
    claims: str | None = None,
    resource: str | None = None,
) -> Preview:
    """Return the result of a sign-in of the user after a request with these parameters.

    `resource`: identifiers of APIs, with spaces between them. Raises `LookupError` if there is no
    such client.
    """
    connection = database.session_connection()
    client = clients.registered(connection, client_id)
    if client is None:
        raise LookupError(client_id)
    proof = _sign_in(user)
    apis = stored_apis.of_client(connection, client)
    parameters = {"scope": scope, "claims": claims, "resource": resource}
    values = {name: value for name, value in parameters.items() if value is not None}
    outcome = _approve(client, user, proof or mfa_policy.PASSWORD, values, apis)
    obstacles = {
        Stop.CLIENT_DISABLED: clients.why_not_enabled(connection, client_id) is not None,
        Stop.USER_DISABLED: user.is_disabled,
        Stop.CANNOT_SIGN_IN: proof is None,
    }
    stops = tuple(stop for stop, is_there in obstacles.items() if is_there)
    if isinstance(outcome, Api):
        return Preview(client, user, (*stops, Stop.NOT_A_MEMBER_OF_API), api=outcome)
    if isinstance(outcome, Stop):
        return Preview(client, user, (*stops, outcome))
    if stops:
        return Preview(client, user, stops)
    grant = _grant(client, user, outcome, apis)
    assertion = _assertion(client, grant) if client.is_saml else None
    if assertion and assertion.kind != saml_claims.PERSISTENT and assertion.name_id is None:
        return Preview(client, user, (Stop.NAME_ID_MISSING,))
    tokens = None if assertion else _issue(client, grant, apis)
    granted_names = " ".join(map(resources.scope_of, scopes.split(outcome.request.scope)))
    return Preview(
        client,
        user,
        (),
        tuple(grant.amr.split()),
        outcome.enrols,
        _ordered(outcome.asked_scopes, outcome.request.scope),
        grant.scope,
        scopes.dropped(scope, granted_names),
        tokens,
        tuple(
            token_claims.explain_missing(
                _places(tokens, grant),
                registered=scopes.split(client.scope),
                granted=scopes.split(grant.scope),
                withheld=outcome.withheld,
                is_standard=client.is_fapi2,
            )
        ),
        roles=() if assertion else tuple(_roles(client, user, grant, apis)),
        own_claims=tuple(_own_claims(client, user, grant, tokens)),
        assertion=assertion,
    )


def _places(tokens: Tokens | None, grant: LiveGrant) -> dict[str, dict[str, Any] | None]:
    """Return the claims that the client receives, by where it does."""
    if tokens is None:
        own = dict.fromkeys(scopes.OWN_CLAIMS)  # attributes have the standard ones
        return {"assertion": {**own, **saml_claims.claims_of(grant.user, grant.scope)}}
    return {
        "id_token": tokens.id_token.claims if tokens.id_token else None,
        "userinfo": tokens.userinfo,
    }


def _own_claims(
    client: RegisteredClient, user: User, grant: LiveGrant, tokens: Tokens | None
) -> Iterator[OwnClaim]:
    """Yield the client's own claims, each with the places that have it now."""
    places: dict[str, Mapping[str, Any] | None]
    if tokens is None:
        place = own_claims.ASSERTION
        places = {place: own_claims.of(client.own_claims, grant.user, place)}
    else:
        access_token = tokens.access_token.claims
        places = {**_places(tokens, grant), own_claims.ACCESS_TOKEN: access_token}
    for origin in own_claims.origins(client.own_claims, grant.user):
        having = tuple(place for place, claims in places.items() if origin.name in (claims or {}))
        set_by = None
        if origin.source == own_claims.ATTRIBUTE and origin.value is not None:
            set_by = attributes.origin_text(user, origin.names[0])
        yield OwnClaim(origin.name, origin.value, origin.source, origin.names, set_by, having)


def _assertion(client: RegisteredClient, grant: LiveGrant) -> Assertion:
    kind = client.saml_name_id
    if kind == saml_claims.PERSISTENT:
        name_id = saml.existing_persistent_id(client.client_id, grant.user_id)
    else:
        name_id = saml_claims.name_of(grant.user, kind, grant.scope)
    attributes = saml_claims.attributes_of(
        grant.user, client.saml_attributes, grant.scope, client.own_claims
    )
    return Assertion(kind, name_id, attributes)


def _roles(client: RegisteredClient, user: User, grant: LiveGrant, apis: Apis) -> Iterator[Roles]:
    if client.roles:
        sources = role_claims.sources(client.roles, user.groups)
        yield Roles(client.client_id, agent_identity.title_of(client), sources)
    for api in (apis[name] for name in resources.identifiers_in(grant.scope)):
        if api.roles:
            yield Roles(api.identifier, api.name, role_claims.sources(api.roles, user.groups))


def _sign_in(user: User) -> Proof | None:
    """Return the proof that the user's factors give, or `None` if they cannot sign in."""
    user_factors = factors.of_user(user.id)
    passkey = user_factors.passkeys[0] if user_factors.passkeys else None
    if user.password_hash is None:
        return mfa_policy.of_passkey_alone(passkey.is_synced) if passkey else None
    if user_factors.totp:
        return mfa_policy.with_second(mfa_policy.PASSWORD.amr, mfa_policy.OTP)
    if passkey:
        return mfa_policy.with_second(
            mfa_policy.PASSWORD.amr, mfa_policy.passkey_methods(passkey.is_synced)
        )
    return mfa_policy.PASSWORD


def _ordered(asked_scopes: Collection[str], requested: str) -> tuple[str, ...]:
    """Return the scopes that the user is asked for: this server's, then those of APIs."""
    of_apis = (name for name in scopes.split(requested) if resources.is_of_api(name))
    return tuple(name for name in (*scopes.SCOPES, *of_apis) if name in asked_scopes)


def _approve(
    client: RegisteredClient, user: User, proof: Proof, values: Mapping[str, str], apis: Apis
) -> _Approval | Api | Stop:
    """Go through the steps of the authorization endpoint, for a request with these values.

    Return the API that does not admit the user, if one does not.
    """
    now = clock.now()
    if not checks.has_person(client.client_metadata):
        return Stop.WITHOUT_PERSON
    redirect_uri = next(iter(client.redirect_uris), "")
    try:
        request = flow_request.parse(
            {"client_id": client.client_id, "redirect_uri": redirect_uri, "state": "", **values},
            registered_scope=client.scope,
            require_pkce=False,
            hinted_subject=None,
            now=now - _ASKED,
            apis=apis,
            default_api=client.default_api,
            issuer=context.settings().issuer_of(client),
        )
    except flow_request.InvalidRequest as error:
        return Stop.INVALID_TARGET if error.error == "invalid_target" else Stop.INVALID_SCOPE
    groups = {name: apis[name].groups for name in request.resources}
    policy = replace(client.policy_at(request.redirect_uri), api_groups=groups)
    session = Session(str(user.id), now - _SIGNED_IN, proof.acr, frozenset(user.groups))
    consent = Consent.of(grants.find_consent(user.id, client.client_id))
    enrols, asked_scopes = False, frozenset[str]()
    for _ in range(_MOST_STEPS):
        step = decision.decide(request, session, consent, policy, now)
        if isinstance(step, decision.Answer):
            answered = request.without(step.withheld)
            return _Approval(answered, session, consent, proof, enrols, asked_scopes, step.withheld)
        if isinstance(step, SecondFactor):
            enrols, proof = True, mfa_policy.with_second(proof.amr, mfa_policy.OTP)
            session = replace(session, acr=proof.acr, has_factor=True)
        elif isinstance(step, AskConsent):
            # What was declined before is unticked on the page.
            declined = (consent.declined if consent else frozenset()) - scopes.NEEDED
            before = consent.scope if consent else frozenset()
            asked_scopes, given_at = step.scopes, now - _ALLOWED
            consent = Consent(before | (step.scopes - declined), given_at, declined)
            request = replace(request, resumed=True, consented_at=given_at)
        elif isinstance(step, Forbid):
            return apis[step.api] if step.api else Stop.NOT_A_MEMBER
        else:
            return Stop.ALL_WITHHELD
    raise RuntimeError("the authorization endpoint would never answer")


def _grant(client: RegisteredClient, user: User, approval: _Approval, apis: Apis) -> LiveGrant:
    """Return the grant of an approval, narrowed to the scopes and claims that it may give."""
    consent = approval.consent
    grant = LiveGrant(
        id=uuid4(),
        user_id=user.id,
        client_id=client.client_id,
        sid=str(uuid4()),
        auth_time=approval.session.auth_time,
        amr=approval.proof.amr,
        created_at=clock.now(),
        session_is_live=True,
        consented=" ".join(consent.scope) if consent else None,
        declined=" ".join(consent.declined) if consent else None,
        user=UserProfile(
            **{column.name: getattr(user, column.name) for column in fields(UserProfile)}
        ),
        **decision.granted(approval.request, approval.session.acr),
    )
    scope, claims = narrowing.what_is_left(client, user.groups, grant, apis)
    return replace(grant, scope=scope, claims=claims)


def _issue(client: RegisteredClient, grant: LiveGrant, apis: Apis) -> Tokens:
    settings, now = context.settings(), clock.now()
    alg, jti = client.id_token_signed_response_alg, keys.make_jti()
    audiences: list[Api | None] = [apis[name] for name in resources.identifiers_in(grant.scope)]
    if resources.at(None, grant.scope):
        audiences.append(None)  # this server
    access_tokens = [
        token_claims.of_access_token(
            grant,
            issuer=settings.issuer_of(client),
            jti=jti,
            issued_at=now,
            expires_at=now + timedelta(seconds=_lifetime(api, settings)),
            api=api,
            own=client.own_claims,
            subject_attribute=client.subject_attribute,
        )
        for api in audiences
    ]
    id_token = token_claims.of_id_token(
        grant,
        client,
        issuer=settings.issuer_of(client),
        issued_at=now,
        expires_at=now + timedelta(seconds=keys.ID_TOKEN_LIFETIME),
        at_hash=create_half_hash(jti, alg).decode(),  # an example value: nothing is signed
    )
    granted = set(scopes.split(grant.scope))
    opens_userinfo = granted & set(scopes.USERINFO_SCOPES)
    return Tokens(
        tuple(
            Token(_header(keys.ACCESS_TOKEN_ALGORITHM, "at+jwt"), claims)
            for claims in access_tokens
        ),
        Token(_header(alg, "JWT"), id_token) if "openid" in granted else None,
        token_claims.of_userinfo(grant.user, client, grant.scope, grant.claims)
        if opens_userinfo
        else None,
    )


def _lifetime(api: Api | None, settings: Settings) -> int:
    return (api and api.access_token_lifetime) or settings.access_token_lifetime


def _header(alg: str, typ: str) -> dict[str, Any]:
    """Return the header of a token. Raises `KeyUnavailable`."""
    for row in stored_keys.every_signing_key():
        if row.alg == alg and row.state == KeyState.ACTIVE:
            return keys.make_header(alg, row.kid, typ)
    raise keys.KeyUnavailable(keys.NO_ACTIVE_KEY)
