"""The claims of what a grant gives: access token, identity token, userinfo."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from sso.flow import scopes
from sso.flow.scopes import Profile

Claims = dict[str, Any]


class Client(Protocol):
    """The part of a client's registration that shapes its tokens."""

    @property
    def is_fapi2(self) -> bool: ...
    @property
    def id_token_has_all_claims(self) -> bool: ...


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


def of_access_token(
    grant: Grant,
    *,
    issuer: str,
    jti: str,
    issued_at: datetime,
    expires_at: datetime,
    dpop_jkt: str | None = None,
) -> Claims:
    """RFC 9068 §2.2. The audience is this server's userinfo.

    `dpop_jkt`: the thumbprint of the key that the token is bound to (RFC 9449 §6.1).
    """
    claims = {
        "iss": issuer,
        "aud": issuer,
        "sub": str(grant.user_id),
        "client_id": grant.client_id,
        "jti": jti,
        "scope": grant.scope,
        "iat": _timestamp(issued_at),
        "exp": _timestamp(expires_at),
        "auth_time": _timestamp(grant.auth_time),
    }
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
        scopes.profile(grant.user, grant.scope, requested, is_standard=client.is_fapi2)
        if client.id_token_has_all_claims
        else scopes.values(grant.user, requested)
    )
    claims = {
        **profile,
        "iss": issuer,
        "sub": str(grant.user_id),
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
    user: Profile, client: Client, scope: str, claims: Mapping[str, Iterable[str]]
) -> Claims:
    """OIDC Core §5.3.2, for a token with one of `scopes.USERINFO_SCOPES`."""
    requested = claims.get("userinfo", [])
    return scopes.profile(user, scope, requested, is_standard=client.is_fapi2)


def _timestamp(moment: datetime) -> int:
    """RFC 7519 §2 NumericDate."""
    return int(moment.timestamp())
