"""What a client would receive for a user now, and why the rest is missing. Nothing is written."""

from dataclasses import dataclass, fields, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import uuid4

from authlib.oidc.core.grants.util import create_half_hash

from sso import clock, context, database
from sso.crypto import keys
from sso.flow import decision, narrowing, scopes, token_claims
from sso.flow import request as flow_request
from sso.flow.decision import AskConsent, Consent, Forbid, SecondFactor, Session
from sso.flow.request import AuthorizationRequest
from sso.flow.token_claims import Missing
from sso.mfa import policy as mfa_policy
from sso.mfa.policy import Proof
from sso.models import KeyState, User
from sso.store import clients, factors, grants
from sso.store import keys as stored_keys
from sso.store.clients import RegisteredClient
from sso.store.grants import LiveGrant
from sso.store.users import UserProfile

# A plausible pace: the application asks, the user signs in, then allows, and the code is redeemed.
_ASKED, _SIGNED_IN, _ALLOWED = (timedelta(seconds=seconds) for seconds in (30, 15, 5))
_MOST_STEPS = 5


class Stop(StrEnum):
    """Why a sign-in would fail."""

    CLIENT_DISABLED = "client_disabled"
    USER_DISABLED = "user_disabled"
    CANNOT_SIGN_IN = "cannot_sign_in"  # neither a password nor a passkey
    NOT_A_MEMBER = "not_a_member"
    INVALID_SCOPE = "invalid_scope"
    ALL_WITHHELD = "all_withheld"


class Token(NamedTuple):
    """A token before it is signed."""

    header: dict[str, Any]
    claims: dict[str, Any]


@dataclass(frozen=True)
class Tokens:
    """What the client would receive."""

    access_token: Token
    id_token: Token | None
    userinfo: dict[str, Any] | None


@dataclass(frozen=True)
class Preview:
    """With `stops` the client receives nothing.

    `amr`: how the user would sign in, after setting up a second factor if `enrols`. `consent`: the
    scopes that the user would be asked to allow; what follows is as if all of them were. `scope` is
    what would be granted, `dropped` what was requested in vain.
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


@dataclass(frozen=True)
class _Approval:
    """How a request would be answered with a code."""

    request: AuthorizationRequest
    session: Session
    consent: Consent | None
    proof: Proof
    enrols: bool
    asked: frozenset[str]
    withheld: frozenset[str]


def make(
    client_id: str, user: User, scope: str | None = None, claims: str | None = None
) -> Preview:
    """What the client would receive if it sent these parameters, and the user signed in.

    Raises `LookupError` if there is no such client.
    """
    connection = database.session_connection()
    client = clients.registered(connection, client_id)
    if client is None:
        raise LookupError(client_id)
    shown = _sign_in(user)
    found = _approve(client, user, shown or mfa_policy.PASSWORD, scope, claims)
    obstacles = {
        Stop.CLIENT_DISABLED: clients.why_not_enabled(connection, client_id) is not None,
        Stop.USER_DISABLED: user.disabled_at is not None,
        Stop.CANNOT_SIGN_IN: shown is None,
    }
    stops = tuple(stop for stop, is_there in obstacles.items() if is_there)
    if isinstance(found, Stop):
        return Preview(client, user, (*stops, found))
    if stops:
        return Preview(client, user, stops)
    grant = _grant(client, user, found)
    tokens = _issue(client, grant)
    return Preview(
        client,
        user,
        (),
        tuple(grant.amr.split()),
        found.enrols,
        tuple(name for name in scopes.SCOPES if name in found.asked),
        grant.scope,
        scopes.dropped(scope, found.request.scope),
        tokens,
        tuple(
            token_claims.explain_missing(
                {
                    "id_token": tokens.id_token.claims if tokens.id_token else None,
                    "userinfo": tokens.userinfo,
                },
                registered=scopes.split(client.scope),
                granted=scopes.split(grant.scope),
                withheld=found.withheld,
                is_standard=client.is_fapi2,
            )
        ),
    )


def _sign_in(user: User) -> Proof | None:
    """What the user would prove, with the factors there are; `None` if it is not enough."""
    known = factors.of_user(user.id)
    passkey = known.passkeys[0] if known.passkeys else None
    if user.password_hash is None:
        return mfa_policy.of_passkey_alone(passkey.is_synced) if passkey else None
    if known.totp:
        return mfa_policy.with_second(mfa_policy.PASSWORD.amr, mfa_policy.OTP)
    if passkey:
        return mfa_policy.with_second(
            mfa_policy.PASSWORD.amr, mfa_policy.passkey_methods(passkey.is_synced)
        )
    return mfa_policy.PASSWORD


def _approve(
    client: RegisteredClient, user: User, shown: Proof, scope: str | None, claims: str | None
) -> _Approval | Stop:
    """Take every step that the authorization endpoint would demand."""
    now = clock.now()
    values = {"client_id": client.client_id, "redirect_uri": client.redirect_uris[0], "state": ""}
    values |= {n: v for n, v in (("scope", scope), ("claims", claims)) if v is not None}
    try:
        asked = flow_request.parse(
            values,
            registered_scope=client.scope,
            require_pkce=False,
            hinted_subject=None,
            now=now - _ASKED,
        )
    except flow_request.InvalidRequest:
        return Stop.INVALID_SCOPE
    policy = client.policy_at(asked.redirect_uri)
    session = Session(str(user.id), now - _SIGNED_IN, shown.acr, frozenset(user.groups))
    consent = Consent.of(grants.find_consent(user.id, client.client_id))
    enrols, asked_for = False, frozenset[str]()
    for _ in range(_MOST_STEPS):
        step = decision.decide(asked, session, consent, policy, now)
        if isinstance(step, decision.Answer):
            request = asked.without(step.withheld)
            return _Approval(request, session, consent, shown, enrols, asked_for, step.withheld)
        if isinstance(step, SecondFactor):
            enrols, shown = True, mfa_policy.with_second(shown.amr, mfa_policy.OTP)
            session = replace(session, acr=shown.acr, has_factor=True)
        elif isinstance(step, AskConsent):
            # What was declined before is unticked on the page.
            declined = (consent.declined if consent else frozenset()) - scopes.NEEDED
            before = consent.scope if consent else frozenset()
            asked_for, given_at = step.scopes, now - _ALLOWED
            consent = Consent(before | (step.scopes - declined), given_at, declined)
            asked = replace(asked, resumed=True, consented_at=given_at)
        else:
            return Stop.NOT_A_MEMBER if isinstance(step, Forbid) else Stop.ALL_WITHHELD
    raise RuntimeError("the authorization endpoint would never answer")


def _grant(client: RegisteredClient, user: User, approval: _Approval) -> LiveGrant:
    """What the approval would leave in the database, reduced to what it may give."""
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
        user=UserProfile(**{one.name: getattr(user, one.name) for one in fields(UserProfile)}),
        **decision.granted(approval.request, approval.session.acr),
    )
    scope, claims = narrowing.what_is_left(client, user.groups, grant)
    return replace(grant, scope=scope, claims=claims)


def _issue(client: RegisteredClient, grant: LiveGrant) -> Tokens:
    settings, now = context.settings(), clock.now()
    alg, jti = client.id_token_signed_response_alg, keys.make_jti()
    access_token = token_claims.of_access_token(
        grant,
        issuer=settings.issuer,
        jti=jti,
        issued_at=now,
        expires_at=now + timedelta(seconds=settings.access_token_lifetime),
    )
    id_token = token_claims.of_id_token(
        grant,
        client,
        issuer=settings.issuer,
        issued_at=now,
        expires_at=now + timedelta(seconds=keys.ID_TOKEN_LIFETIME),
        at_hash=create_half_hash(jti, alg).decode(),  # only looks like one: nothing is signed
    )
    granted = set(scopes.split(grant.scope))
    opens_userinfo = granted & set(scopes.USERINFO_SCOPES)
    return Tokens(
        Token(_header(keys.ACCESS_TOKEN_ALGORITHM, "at+jwt"), access_token),
        Token(_header(alg, "JWT"), id_token) if "openid" in granted else None,
        token_claims.of_userinfo(grant.user, client, grant.scope, grant.claims)
        if opens_userinfo
        else None,
    )


def _header(alg: str, typ: str) -> dict[str, Any]:
    """Raises `KeyUnavailable`."""
    for row in stored_keys.every_signing_key():
        if row.alg == alg and row.state == KeyState.ACTIVE:
            return keys.make_header(alg, row.kid, typ)
    raise keys.KeyUnavailable(keys.NO_ACTIVE_KEY)
