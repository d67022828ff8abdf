"""The claims of access token, identity token and userinfo, and why a client does not get a
claim.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from sso.flow import own_claims, resources, role_claims, scopes
from sso.flow.resources import Api
from sso.flow.scopes import Profile

Claims = dict[str, Any]


class Client(Protocol):
    """The part of a client's registration that shapes its tokens."""

    @property
    def client_id(self) -> str: ...
    @property
    def is_fapi2(self) -> bool: ...
    @property
    def id_token_has_all_claims(self) -> bool: ...
    @property
    def roles(self) -> Sequence[str]: ...
    @property
    def roles_shape(self) -> str: ...
    @property
    def own_claims(self) -> Sequence[str]: ...
    @property
    def subject_attribute(self) -> str | None: ...


class Grant(Protocol):
    """A grant, reduced to what it may give now (see `flow.narrowing`)."""

    @property
    def user_id(self) -> UUID: ...
    @property
    def client_id(self) -> str: ...
    @property
    def sid(self) -> str: ...
    @property
    def scope(self) -> str: ...
    @property
    def claims(self) -> Mapping[str, Iterable[str]]: ...
    @property
    def auth_time(self) -> datetime: ...
    @property
    def amr(self) -> str: ...
    @property
    def acr(self) -> str | None: ...
    @property
    def user(self) -> Profile: ...


LONGEST_SUBJECT = 255  # characters; OIDC Core §2


def subject(user: Profile, attribute: str | None, client_id: str) -> str:
    """Return what a client knows a user by: the value of its attribute, or the user's ID.

    Never the client's own ID, which would say that the client acts for itself (RFC 9068 §2.2).
    """
    value = user.attributes.get(attribute) if attribute else None
    if isinstance(value, str) and len(value) <= LONGEST_SUBJECT and value != client_id:
        return value
    return str(user.id)


def of_access_token(
    grant: Grant,
    *,
    issuer: str,
    jti: str,
    issued_at: datetime,
    expires_at: datetime,
    dpop_jkt: str | None = None,
    api: Api | None = None,
    own: Sequence[str] = (),
    subject_attribute: str | None = None,
) -> Claims:
    """RFC 9068 §2.2. Without an API the audience is this server's userinfo.

    `dpop_jkt`: the thumbprint of the key that the token is bound to (RFC 9449 §6.1). `own`: the
    client's own claims; `subject_attribute`: its attribute of subjects.
    """
    place = own_claims.ACCESS_TOKEN
    claims = own_claims.of(own, grant.user, place, with_profile=False) if own else {}
    claims |= {
        "iss": issuer,
        "aud": api.identifier if api else issuer,
        "sub": subject(grant.user, subject_attribute, grant.client_id),
        "client_id": grant.client_id,
        "jti": jti,
        "scope": resources.at(api.identifier if api else None, grant.scope),
        "iat": _timestamp(issued_at),
        "exp": _timestamp(expires_at),
        "auth_time": _timestamp(grant.auth_time),
    }
    if api and not claims["scope"]:
        del claims["scope"]
    if api and api.includes_groups:
        claims["groups"] = list(grant.user.groups)
    if api and api.roles:
        claims |= role_claims.claim(api.roles, api.roles_shape, grant.user.groups)
    return {**claims, "cnf": {"jkt": dpop_jkt}} if dpop_jkt else claims


def of_exchanged_token(
    grant: Grant,
    client_id: str,
    scope: str,
    act: Claims,
    *,
    api: Api,
    subject_attribute: str | None,
    **more: Any,
) -> Claims:
    """RFC 8693 §4.1: as `of_access_token`, for the client that exchanges, with who acts."""
    claims = {**of_access_token(grant, api=api, **more), "client_id": client_id, "act": act}
    claims["sub"] = subject(grant.user, subject_attribute, client_id)
    claims.pop("scope", None)
    return {**claims, "scope": scope} if scope else claims


def of_id_jag(
    grant: Grant,
    client_id: str,
    audience: str,
    *,
    issuer: str,
    jti: str,
    issued_at: datetime,
    expires_at: datetime,
    resource: str | None,
    scope: str,
) -> Claims:
    """Identity assertion for another server (draft-ietf-oauth-identity-assertion-authz-grant §3).

    `client_id`: what the client is called there.
    """
    claims = {
        "iss": issuer,
        "sub": str(grant.user_id),
        "aud": audience,
        "client_id": client_id,
        "jti": jti,
        "iat": _timestamp(issued_at),
        "exp": _timestamp(expires_at),
        "auth_time": _timestamp(grant.auth_time),
        "amr": grant.amr.split(),
    }
    optional = {"acr": grant.acr, "resource": resource, "scope": scope}
    return claims | {name: value for name, value in optional.items() if value}


def of_service_token(
    client_id: str,
    audience: str,
    scope: str,
    *,
    issuer: str,
    jti: str,
    issued_at: datetime,
    expires_at: datetime,
    dpop_jkt: str | None = None,
) -> Claims:
    """RFC 9068 §2.2, for a client that acts for itself: it is the subject, and nobody signed in."""
    claims = {
        "iss": issuer,
        "aud": audience,
        "sub": client_id,
        "client_id": client_id,
        "jti": jti,
        "iat": _timestamp(issued_at),
        "exp": _timestamp(expires_at),
    }
    if scope:
        claims["scope"] = scope
    return {**claims, "cnf": {"jkt": dpop_jkt}} if dpop_jkt else claims


def of_id_token(
    grant: Grant,
    client: Client,
    *,
    issuer: str,
    issued_at: datetime,
    expires_at: datetime,
    at_hash: str,
    nonce: str | None = None,
) -> Claims:
    """OIDC Core §2, §3.1.3.6. After a refresh it has the same `auth_time`, and no nonce (§12.2)."""
    requested = grant.claims.get("id_token", [])
    profile = (
        _profile(grant.user, client, grant.scope, requested)
        if client.id_token_has_all_claims
        else scopes.values(grant.user, requested)
    )
    own = {}
    if client.own_claims:
        with_profile, place = client.id_token_has_all_claims, own_claims.ID_TOKEN
        own = own_claims.of(client.own_claims, grant.user, place, with_profile=with_profile)
    claims = {
        **own_claims.joined(own, profile),
        "iss": issuer,
        "sub": subject(grant.user, client.subject_attribute, grant.client_id),
        "aud": grant.client_id,
        "iat": _timestamp(issued_at),
        "exp": _timestamp(expires_at),
        "auth_time": _timestamp(grant.auth_time),
        "sid": grant.sid,
        "amr": grant.amr.split(),
        "at_hash": at_hash,
    }
    if grant.acr:
        claims["acr"] = grant.acr
    if nonce:
        claims["nonce"] = nonce
    return claims


def of_userinfo(
    user: Profile,
    client: Client,
    scope: str,
    claims: Mapping[str, Iterable[str]],
    *,
    room: int | None = None,
) -> Claims:
    """OIDC Core §5.3.2, for a token with one of `scopes.USERINFO_SCOPES`.

    `room`: bytes of the client's own claims, if not those of userinfo.
    """
    profile = _profile(user, client, scope, claims.get("userinfo", []))
    if client.subject_attribute:
        profile["sub"] = subject(user, client.subject_attribute, client.client_id)
    if client.own_claims:
        own = own_claims.of(client.own_claims, user, own_claims.USERINFO, room=room)
        return own_claims.joined(own, profile)
    return profile


def _profile(user: Profile, client: Client, scope: str, requested: Iterable[str]) -> Claims:
    profile = scopes.profile(user, scope, requested, is_standard=client.is_fapi2)
    if client.roles:
        profile |= role_claims.claim(client.roles, client.roles_shape, user.groups)
    return profile


def _timestamp(moment: datetime) -> int:
    """RFC 7519 §2 NumericDate."""
    return int(moment.timestamp())


class Reason(StrEnum):
    """Why a claim is missing."""

    NOT_REGISTERED = "scope_not_registered"
    NOT_REQUESTED = "scope_not_requested"
    WITHHELD = "scope_withheld"
    LEFT_OUT_BY_PROFILE = "left_out_by_profile"
    NO_VALUE = "no_value"
    ONLY_AT_USERINFO = "only_at_userinfo"


class Missing(NamedTuple):
    """A claim of a scope that is missing in `id_token`, `userinfo` or both."""

    claim: str
    scope: str
    places: tuple[str, ...]
    reason: Reason


def explain_missing(
    places: Mapping[str, Mapping[str, Any] | None],
    *,
    registered: Collection[str],
    granted: Collection[str],
    withheld: Collection[str],
    is_standard: bool = False,
) -> Iterator[Missing]:
    """Explain each claim that is missing in userinfo or in a token.

    `is_standard`: the client's profile leaves out `scopes.OWN_CLAIMS`.
    """
    for scope in scopes.SCOPES.values():
        for claim in scope.claims:
            missing = tuple(
                place
                for place, claims in places.items()
                if claims is not None and claim not in claims
            )
            if missing == ("id_token",):
                yield Missing(claim, scope.name, missing, Reason.ONLY_AT_USERINFO)
            elif missing:
                reason = _reason(scope.name, registered, granted, withheld)
                if is_standard and claim in scopes.OWN_CLAIMS and reason is Reason.NO_VALUE:
                    reason = Reason.LEFT_OUT_BY_PROFILE
                yield Missing(claim, scope.name, missing, reason)


def _reason(
    scope: str, registered: Collection[str], granted: Collection[str], withheld: Collection[str]
) -> Reason:
    if scope not in registered:
        return Reason.NOT_REGISTERED
    if scope in withheld:
        return Reason.WITHHELD
    return Reason.NO_VALUE if scope in granted else Reason.NOT_REQUESTED
