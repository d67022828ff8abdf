"""The addresses of earlier servers, at which this server answers as well (SSO_ISSUER_ALIASES).

Programs are answered by the same views as at this server's own addresses. Browsers are redirected:
their cookies are of one host and path alone, so people sign in at this server's own addresses.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from authlib.oauth2.rfc6749.errors import UnauthorizedClientError
from flask import redirect, request
from werkzeug.wrappers import Response

from sso import context
from sso.config import issuers
from sso.config.settings import Settings
from sso.config.urls import ENDPOINTS
from sso.oauth import authorization_server
from sso.oauth import response as oauth_response
from sso.oauth.authlib_request import ProtocolRequest
from sso.oauth.client_addresses import check_address
from sso.web.routing import GET, Route


def authorize() -> Response:
    """Authorization endpoint of an earlier server: redirect the browser to this server's own."""
    request.get_data(cache=True)  # before the form is parsed, which consumes the body
    client_id, server = request.values.get("client_id", ""), authorization_server()
    is_clean = client_id.isascii() and client_id.isprintable()
    if client_id and is_clean and (client := server.query_client(client_id)):
        try:
            check_address(client)
        except UnauthorizedClientError as error:
            protocol_request = ProtocolRequest({"client_id": client_id})
            protocol_request.client = client
            refused: Response = server.handle_error_response(protocol_request, error)
            return refused
    return _at_own("authorization")


def end_session() -> Response:
    """Sign-out endpoint of an earlier server: redirect the browser to this server's own."""
    return _at_own("end_session")


def account() -> Response:
    """Redirect from the account page of an earlier server."""
    return redirect(f"{context.settings().base_url}/account", 303)


def _at_own(name: str) -> Response:
    return oauth_response.as_get(context.settings().base_url + ENDPOINTS[name])


_BY_BROWSERS = {"authorization": authorize, "end_session": end_session}
_DISCOVERY = "/.well-known/openid-configuration"


def routes(settings: Settings, own: Iterable[Route]) -> Iterator[Route]:
    """Yield the routes of the old addresses, each with the properties of this server's own."""
    by_path = {route.path.removeprefix("{base}"): route for route in own}
    for path, address in issuers.addresses_of(settings.aliases).items():
        if address.name == issuers.ACCOUNT:
            yield Route(path, "account", account, GET, issuers=address.issuers)
            continue
        is_metadata = address.name == issuers.METADATA
        route = by_path[_DISCOVERY if is_metadata else ENDPOINTS[address.name]]
        view = _BY_BROWSERS.get(address.name, route.view)
        yield replace(route, path=path, view=view, issuers=address.issuers)
