"""What both grants issue: access token (RFC 9068), refresh token, identity token (OIDC Core §2).

Clients and resource servers verify an access token by its signature. This server asks its database
anyway, whether a token is revoked. The digest of the whole token is stored there: it vouches for
the token better than a signature does, and costs nothing.
"""

import json
from base64 import urlsafe_b64decode
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from authlib.oauth2.rfc6749.errors import InvalidGrantError, OAuth2Error
from authlib.oidc.core.grants.util import create_half_hash

from sso import clock, context
from sso.crypto import keys, secrets
from sso.flow import narrowing, resources, scopes, token_claims
from sso.flow.refusals import Cause
from sso.i18n.message import code_of
from sso.oauth.authlib_request import ProtocolRequest
from sso.store.clients import RegisteredClient
from sso.store.grants import LiveGrant
from sso.store.redemption import NewToken

_LONGEST_JTI = 43


class RefreshToken(NamedTuple):
    """A refresh token to hand out, and the digest to store; `None` if it is stored already.

    `secret` is `None` if none is handed out.
    """

    secret: str | None
    digest: str | None


NO_REFRESH_TOKEN = RefreshToken(None, None)


def new_refresh_token() -> RefreshToken:
    """Make a random refresh token."""
    secret = secrets.make_secret(secrets.REFRESH_TOKEN)
    return RefreshToken(secret, secrets.digest(secret))


def family_ends_at(approved_at: datetime) -> datetime:
    """Return when the last refresh token of a grant expires, however often they are used."""
    lifetime = context.settings().refresh_token_absolute_lifetime
    return approved_at + timedelta(seconds=lifetime)


def as_allowed_now(live_grant: LiveGrant, request: ProtocolRequest) -> LiveGrant:
    """Return the grant, reduced to what is allowed by now.

    Raises `InvalidGrantError`; `InvalidTarget` if all that is missing is what was granted at APIs.
    """
    client, groups = request.client, live_grant.user.groups
    apis = resources.NO_APIS
    if resources.identifiers_in(live_grant.scope):
        apis = resources.existing_at(live_grant.created_at, request.apis)
    try:
        scope, claims = narrowing.what_is_left(client, groups, live_grant, apis)
    except narrowing.NothingLeft as error:
        if code_of(error.description) == Cause.NOTHING_LEFT:
            choose_audience(request, live_grant.scope, "")
        raise InvalidGrantError(error.description) from None
    if (scope, claims) == (live_grant.scope, live_grant.claims):
        return live_grant
    return replace(live_grant, scope=scope, claims=claims)


class InvalidTarget(OAuth2Error):
    """A resource that the access token cannot be for (RFC 8707 §2)."""

    error = "invalid_target"


def choose_audience(request: ProtocolRequest, granted: str, allowed: str) -> None:
    """Note which API the access token is for, of those in the scope of a grant.

    `granted` is that scope, `allowed` what is left of it. Raises `InvalidTarget`.
    """
    resource = request.form.get("resource")
    if resource is None and not resources.identifiers_in(granted):
        return
    apis, issuer = request.apis, context.settings().issuer_of(request.client)
    try:
        request.audience = resources.audience(resource, granted, allowed, apis, issuer)
    except resources.InvalidTarget as error:
        request.facts["resource"] = resource or resources.identifiers_in(granted)[0]
        raise InvalidTarget(error.description) from None


def issue(
    request: ProtocolRequest,
    live_grant: LiveGrant,
    refresh_token: RefreshToken,
    store: Callable[[NewToken], bool],
    *,
    nonce: str | None = None,
    is_narrowed: bool = False,
) -> dict[str, Any] | None:
    """The members of the token response (RFC 6749 §5.1); `None` if `store` did not take its row.

    `store` comes last: nothing can fail any more once it counts. `is_narrowed`: the client asked
    for less than it may have.
    """
    settings, now, jti = context.settings(), clock.now(), keys.make_jti()
    api = request.apis[request.audience] if request.audience else None
    lifetime = lifetime_for(api)
    expires_at = now + timedelta(seconds=lifetime)
    claims = token_claims.of_access_token(
        live_grant,
        issuer=settings.issuer_of(request.client),
        jti=jti,
        issued_at=now,
        expires_at=expires_at,
        dpop_jkt=request.dpop_jkt,
        api=api,
        own=request.client.own_claims,
        subject_attribute=request.client.subject_attribute,
    )
    access_token = context.key_ring().sign(claims, keys.ACCESS_TOKEN_ALGORITHM, "at+jwt")
    answer: dict[str, Any] = {
        "access_token": access_token,
        "token_type": token_type(request.dpop_jkt),
        "expires_in": lifetime,
        "refresh_token": refresh_token.secret,
        "scope": claims.get("scope", ""),
    }
    if refresh_token.secret is None:
        del answer["refresh_token"]
    if "openid" in scopes.split(live_grant.scope):
        answer["id_token"] = _id_token(live_grant, request.client, access_token, nonce, now)
    row = NewToken(
        jti=jti,
        access_digest=secrets.digest(access_token),
        grant_id=live_grant.id,
        scope=answer["scope"],
        audience=request.audience,
        is_narrowed=is_narrowed,
        dpop_jkt=request.dpop_jkt,
        address=request.address,
        issued_at=now,
        expires_at=expires_at,
        refresh_digest=refresh_token.digest,
        refresh_expires_at=refresh_expiry(live_grant.created_at, now)
        if refresh_token.digest
        else None,
    )
    if not store(row):
        return None
    request.live_grant = live_grant
    return answer


def lifetime_for(api: resources.Api | None) -> int:
    """Return the seconds that an access token for an API lives."""
    return (api and api.access_token_lifetime) or context.settings().access_token_lifetime


def refresh_expiry(granted_at: datetime, now: datetime) -> datetime:
    """Return when a refresh token that is used now expires."""
    lifetime = timedelta(seconds=context.settings().refresh_token_lifetime)
    return min(now + lifetime, family_ends_at(granted_at))


def token_type(dpop_jkt: str | None) -> str:
    """Return the type of an access token, by the key that it is bound to (RFC 9449 §5)."""
    return "DPoP" if dpop_jkt else "Bearer"


def _id_token(
    live_grant: LiveGrant,
    client: RegisteredClient,
    access_token: str,
    nonce: str | None,
    now: datetime,
) -> str:
    alg = client.id_token_signed_response_alg
    if alg not in keys.ALGORITHMS:
        raise RuntimeError(f"client {client.client_id} is registered for the algorithm {alg}")
    claims = token_claims.of_id_token(
        live_grant,
        client,
        issuer=context.settings().issuer_of(client),
        issued_at=now,
        expires_at=now + timedelta(seconds=keys.ID_TOKEN_LIFETIME),
        at_hash=create_half_hash(access_token, alg).decode(),
        nonce=nonce,
    )
    return context.key_ring().sign(claims, alg, "JWT")


def claimed_jti(token: str) -> str | None:
    """Return the `jti` of an unverified token; `None` if it is not a JWT with one."""
    jti = (unverified_claims(token) or {}).get("jti")
    # PostgreSQL takes no NUL.
    if not isinstance(jti, str) or len(jti) > _LONGEST_JTI or not jti.isprintable():
        return None
    return jti


def is_of_service(token: str) -> bool:
    """Return whether a token claims that its client is its subject. Nothing is verified."""
    claims = unverified_claims(token) or {}
    return claims.get("sub") is not None and claims.get("sub") == claims.get("client_id")


def is_exchanged(token: str) -> bool:
    """Return whether a token claims that a client acts with it (RFC 8693). Nothing is verified."""
    return "act" in (unverified_claims(token) or {})


def is_genuine(token: str, access_digest: str | None) -> bool:
    """Return whether the digest is that of exactly this token."""
    if access_digest is None:  # of an older version: it signed the token, and kept no digest
        claims = context.key_ring().verify(token, typ="at+jwt")
        return claims is not None and claims.get("iss") == context.settings().issuer
    return secrets.matches(token, access_digest)


def has_issuer_of(token: str, client: RegisteredClient) -> bool:
    """Return whether a genuine access token names the issuer that its client has now.

    The tokens of a client that has moved to another issuer end there.
    """
    settings = context.settings()
    if not settings.issuer_aliases:
        return True
    return (unverified_claims(token) or {}).get("iss") == settings.issuer_of(client)


def claims_of_hint(token: str) -> dict[str, Any] | None:
    """Return the claims of an `id_token_hint`: an identity token of this server, however old.

    Those of an earlier server, whose keys are not here, prove nothing: a hint with its issuer says
    which client sends it (`aud`) and whom it expects (`sub`), as a client may say without proof,
    and nothing more. So it names no session.
    """
    settings, claims = context.settings(), context.key_ring().verify(token, typ="JWT")
    if claims is not None:
        return claims if settings.is_issuer(claims.get("iss")) else None
    claims = unverified_claims(token) or {}
    issuer, client_id = claims.get("iss"), claims.get("aud")
    if isinstance(client_id, list):  # the others are APIs; OIDC Core §2
        client_id = claims.get("azp")
    if (
        not isinstance(issuer, str)
        or issuer not in settings.aliases
        or context.key_ring().has_key_of(token)
    ):
        return None
    if not isinstance(client_id, str) or not client_id.isprintable():  # PostgreSQL takes no NUL
        return None
    return {"iss": issuer, "aud": client_id, "sub": claims.get("sub")}


def facts_of_hint(token: str) -> dict[str, object]:
    """Return the claims of a refused `id_token_hint`, for `flask explain`."""
    claims = unverified_claims(token)
    if claims is None:
        return {"hint": "no JWT"}
    iat = claims.get("iat")
    return {
        "hint_iss": claims.get("iss"),
        "hint_aud": claims.get("aud"),
        "hint_iat": int(iat) if isinstance(iat, int | float) and abs(iat) < 1e12 else None,
    }


def unverified_claims(token: str) -> dict[str, Any] | None:
    """Return the unverified claims of a JWT, or `None`. Use them only to look something up."""
    try:
        _, payload, _ = token.split(".")
        claims = json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)).decode())
    except (ValueError, RecursionError):
        return None
    return claims if isinstance(claims, dict) else None
