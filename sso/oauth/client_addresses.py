"""The addresses of several issuers: a client is answered only at those of its own.

So a client that is set to an issuer gets nothing that another issuer signs, and no code or token of
one issuer is redeemed at the other (RFC 9207 §4). The rules are in `sso.config.issuers`.

The authorization endpoint of this server is the exception: browsers come there from the old
addresses, too. Its answers name the client's own issuer.
"""

from collections.abc import Collection

from authlib.oauth2.rfc6749.errors import UnauthorizedClientError

from sso import context
from sso.flow.refusals import Cause, describe
from sso.store.clients import RegisteredClient
from sso.web import routing


def check_address(client: RegisteredClient) -> None:
    """Raise `UnauthorizedClientError` if this request came to an address of another issuer."""
    settings = context.settings()
    if not settings.issuer_aliases:
        return
    route = routing.current()
    check_issuer(client, (route.issuers if route else None) or {settings.issuer})


def check_issuer(client: RegisteredClient, issuers: Collection[str]) -> None:
    """Raise `UnauthorizedClientError` unless an address is one of the client's issuer."""
    issuer = context.settings().issuer_of(client)
    if issuer not in issuers:
        other = min(issuers)
        raise UnauthorizedClientError(describe(Cause.WRONG_ISSUER, name=issuer, other=other))
