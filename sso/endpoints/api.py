"""The API for programs: client registrations as JSON (RFC 7591, RFC 7592), with an API token, or
with an access token of a service for it.

The token is in the Authorization header (RFC 6750 §2.1).
"""

import json
from datetime import timedelta
from typing import Any, NoReturn
from urllib.parse import quote

from flask import Response, abort, request

from sso import audit, context, database
from sso.audit import Actor
from sso.audit.events import Event
from sso.config import urls
from sso.crypto.secrets import API_TOKEN
from sso.extensions import db
from sso.flow import own_apis
from sso.flow.refusals import Reason, because
from sso.i18n.message import Message
from sso.models import ApiToken, Client
from sso.oauth import dpop, resource_servers
from sso.ratelimit import limiting, refusals
from sso.services import agents, api_tokens, clients
from sso.services.api_tokens import Program, Service
from sso.services.checks import Invalid, Rule
from sso.store import clients as stored
from sso.store.service_tokens import ServiceAccessToken
from sso.web.errors import as_json

_CHALLENGE = 'Bearer realm="sso"'
_IN_PATHS = "/:@!$&'()*+,;="  # beside letters and digits (RFC 3986 §3.3)


def authenticate(scope: str) -> Program:
    """Return the program that sent the request, if it has this scope; does not commit.

    It has an API token, whose use is recorded, or it is a service with an access token for this
    API. All other requests are aborted with an error. Failures have a limit of their own: tokens
    cannot be guessed, and failures of others block no program.
    """
    _refuse_token_in_url()
    scheme, _, secret = request.environ.get("HTTP_AUTHORIZATION", "").partition(" ")
    scheme, secret = scheme.lower(), secret.strip()
    is_jwt = secret.count(".") == 2
    if not secret or scheme not in (("bearer", "dpop") if is_jwt else ("bearer",)):
        description = "Send an API token: Authorization: Bearer TOKEN"
        abort(as_json("invalid_token", description, 401, {"WWW-Authenticate": _CHALLENGE}))
    program = _service(secret, scheme, scope) if is_jwt else _owner_of_token(secret)
    if not api_tokens.allows(program, scope):
        reason, more = because(Reason.WITHOUT_SCOPE, scope=scope), f', scope="{scope}"'
        description = f"The API token lacks the scope {scope}."
        _refuse(403, "insufficient_scope", reason, description, program, more)
    spend(program)
    return program


def _refuse_token_in_url() -> None:
    """Abort if a token is in the query of the URL, which is in logs (RFC 6750 §2.3)."""
    if "access_token" in request.args or API_TOKEN in request.query_string.decode("latin-1"):
        _refuse(400, "invalid_request", because(Reason.TOKEN_IN_URL),
                "A token in a URL is in logs, too: revoke "
                "it, and send another one in the Authorization header.")  # fmt: skip


def _owner_of_token(secret: str) -> ApiToken:
    try:
        return api_tokens.accept(secret, request.remote_addr)
    except api_tokens.Refused as error:
        _fail(because(error.reason), "The API token is unknown, expired or revoked.", error.token)


def _service(text: str, scheme: str, scope: str) -> Service:
    """Return the service whose access token for our API this is; abort if there is none."""
    connection = database.session_connection()
    identifier = own_apis.identifier_for(context.settings().base_url, scope)
    token = resource_servers.find(connection, identifier, text)
    service_token = token if isinstance(token, ServiceAccessToken) else None
    usable = service_token and resource_servers.usable(connection, service_token, text)
    if service_token is None or usable is None:
        description = f"The access token is unknown, expired or revoked, or not for {identifier}."
        _fail(because(Reason.UNKNOWN), description)
    client = service_token.client
    service = Service(client.client_id, client.name, usable.scope)
    if (scheme == "dpop") != (service_token.dpop_jkt is not None):
        description = (
            "The access token is bound to a key: send it with the scheme DPoP and a proof."
        )
        if service_token.dpop_jkt is None:
            description = "The access token is not bound to a key: send it with the scheme Bearer."
        _fail(because(Reason.WRONG_METHOD, method=scheme), description, service)
    if service_token.dpop_jkt is not None:
        _use_proof(service_token, text, service)
    return service


def _use_proof(token: ServiceAccessToken, text: str, service: Service) -> None:
    """Verify and use the DPoP proof of the request (RFC 9449 §7.1)."""
    origin = urls.origin(context.settings().base_url) or ""
    url = origin + quote(request.script_root + request.path, safe=_IN_PATHS)
    try:
        proof = dpop.verify_at(url, request.environ.get("HTTP_DPOP"), token.client, text)
        dpop.use(database.session_connection(), proof)
    except dpop.RefusedProof as error:
        _fail(because(Reason.WRONG_METHOD, method="dpop"), error.get_error_description(), service)
    if proof.thumbprint != token.dpop_jkt:
        description = "The access token is bound to another key than that of the DPoP proof."
        _fail(because(Reason.WRONG_METHOD, method="dpop"), description, service)


def _fail(reason: Message, description: str, program: Program | None = None) -> NoReturn:
    attempt = limiting.enter(limiting.API_TOKEN, "")
    attempt.failed()
    _refuse(401, "invalid_token", reason, description, program)


def spend(program: Program, requests: int = 1) -> None:
    """Count requests of a program; a large one counts as several. Raises `TooManyAttempts`."""
    if not requests:
        return
    if isinstance(program, Service):
        limiting.spend_own(limiting.API_REQUESTS, program.client_id, requests, kind="client")
    else:
        limiting.spend_own(limiting.API_REQUESTS, str(program.id), requests)


def _refuse(
    status: int,
    error: str,
    reason: Message,
    description: str,
    program: Program | None = None,
    more: str = "",
) -> NoReturn:
    """Abort with an error response (RFC 6750 §3), and record the refusal."""
    event = Event.API_TOKEN_REFUSED
    refusals.record(
        event,
        budget=event,
        error=error,
        description=description,
        reason=reason,
        api_token=program.id if isinstance(program, ApiToken) else None,
        client=program.client_id if isinstance(program, Service) else None,
    )
    challenge = f'{_CHALLENGE}, error="{error}", error_description="{description}"{more}'
    headers = {"WWW-Authenticate": challenge} if status != 400 else None
    abort(as_json(error, description, status, headers))


_BY = "api"
INVALID_CLIENT = "invalid_client_metadata"
_LONGEST_KEEP = 24 * 365  # hours


def registrations() -> Response:
    """List registrations, or register a client (RFC 7591). It may be open to everybody."""
    if (
        request.method == "POST"
        and context.settings().is_registration_open
        and "Authorization" not in request.headers
    ):
        return _register_itself()
    actor = _actor()
    if request.method in ("GET", "HEAD"):
        return answer({"clients": [_document(client) for client in stored.every()]})
    fields = _fields()
    try:
        client, secret = clients.register(actor, fields)
    except Invalid as error:
        return refused(error)
    db.session.commit()
    document = _document(client, secret)
    headers = {"Location": document["registration_client_uri"]}
    return answer(document, client.version, 201, headers)


def _register_itself() -> Response:
    """Register a client that nobody vouches for (RFC 7591 §3)."""
    _refuse_token_in_url()  # who sends a token, if in the wrong place, is no stranger
    limiting.spend(limiting.OPEN_REGISTRATION, "")
    fields = body()
    try:
        client = agents.register_itself(audit.USER, fields)
    except Invalid as error:
        return refused(error)
    db.session.commit()
    names = ("client_id", "client_name", "redirect_uris", "token_endpoint_auth_method",
             "grant_types", "response_types", "scope", "client_id_issued_at")  # fmt: skip
    document = clients.registration_document(client)
    content = {name: document[name] for name in names if name in document}
    return answer(content, status=201, headers={"Cache-Control": "no-store"})


def registered_client(client_id: str) -> Response:
    """Read, replace or delete a registration (RFC 7592)."""
    actor = _actor()
    if request.method in ("GET", "HEAD"):
        client = (client_id.isprintable() and stored.find(client_id)) or _unknown()
        return answer(_document(client), client.version)
    client = _locked(client_id)
    if request.method == "DELETE":
        clients.delete(actor, client_id)
        db.session.commit()
        return Response(status=204)
    fields = clients.replacing_registration(_fields(client_id))
    try:
        client, _ = clients.change(actor, client_id, fields)
    except Invalid as error:
        return refused(error)
    db.session.commit()
    return answer(_document(client), client.version)


def client_secret(client_id: str) -> Response:
    """Give a client a new secret. `keep_old`: hours for which the old one stays valid."""
    actor = _actor()
    _locked(client_id)
    hours = (body() if request.get_data() else {}).get("keep_old", 0)
    if isinstance(hours, bool) or not isinstance(hours, int) or not 0 <= hours <= _LONGEST_KEEP:
        return refused(Invalid([f"keep_old is not a number from 0 to {_LONGEST_KEEP}"]))
    try:
        client, secret = clients.rotate_secret(actor, client_id, timedelta(hours=hours))
    except Invalid as error:
        return refused(error)
    db.session.commit()
    return answer(_document(client, secret), client.version)


def _actor() -> Actor:
    return actor_with(api_tokens.CLIENTS_READ, api_tokens.CLIENTS_WRITE)


def actor_with(reading: str, writing: str) -> Actor:
    """Authenticate with the scope for the method; return the token as the actor. Commits."""
    program = authenticate(reading if request.method in ("GET", "HEAD") else writing)
    db.session.commit()
    return api_tokens.actor_of(program, _BY)


def _locked(client_id: str) -> Client:
    """Lock the client; abort with 412 if it has changed since it was read (If-Match)."""
    # PostgreSQL takes no NUL in a text.
    client = (client_id.isprintable() and stored.lock(client_id)) or _unknown()
    require_match(client.version, "The client has changed; read it again.")
    return client


def require_match(version: int, description: str) -> None:
    """Abort with 412 if what is locked is not as the caller has read it (If-Match)."""
    expected = request.headers.get("If-Match", "*").strip()
    if expected not in ("*", _etag(version)):
        db.session.rollback()
        abort(as_json("invalid_request", description, 412))


def _unknown() -> Any:
    db.session.rollback()
    abort(as_json("invalid_request", "There is no client with this ID.", 404))


def _fields(client_id: str | None = None) -> dict[str, Any]:
    fields = body()
    if client_id is not None and fields.get("client_id", client_id) != client_id:
        abort(refused(Invalid(["client_id is not that of the URL"])))
    try:
        return clients.parsed_registration(fields)
    except Invalid as error:
        abort(refused(error))


def body(code: str = INVALID_CLIENT) -> dict[str, Any]:
    """Return the JSON object of the request; anything else ends it with an error."""
    try:
        content = json.loads(request.get_data())
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or request.mimetype != "application/json":
        abort(refused(Invalid(["the body is no JSON object of type application/json"]), code))
    return content


def _document(client: Client, secret: str | None = None) -> dict[str, Any]:
    """Return the answer to a registration (RFC 7591 §3.2.1, RFC 7592 §3)."""
    issued = clients.issued(client, secret) if secret else {}
    uri = f"{context.settings().base_url}/oauth2/register/{client.client_id}"
    return {**clients.registration_document(client), **issued, "registration_client_uri": uri}


def _etag(version: int) -> str:
    return f'W/"{version}"'


def answer(
    content: dict[str, Any],
    version: int | None = None,
    status: int = 200,
    headers: dict[str, str] | None = None,
) -> Response:
    """Return a document as JSON, with the version for If-Match."""
    etag = {"ETag": _etag(version)} if version is not None else {}
    return Response(
        json.dumps(content), status, {**etag, **(headers or {})}, mimetype="application/json"
    )


def refused(error: Invalid, code: str = INVALID_CLIENT) -> Response:
    """Return the error response with every reason (RFC 7591 §3.2.2). Rolls back."""
    db.session.rollback()
    rule = Rule.INVALID_REDIRECT_URI
    code = rule.value if error.rules == {rule} else code
    return as_json(code, str(error)[:1000], 400)
