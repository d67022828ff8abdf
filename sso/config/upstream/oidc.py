"""Providers that support OpenID Connect, and GitHub, which only supports OAuth 2.0."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sso.config.tables import key
from sso.config.upstream.provider import (
    Provider,
    https_url,
    one_of,
    secret,
    switch,
    text,
    texts,
)
from sso.config.urls import call_error

_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,253}")
_GUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _issuer(value: Any) -> str:
    issuer = https_url(value)
    if issuer.endswith("/.well-known/openid-configuration"):
        raise ValueError("give the issuer alone, without /.well-known/openid-configuration")
    return issuer


def _scope(value: Any) -> tuple[str, ...]:
    scope = texts(value)
    if any(" " in item for item in scope):
        raise ValueError('give a list with one scope in each text, such as ["openid", "email"]')
    if "openid" not in scope:
        raise ValueError('add "openid", without which there is no identity token')
    return scope


def _tenant(value: Any) -> str:
    tenant = text(value).lower()
    if not _TENANT.fullmatch(tenant):
        raise ValueError("give the tenant's id, a domain of it, organizations, common or consumers")
    return tenant


@dataclass(frozen=True, kw_only=True)
class WebProvider(Provider):
    """A provider with pages for signing in; it returns an authorization code."""

    client_id: str = key("what the provider calls this server", text)
    client_secret: str = secret("the secret that goes with it")
    allow_private_addresses: bool = key(
        "whether its URLs may lead into a private network", switch, False
    )

    def faults(self) -> Iterator[str]:
        yield from super().faults()
        for name in ("issuer", "url"):
            if not self.allow_private_addresses and (
                error := call_error(getattr(self, name, ""), only_public=True)
            ):
                yield f"{name}: {error}; set allow_private_addresses = true if that is intended"


@dataclass(frozen=True, kw_only=True)
class OidcProvider(WebProvider):
    """Any OpenID Connect provider, by its issuer (OpenID Connect Discovery)."""

    issuer: str = key("its issuer: the https URL that its discovery document names", _issuer)
    client_authentication: str = key(
        "how this server proves itself to it",
        one_of("client_secret_basic", "client_secret_post"),
        "client_secret_basic",
    )
    scope: tuple[str, ...] = key(
        "the scopes to ask for; most providers need offline_access for recheck",
        _scope,
        ("openid", "profile", "email"),
    )
    groups_claim: str = key("the claim that lists a person's groups", text, "groups")
    two_factor_amr: tuple[str, ...] = key(
        "values of amr that count as two-step verification here", texts, ()
    )
    two_factor_acr: tuple[str, ...] = key(
        "values of acr that count as two-step verification here", texts, ()
    )
    sign_out_upstream: bool = key("whether signing out here also signs out there", switch, False)

    @property
    def discovery_url(self) -> str:
        return f"{self.issuer.removesuffix('/')}/.well-known/openid-configuration"

    def accepts_metadata_issuer(self, issuer: object) -> bool:
        """Return whether its discovery document may name this issuer (Discovery §4.3)."""
        return issuer == self.issuer

    def accepts_issuer(self, claims: dict[str, Any]) -> bool:
        """Return whether an identity token may have this issuer."""
        return bool(claims.get("iss") == self.issuer)


@dataclass(frozen=True, kw_only=True)
class GoogleProvider(OidcProvider):
    """Google, for everyone or for one organization."""

    name: str = key("its name on the sign-in page", text, "Google")
    issuer: str = key("Google's issuer", _issuer, "https://accounts.google.com")
    hosted_domain: str | None = key(
        "only members of the Google Workspace organization with this domain are let in",
        text,
        None,
    )

    def faults(self) -> Iterator[str]:
        yield from super().faults()
        if "offline_access" in self.scope:
            yield 'scope: leave out "offline_access", which Google refuses; recheck needs none'


@dataclass(frozen=True, kw_only=True)
class MicrosoftProvider(OidcProvider):
    """Microsoft Entra ID: one tenant, or people of any."""

    name: str = key("its name on the sign-in page", text, "Microsoft")
    tenant: str = key(
        "the id of the tenant; organizations, consumers or common lets in people of others", _tenant
    )
    issuer: str = key("set by tenant", _issuer, "")

    MANY = ("organizations", "consumers", "common")
    CONSUMERS = "9188040d-6c67-4c5b-b112-36a304b66dad"  # the tenant of personal accounts

    def faults(self) -> Iterator[str]:
        yield from super().faults()
        if self.issuer:
            yield "issuer: leave it out; tenant says which it is"
        if self.tenant not in self.MANY and not _GUID.fullmatch(self.tenant):
            yield "tenant: give its id, as 8 to 12 hexadecimal digits in five parts, not a domain"

    @property
    def discovery_url(self) -> str:
        host = "https://login.microsoftonline.com"
        return f"{host}/{self.tenant}/v2.0/.well-known/openid-configuration"

    def accepts_metadata_issuer(self, issuer: object) -> bool:
        tenant = "{tenantid}" if self.tenant in ("organizations", "common") else self.tenant
        tenant = self.CONSUMERS if self.tenant == "consumers" else tenant
        return issuer == self._issuer_of(tenant)

    def accepts_issuer(self, claims: dict[str, Any]) -> bool:
        tenant = str(claims.get("tid", ""))
        if not _GUID.fullmatch(tenant) or claims.get("iss") != self._issuer_of(tenant):
            return False
        if self.tenant in self.MANY:
            is_person = tenant == self.CONSUMERS
            return {"organizations": not is_person, "consumers": is_person}.get(self.tenant, True)
        return tenant == self.tenant

    @staticmethod
    def _issuer_of(tenant: str) -> str:
        return f"https://login.microsoftonline.com/{tenant}/v2.0"


@dataclass(frozen=True, kw_only=True)
class GitHubProvider(WebProvider):
    """GitHub, or a GitHub Enterprise Server, by its API: it has no OpenID Connect."""

    name: str = key("its name on the sign-in page", text, "GitHub")
    url: str = key("where it is", https_url, "https://github.com")

    def faults(self) -> Iterator[str]:
        yield from super().faults()
        if self.recheck or self.groups or self.attributes:
            yield "recheck, groups, attributes: GitHub offers none of them here; remove them"
