"""Where sign-ins through upstream providers begin: the buttons of the sign-in page, and links."""

from collections.abc import Callable, Mapping

from werkzeug.wrappers import Response

from sso import clock
from sso.config.upstream.ldap import LdapProvider
from sso.config.upstream.oidc import WebProvider
from sso.config.upstream.provider import Provider
from sso.endpoints import upstream_ldap, upstream_web
from sso.endpoints.upstream_sign_in import Attempt
from sso.flow.request import AuthorizationRequest
from sso.web.pending_request import PendingRequest

# How an attempt begins, by the class of its provider.
HANDLERS: Mapping[type[Provider], Callable[[Attempt], Response]] = {
    LdapProvider: upstream_ldap.start,
    WebProvider: upstream_web.start,
}


def start(
    provider: Provider,
    pending: PendingRequest | None,
    *,
    remember: bool = False,
    again: bool = False,
    hint: str | None = None,
    user_id: str | None = None,
    asked: AuthorizationRequest | None = None,
) -> Response:
    """Send the browser to the provider, or to the page that asks for a password of its."""
    handler = next(found for kind in type(provider).__mro__ if (found := HANDLERS.get(kind)))
    return handler(
        Attempt(
            provider,
            pending,
            clock.now(),
            remember=remember,
            again=again or (asked is not None and "login" in asked.prompt),
            user_id=user_id,
            hint=hint,
            max_age=asked.max_age if asked else None,
            asked=asked,
        )
    )
