"""The OpenID Connect providers and GitHub, through which people sign in."""

import secrets
from http.client import HTTPException

from sso import context
from sso.checkup.finding import Findings, at, ok, skipped, warning, wrong
from sso.config.upstream.oidc import (
    GitHubProvider,
    GoogleProvider,
    MicrosoftProvider,
    OidcProvider,
    WebProvider,
)
from sso.i18n.message import Message
from sso.upstream import oidc
from sso.upstream.identity import UpstreamRefused, UpstreamUnavailable
from sso.upstream.remote_cache import RemoteUnavailable

NAME = "providers"
_TROUBLE = (RemoteUnavailable, UpstreamUnavailable, OSError, HTTPException, ValueError)


def providers() -> Findings:
    """Each one answers, has keys, and knows this server."""
    found = [one for one in context.upstreams() if isinstance(one, WebProvider)]
    if not found:
        yield skipped(NAME, Message("SSO_UPSTREAM_FILE names none"))
    for provider in found:
        if provider.sign_up and not provider.domains and _is_for_everyone(provider):
            sign_up = Message("everyone with an account there signs up")
            hint = Message("set domains, unless that is what you want")
            yield warning(NAME, at(provider.id, sign_up), hint)
        try:
            seen = _examined(provider)
        except _TROUBLE as error:
            hint = Message(
                "check its keys in SSO_UPSTREAM_FILE, and the firewall; no HTTP proxy is used"
            )
            if "private" in str(error):
                hint = Message("set allow_private_addresses = true, if it is in your own network")
            yield wrong(NAME, at(provider.id, _words(error)), hint)
        except UpstreamRefused as error:
            hint = Message("check client_id, client_secret and redirect URI")
            yield warning(NAME, at(provider.id, _words(error)), hint)
        else:
            yield ok(NAME, at(provider.id, seen))
            if isinstance(provider, OidcProvider) and _cannot_be_rechecked(provider):
                seen = Message("recheck has no refresh token to ask with")
                hint = Message('add "offline_access" to scope, or remove recheck')
                yield warning(NAME, at(provider.id, seen), hint)


def _examined(provider: WebProvider) -> Message:
    if isinstance(provider, GitHubProvider):
        oidc.github_client(provider).examine()
        return Message("answers")
    assert isinstance(provider, OidcProvider)
    client = oidc.oidc_client(provider)
    count = client.discovered.examine()
    try:  # a code that nobody was given: who we are is checked first
        at = f"{context.settings().base_url}/sign-in/callback/{provider.id}"
        client.complete(at, secrets.token_urlsafe(), secrets.token_urlsafe(48), "none")
    except UpstreamRefused as error:
        if "invalid_grant" not in str(error):
            raise
    return Message("answers, with %(count)s keys, and knows client_id and secret", count=count)


def _words(error: Exception) -> str:
    """Of the error; a `Message` if it is in our words alone."""
    words = error.args[0] if error.args else ""
    return words if isinstance(words, Message) else str(error)[:200]


def _cannot_be_rechecked(provider: OidcProvider) -> bool:
    if not provider.recheck or isinstance(provider, GoogleProvider):
        return False
    metadata = oidc.oidc_client(provider).metadata()
    return "offline_access" not in provider.scope and metadata.introspection_endpoint is None


def _is_for_everyone(provider: WebProvider) -> bool:
    if isinstance(provider, GoogleProvider):
        return provider.hosted_domain is None
    if isinstance(provider, MicrosoftProvider):
        return provider.tenant in provider.MANY
    return isinstance(provider, GitHubProvider)
