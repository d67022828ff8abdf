"""Where sign-ins through upstream providers begin: the buttons of the sign-in page, and links."""

from collections.abc import Callable, Mapping

from flask import abort
from werkzeug.wrappers import Response

from sso import clock, context
from sso.config.upstream.ldap import LdapProvider
from sso.config.upstream.provider import Provider
from sso.endpoints import upstream_ldap
from sso.endpoints.upstream_sign_in import Attempt
from sso.web.pending_request import PendingRequest

# How an attempt begins, by the class of its provider.
HANDLERS: Mapping[type[Provider], Callable[[Attempt], Response]] = {
    LdapProvider: upstream_ldap.start,
}


def start(
    provider: Provider,
    pending: PendingRequest | None,
    *,
    remember: bool = False,
    again: bool = False,
    hint: str | None = None,
    user_id: str | None = None,
) -> Response:
    """Send the browser to the provider, or to the page that asks for a password of its."""
    handler = next(found for kind in type(provider).__mro__ if (found := HANDLERS.get(kind)))
    attempt = Attempt(provider, pending, clock.now(), remember, again, user_id, hint)
    return handler(attempt)


def named(provider_id: str) -> Provider:
    """The provider of this id, or 404."""
    return context.upstreams().find(provider_id) or abort(404)
