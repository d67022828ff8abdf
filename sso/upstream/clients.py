"""The client of each provider in this process: what it has read, and how the provider fares."""

from flask import current_app

from sso.config.upstream.oidc import GitHubProvider, OidcProvider, WebProvider
from sso.upstream.github import GitHubClient
from sso.upstream.oidc import OidcClient

_EXTENSION = "sso.upstream_clients"


def oidc(provider: OidcProvider) -> OidcClient:
    found = _of(provider)
    assert isinstance(found, OidcClient)
    return found


def github(provider: GitHubProvider) -> GitHubClient:
    found = _of(provider)
    assert isinstance(found, GitHubClient)
    return found


def _of(provider: WebProvider) -> OidcClient | GitHubClient:
    known = current_app.extensions.setdefault(_EXTENSION, {})
    client: OidcClient | GitHubClient | None = known.get(provider.id)
    if client is None or client.provider is not provider:
        if isinstance(provider, OidcProvider):
            client = OidcClient(provider)
        else:
            assert isinstance(provider, GitHubProvider)
            client = GitHubClient(provider)
        known[provider.id] = client
    return client
