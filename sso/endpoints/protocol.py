"""The endpoints for programs: token, revocation, introspection, userinfo, metadata, SCIM, health.

They read the request and call `sso.oauth` or `sso.scim`, which answer.
"""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from authlib.consts import default_json_headers
from authlib.oauth2.rfc6749.errors import OAuth2Error
from flask import Response, abort, current_app, g, jsonify, request
from scim2_server.requests import ScimRequest
from sqlalchemy.exc import SQLAlchemyError
from werkzeug.wrappers import Response as WerkzeugResponse

from sso import audit, clock, context, database
from sso.audit.events import Event
from sso.config import urls
from sso.config.client_fields import JWT_BEARER
from sso.database import readiness
from sso.endpoints import api
from sso.extensions import db
from sso.flow import scopes, token_claims
from sso.flow.request import REPEATABLE
from sso.mcp import protected_resources
from sso.oauth import (
    authorization_request,
    authorization_server,
    client_authentication,
    device_authorization,
    document_clients,
    foreign_secrets,
    metadata,
)
from sso.oauth.authlib_request import (
    CLIENT_FIELDS,
    DEVICE_FIELDS,
    PUSHED_FIELDS,
    TOKEN_FIELDS,
    TOKEN_HINT_FIELDS,
    ProtocolRequest,
    form_request,
)
from sso.oauth.bearer import require_oauth
from sso.oauth.grants import jwt_bearer
from sso.observability import counters
from sso.process import program
from sso.ratelimit import refusals
from sso.services import api_tokens, transaction
from sso.store import apis, clients, pictures
from sso.web import routing, static_files

if TYPE_CHECKING:
    from sso.scim import handler
else:
    handler = program.late_module("sso.scim.handler")  # 30 MB


def token() -> Response:
    """Token endpoint: exchange a code, a device code or a refresh token for tokens.

    A service gets a token for itself.

    Tokens are sent after the commit; on an error, nothing is stored. A code is redeemed last, so
    that no stranger uses it up with a wrong verifier or URI. A revocation after reuse is committed,
    although the response is an error.
    """
    server = authorization_server()
    try:
        request = form_request(TOKEN_FIELDS)
    except OAuth2Error as error:
        counters.token_request(None, error.error)
        return server.handle_error_response(None, error)
    context.key_ring().refresh()
    client_authentication.examine_assertion(request, "token")
    if request.payload.grant_type == JWT_BEARER:
        jwt_bearer.read_keys(request)

    def answer() -> Response:
        with transaction.Transaction() as changes:
            request.connection = changes.connection
            response: Response = server.create_token_response(request)
            if response.status_code == 200 or request.keep_changes:
                changes.commit()
        return response

    response = foreign_secrets.answered(request, answer)
    counters.token_request(request.payload.grant_type, request.error)
    if request.error is None:
        _record(request)
    return response


def _record(request: ProtocolRequest) -> None:
    """Record the event after the commit, so that the transaction needs no further statement."""
    if exchanged := request.exchanged_token:
        audit.own_event(
            Event.TOKENS_EXCHANGED,
            exchanged.user_id,
            client=exchanged.client_id,
            grant=exchanged.grant_id,
            scope=exchanged.scope or None,
            audience=exchanged.audience,
        )
    if (audience := request.id_jag_audience) and (live_grant := request.live_grant):
        audit.own_event(
            Event.ID_JAG_ISSUED,
            live_grant.user_id,
            client=live_grant.client_id,
            grant=live_grant.id,
            audience=audience,
        )
        return
    if token := request.service_token:
        audit.own_event_of_client(
            Event.SERVICE_TOKEN_ISSUED,
            token.client_id,
            audience=token.audience,
            scope=token.scope or None,
        )
    if live_grant := request.live_grant:
        first = request.payload.grant_type != "refresh_token"
        audit.event(
            Event.TOKENS_ISSUED if first else Event.TOKENS_REFRESHED,
            user=live_grant.user_id,
            client=live_grant.client_id,
            grant=live_grant.id,
            scope=live_grant.scope,
            audience=request.audience,
        )


def revoke() -> Response:
    """Revocation endpoint: revoke an access token or, with a refresh token, the whole grant."""
    return _answer("revocation")


def introspect() -> Response:
    """Introspection endpoint: describe a token of the client."""
    return _answer("introspection")


def _answer(name: str) -> Response:
    """Return the response of Authlib's endpoint with this name. Commits."""
    server = authorization_server()
    try:
        request = form_request(TOKEN_HINT_FIELDS)
    except OAuth2Error as error:
        refused: Response = server.handle_error_response(None, error)
        return refused
    client_authentication.examine_assertion(request, name)

    def answer() -> Response:
        request.connection = database.session_connection()
        response: Response = server.create_endpoint_response(name, request)
        return response

    response = foreign_secrets.answered(request, answer)
    if response.status_code == 200:
        db.session.commit()
    return response


def userinfo() -> Response:
    """Userinfo endpoint: return the claims that the token allows."""
    with require_oauth.acquire(list(scopes.USERINFO_SCOPES)) as token:
        if token.dpop_jkt:
            transaction.committed(require_oauth.use_proof)
        claims = token.grant.claims
        profile = token_claims.of_userinfo(token.user, token.client, token.scope, claims)
        return Response(json.dumps(profile), headers=default_json_headers)


_METADATA_AGE = timedelta(minutes=1)  # the claims of applications may have changed since


def discovery() -> WerkzeugResponse:
    """Return the metadata of the server (OIDC Discovery §4, RFC 8414 §3)."""
    now, kept = clock.now(), current_app.extensions.setdefault("sso.metadata", {})
    route = routing.current()
    issuer = next(iter(route.issuers), "") if route else ""  # of an earlier server
    body, made_at = kept.get(issuer, (b"", None))
    if made_at is None or now - made_at >= _METADATA_AGE:
        body = _metadata(issuer) or body or _metadata(issuer, is_static=True)
        kept[issuer] = body, now
    return WerkzeugResponse(body, mimetype="application/json")


def _metadata(issuer: str, *, is_static: bool = False) -> bytes:
    """Return the document, or nothing while the database is away, unless it `is_static`."""
    try:
        own = [] if is_static else clients.names_of_own_claims()
    except SQLAlchemyError:
        return b""
    settings = context.settings()
    return json.dumps(metadata.document(settings, own, settings.aliases.get(issuer))).encode()


def protected_resource(api_id: str) -> WerkzeugResponse:
    """Return the metadata of an API, for a proxy that forwards its well-known path (RFC 9728)."""
    is_clean = api_id.isascii() and api_id.isprintable()
    api = apis.with_id(api_id) if is_clean else None
    if api is None or api.disabled:
        abort(404)
    document = protected_resources.document(api, context.settings().issuer)
    return WerkzeugResponse(json.dumps(document), mimetype="application/json")


def jwks() -> WerkzeugResponse:
    """Return the key set: the public signing keys (RFC 7517)."""
    response = WerkzeugResponse(context.key_ring().jwks(), mimetype="application/json")
    response.add_etag()
    return response.make_conditional(request)


def healthz() -> Response:
    """Liveness: return 200 while the process runs."""
    return jsonify(status="ok")


def readyz() -> Response:
    """Readiness: return 503 with the reason if database, schema or signing keys fail."""
    problem = readiness.problem(context.key_ring())
    if problem is None:
        return jsonify(status="ready")
    response = jsonify(status="unavailable", reason=problem)
    response.status_code = 503
    response.headers["Retry-After"] = "5"
    return response


def pushed_request() -> Response:
    """Pushed authorization requests: store a client's parameters (RFC 9126)."""
    server = authorization_server()
    refuse: Callable[[ProtocolRequest | None, OAuth2Error], Response] = server.handle_error_response
    try:
        request = form_request(
            PUSHED_FIELDS, clean=(*CLIENT_FIELDS, "redirect_uri"), repeatable=REPEATABLE
        )
    except OAuth2Error as error:
        return refuse(None, error)
    document_clients.examine(client_authentication.claimed_client_id(request), is_pushed=True)
    context.key_ring().refresh()
    client_authentication.examine_assertion(request, "pushed_authorization_request")
    signed = authorization_request.examine_request_object(request.payload.data)

    def answer() -> Response:
        with transaction.Transaction() as changes:
            request.connection = changes.connection
            try:
                members = authorization_request.push(server, request, signed)
            except OAuth2Error as error:
                error.redirect_uri = None  # the answer is for the backend (§2.3)
                return refuse(request, error)
            changes.commit()
        return Response(json.dumps(members), status=201, headers=default_json_headers)

    return foreign_secrets.answered(request, answer)


def device_authorization_request() -> Response:
    """Device authorization endpoint: issue the codes by which a user signs a device in."""
    server = authorization_server()
    try:
        request = form_request(DEVICE_FIELDS, repeatable=REPEATABLE)
    except OAuth2Error as error:
        refused: Response = server.handle_error_response(None, error)
        return refused
    client_authentication.examine_assertion(request, "device_authorization")

    def answer() -> Response:
        with transaction.Transaction() as changes:
            request.connection = changes.connection
            response = device_authorization.answer(server, request)
            if response.status_code == 200:
                changes.commit()
        return response

    return foreign_secrets.answered(request, answer)


_ERROR = "urn:ietf:params:scim:api:messages:2.0:Error"
_MEDIA_TYPE = "application/scim+json"


def scim(path: str) -> Response:
    """Answer SCIM requests of programs with an API token (RFC 7644)."""
    g.sso_error_shape = _error, _MEDIA_TYPE
    is_reading = request.method in ("GET", "HEAD") or path.endswith(".search")
    token = api.authenticate(api_tokens.SCIM_READ if is_reading else api_tokens.SCIM_WRITE)
    db.session.commit()
    scim_request = ScimRequest(
        "GET" if request.method == "HEAD" else request.method,
        f"{context.settings().base_url}/scim/v2",
        f"/{path}",
        request.args.to_dict(),
        dict(request.headers),
        request.get_data(cache=False),
    )
    try:
        api.spend(token, handler.weight(scim_request))
        answer = handler.answer(scim_request, token, None if is_reading else db.session.commit)
    except handler.SCIMException as error:
        db.session.rollback()
        answer = handler.refusal(error)
        refusals.record_answer(error.scim_type or f"status {error.status}", str(error.detail))
    body = None if answer.body is None else json.dumps(answer.body)
    return Response(body, int(answer.status), answer.headers)


def _error(status: int, description: str) -> dict[str, Any]:
    """Return an error of another module as SCIM (RFC 7644 §3.12)."""
    return {"schemas": [_ERROR], "status": str(status), "detail": description}


def client_logo() -> WerkzeugResponse:
    """Return the logo of an application or a provider. Its URL changes with its content."""
    digest = request.args.get("v", "")
    if logo := context.upstreams().logo(digest):
        return static_files.of_image(logo)
    with database.connection() as connection:
        logo = clients.find_logo(connection, digest) if digest.isalnum() else None
    if logo is None:
        abort(404)
    return static_files.of_image(logo)


def picture(file: str) -> WerkzeugResponse:
    """Return the uploaded picture of a person, whose URL is the claim `picture`."""
    name = urls.name_of_picture_file(file) or abort(404)
    with database.connection() as connection:
        data = pictures.find(connection, name) or abort(404)
    return static_files.of_picture(data, name)
