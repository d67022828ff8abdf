"""Forward auth: whether a request to an application behind a proxy may pass, and who sends it.

nginx `auth_request`, Traefik `ForwardAuth`, Caddy `forward_auth` and Envoy `ext_authz` ask this
before each request. 200 lets it pass, with headers about the user; other answers go to the browser.
The proxy passes `/.sso/callback` and `/.sso/sign-out` of the application's host here, too.
"""

from urllib.parse import urlencode

from flask import Response, g, render_template, request

from sso import audit, context, database
from sso.audit.events import Event
from sso.config.urls import ENDPOINTS
from sso.crypto import secrets
from sso.flow import forwarded
from sso.flow.forwarded import ForwardedRequest
from sso.oauth import proxy_sign_in
from sso.ratelimit import refusals
from sso.services import transaction
from sso.store import clients, grants
from sso.store.clients import RegisteredClient
from sso.web import errors, parameters

_SECONDS = 400 * 24 * 3600  # the most that browsers keep a cookie; what counts is the session


def check(client_id: str, path: str = "") -> Response:
    """Answer a proxy. `path`: what Envoy may append, which is the path of the request once more."""
    settings = context.settings()
    try:
        if not settings.trusted_proxies:
            raise forwarded.Malformed(
                "No proxy is trusted: set SSO_TRUSTED_PROXIES to the number of proxies."
            )
        asked = forwarded.read(request.headers.get)
    except forwarded.Malformed as error:
        return _refuse(client_id, str(error))
    if "\0" in client_id:  # PostgreSQL refuses it
        return _refuse_place(None, client_id, asked.origin)
    context.key_ring().refresh()
    if asked.path == forwarded.CALLBACK:
        return _callback(client_id, asked)
    session, browser = proxy_sign_in.cookie_names()
    ticket = proxy_sign_in.ticket(request.cookies.get(session), client_id, asked.origin)
    with database.connection() as connection:
        client, grant = grants.find_with_client(
            connection, client_id, ticket.grant_id if ticket else None
        )
        if client is None or asked.origin not in client.proxy_urls:
            return _refuse_place(client, client_id, asked.origin)
        if asked.path == forwarded.SIGN_OUT:
            return _sign_out(client, asked)
        headers = proxy_sign_in.identity(client, grant, asked.origin) if grant else None
        if headers is None and (token := _access_token()):
            headers = proxy_sign_in.identity_of_machine(connection, client, token, asked.origin)
    if headers is None and forwarded.is_public(asked.path, client.public_paths):
        headers = proxy_sign_in.NOBODY
    if headers is not None:
        return Response(headers=headers, mimetype="text/plain")  # an empty page would have more
    # Exactly so: Envoy appends the query of the request, which is anybody's.
    if not asked.wants_page or request.query_string == b"answer=status":
        return errors.as_json(
            "login_required",
            "Nobody is signed in, or the session does not admit to this application.",
            401,
            {"WWW-Authenticate": 'Bearer realm="sso"', **proxy_sign_in.NOBODY},
        )
    return _send_to_sign_in(client, asked, browser)


def _send_to_sign_in(client: RegisteredClient, asked: ForwardedRequest, name: str) -> Response:
    secret = proxy_sign_in.browser_secret(request.cookies.get(name))
    is_new = secret is None
    secret = secret or secrets.make_secret("")
    url = proxy_sign_in.start(client, asked, request.headers.get("Referer"), secret)
    response = _redirect(url)
    if is_new:
        _set_cookie(response, name, secret)
    return response


def _callback(client_id: str, asked: ForwardedRequest) -> Response:
    """Redeem the code of an authorization response, and return to the page that was asked for."""
    session, browser = proxy_sign_in.cookie_names()
    with transaction.Transaction() as changes:
        client = clients.find_enabled(changes.connection, client_id)
        if client is None or asked.origin not in client.proxy_urls:
            return _refuse_place(client, client_id, asked.origin)
        try:
            if asked.method != "GET":
                raise proxy_sign_in.Refused("The method is not GET.")
            values = parameters.single(
                parameters.read_pairs(asked.query.encode("latin-1")),
                ("state", "code", "error", "iss"),
            )
            attempt = proxy_sign_in.attempt_of(values.get("state", ""), client_id, asked.origin)
            if values.get("iss") != context.settings().issuer:  # RFC 9207
                raise proxy_sign_in.Refused("The response is of another issuer.")
            if error := values.get("error"):
                return _failed(client, asked, f"The server answered {error[:40]!r}.", error)
            cookie = request.cookies.get(browser)
            ticket, grant = proxy_sign_in.redeem(
                changes.connection,
                attempt,
                values.get("code", ""),
                proxy_sign_in.browser_secret(cookie),
            )
        except (proxy_sign_in.Refused, parameters.ParameterFault) as fault:
            return _failed(client, asked, str(fault))
        changes.commit()
    audit.own_event(
        Event.PROXY_SIGNED_IN, grant.user_id, client=client_id, grant=grant.id, at=asked.origin
    )
    response = _redirect(asked.origin + attempt.uri)
    _set_cookie(response, session, proxy_sign_in.sign_ticket(ticket))
    return response


def _sign_out(client: RegisteredClient, asked: ForwardedRequest) -> Response:
    """Remove the application's cookie, and go on to the sign-out of this server."""
    values = {
        "client_id": client.client_id,
        "post_logout_redirect_uri": f"{asked.origin}/",
    }
    base_url = context.settings().base_url
    response = _redirect(f"{base_url}{ENDPOINTS['end_session']}?{urlencode(values)}")
    _set_cookie(response, proxy_sign_in.cookie_names()[0], "", seconds=0)
    return response


def _access_token() -> str | None:
    scheme, _, token = request.environ.get("HTTP_AUTHORIZATION", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def _redirect(url: str) -> Response:
    return Response(status=303, headers={"Location": url, **proxy_sign_in.NOBODY})


def _set_cookie(response: Response, name: str, value: str, seconds: int = _SECONDS) -> None:
    response.set_cookie(
        name,
        value,
        max_age=seconds,
        path="/",
        secure=context.settings().is_https,
        httponly=True,
        samesite="Lax",
    )


def _refuse(client_id: str, description: str) -> Response:
    """Refuse what a proxy asks: its configuration is at fault, or somebody else asks."""
    event = Event.PROXY_REQUEST_REFUSED
    error = "invalid_request"
    refusals.record(
        event, budget=event, client=client_id[:200], error=error, description=description
    )
    return errors.as_json(error, description, 400, proxy_sign_in.NOBODY)


def _refuse_place(client: RegisteredClient | None, client_id: str, origin: str) -> Response:
    if client is None:
        return _refuse(client_id, "No client with this client_id is registered and enabled.")
    if not client.proxy_urls:
        return _refuse(client_id, "The client is not registered for a proxy.")
    return _refuse(client_id, f"The client is not registered for {origin}.")


def _failed(
    client: RegisteredClient, asked: ForwardedRequest, description: str, answer: str | None = None
) -> Response:
    """Return a page on the application's host about a sign-in that cannot be completed.

    `answer`: the error with which this server's own authorization endpoint answered.
    """
    event = Event.PROXY_REQUEST_REFUSED
    error = "access_denied" if answer else "invalid_request"
    refusals.record(
        event, budget=event, client=client.client_id, error=error, description=description
    )
    base_url, base_path = context.settings().base_url, context.settings().base_path
    place = base_url.removesuffix(base_path)
    g.sso_policy = (
        f"default-src 'none'; style-src {place}; img-src {place}; "
        "base-uri 'none'; frame-ancestors 'none'"
    )
    body = render_template(
        "proxy_error.html",
        client_name=client.name,
        home=f"{asked.origin}/",
        place=place,
        answer=answer,
    )
    return Response(body, 403 if answer else 400, proxy_sign_in.NOBODY, mimetype="text/html")
