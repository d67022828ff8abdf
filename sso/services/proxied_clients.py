"""Clients behind a proxy (forward auth): what follows from their URLs, and what they cannot have.

`checks.implied` has the fields of a new one.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from sso.config.auth_methods import NO_AUTH_METHOD
from sso.config.client_fields import AUTHORIZATION_CODE, FIELDS
from sso.flow.forwarded import CALLBACK
from sso.i18n.message import Message

PROXY_URLS, AUTH_METHOD = "proxy_urls", "token_endpoint_auth_method"
# Its authorization requests are made by this server, without these.
_NOT_BEHIND_A_PROXY = (
    "require_pushed_authorization_requests", "dpop_bound_access_tokens", "default_api",
    "request_object_signing_alg", "authorization_signed_response_alg",
)  # fmt: skip


def of_proxy(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata that follows from the URLs of a client behind a proxy.

    It gets no tokens: this server uses the codes itself.
    """
    urls = metadata.get(PROXY_URLS)
    if not urls:
        return {}
    return {
        "redirect_uris": [url + CALLBACK for url in urls],
        "post_logout_redirect_uris": [f"{url}/" for url in urls],
        "grant_types": [AUTHORIZATION_CODE],
    }


def proxy_errors(metadata: Mapping[str, Any], before: Mapping[str, Any]) -> Iterable[Message]:
    """Yield why a client cannot be behind a proxy, or why it has to stay there."""
    urls = metadata.get(PROXY_URLS)
    if before and bool(urls) != bool(before.get(PROXY_URLS)):
        yield Message(
            "a client stays behind a proxy, with at least one URL, or stays without one; register "
            "another one instead"
        )
    if metadata.get("public_paths") and not urls:
        yield Message(
            "public paths need a URL behind a proxy",
            for_commands=f"{FIELDS['public_paths'].flag} needs {FIELDS[PROXY_URLS].usage}",
        )
    if not urls:
        return
    if metadata[AUTH_METHOD] != NO_AUTH_METHOD:
        yield Message("a client behind a proxy has neither a secret nor a key")
    if metadata.get("profile"):
        yield Message("a client behind a proxy has no profile; it gets no tokens")
    for name in _NOT_BEHIND_A_PROXY:
        if metadata.get(name):
            yield Message("a client behind a proxy cannot have %(field)s", field=name)
