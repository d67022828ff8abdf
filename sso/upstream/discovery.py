"""What an OpenID Connect provider publishes of itself: its metadata and its keys."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from sso.config.upstream.oidc import OidcProvider
from sso.config.urls import is_loopback, strict_url_error
from sso.crypto import client_jwt
from sso.crypto.client_jwt import ClientKey
from sso.i18n.message import Message
from sso.upstream.http import Caller
from sso.upstream.remote_cache import RemoteCache, RemoteUnavailable


@dataclass(frozen=True)
class Metadata:
    """OpenID Connect Discovery §3, as far as it is used here."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str | None
    end_session_endpoint: str | None
    introspection_endpoint: str | None  # RFC 8414 §2
    names_issuer: bool  # RFC 9207


@dataclass(frozen=True)
class Keys:
    """The keys, and whose they are where Microsoft says so."""

    keys: tuple[ClientKey, ...]
    issuers: Mapping[str | None, str]


class Discovered:
    """Reads and caches the documents of a provider. Waiting for them takes no slot."""

    def __init__(self, provider: OidcProvider, caller: Caller) -> None:
        self.provider, self._caller = provider, caller
        self._metadata = RemoteCache(self._read_metadata, f"the metadata of {provider.id}")
        self._keys = RemoteCache(self._read_keys, f"the keys of {provider.id}")

    def metadata(self) -> Metadata:
        """Raises `RemoteUnavailable`."""
        return self._metadata.get(self.provider.discovery_url)

    def doubt(self) -> None:
        """Read the metadata again soon: an endpoint has failed, and may have moved."""
        self._metadata.doubt(self.provider.discovery_url)

    def keys_for(self, kid: str | None, claims: Mapping[str, Any]) -> tuple[ClientKey, ...]:
        """Return the keys that may have signed this token. Raises `RemoteUnavailable`."""
        key_set = self._keys.get(
            self.metadata().jwks_uri,
            lambda cached: kid is None or any(key.kid == kid for key in cached.keys),
        )
        issuer, tenant = claims.get("iss"), str(claims.get("tid", ""))
        return tuple(
            key
            for key in key_set.keys
            if key_set.issuers.get(key.kid, issuer) in (issuer, _template(issuer, tenant))
        )

    def examine(self) -> int:
        """Read both now; gives how many keys there are.

        Raises `RemoteUnavailable`, `OSError`, `HTTPException` and `ValueError`.
        """
        return len(self._read_keys(self._read_metadata(self.provider.discovery_url).jwks_uri).keys)

    def _read_metadata(self, url: str) -> Metadata:
        metadata = self._caller.get_json(url)
        if not self.provider.accepts_metadata_issuer(metadata.get("issuer")):
            raise RemoteUnavailable(Message("its metadata names another issuer"))
        endpoints = {
            name: _url(metadata, name)
            for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")
        }
        return Metadata(
            issuer=metadata["issuer"],
            **endpoints,
            userinfo_endpoint=_optional(metadata, "userinfo_endpoint"),
            end_session_endpoint=_optional(metadata, "end_session_endpoint"),
            introspection_endpoint=_optional(metadata, "introspection_endpoint"),
            names_issuer=metadata.get("authorization_response_iss_parameter_supported") is True,
        )

    def _read_keys(self, url: str) -> Keys:
        jwks = self._caller.get_json(url)
        keys = client_jwt.usable_keys(jwks)
        if not keys:
            raise RemoteUnavailable(Message("it has no key that can verify signatures here"))
        issuers = {
            jwk["kid"]: jwk["issuer"]
            for jwk in jwks["keys"]
            if isinstance(jwk, dict)
            and isinstance(jwk.get("issuer"), str)
            and isinstance(jwk.get("kid"), str)
        }
        return Keys(keys, issuers)


def _template(issuer: object, tenant: str) -> str | None:
    """Return the issuer as Microsoft writes it for keys that sign for all tenants."""
    if not (isinstance(issuer, str) and tenant):
        return None
    return issuer.replace(tenant, "{tenantid}")


def _optional(metadata: Mapping[str, Any], name: str) -> str | None:
    return _url(metadata, name) if metadata.get(name) is not None else None


def _url(metadata: Mapping[str, Any], name: str) -> str:
    """Return a URL of the metadata: https, or http on this machine."""
    url = metadata.get(name)
    if not isinstance(url, str) or strict_url_error(url):
        raise RemoteUnavailable(Message("its %(name)s is not a URL", name=name))
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname)):
        raise RemoteUnavailable(Message("its %(name)s is not an https URL", name=name))
    return url
