"""The API for programs: client registrations as JSON (RFC 7591, RFC 7592), with an API token.

The token is in the Authorization header (RFC 6750 §2.1).
"""

import json
from datetime import timedelta
from typing import Any, NoReturn

from flask import Response, abort, request

from sso import context
from sso.audit import Actor
from sso.audit.events import Event
from sso.crypto.secrets import API_TOKEN
from sso.extensions import db
from sso.flow.refusals import Reason, because
from sso.i18n.message import Message
from sso.models import ApiToken, Client
from sso.ratelimit import limiting, refusals
from sso.services import api_tokens, clients
from sso.services.checks import Invalid, Rule
from sso.store import clients as stored
from sso.web.errors import as_json

_CHALLENGE = 'Bearer realm="sso"'


def authenticate(scope: str) -> ApiToken:
    """Return the request's token, if it has this scope, and record its use; does not commit.

    All other requests are aborted with an error. Failures have a limit of their own: tokens cannot
    be guessed, and failures of others block no program.
    """
    if "access_token" in request.args or API_TOKEN in request.query_string.decode("latin-1"):
        _refuse(400, "invalid_request", because(Reason.TOKEN_IN_URL),
                "A token in a URL is in logs, too: revoke "
                "it, and send another one in the Authorization header.")  # fmt: skip
    scheme, _, secret = request.environ.get("HTTP_AUTHORIZATION", "").partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        description = "Send an API token: Authorization: Bearer TOKEN"
        abort(as_json("invalid_token", description, 401, {"WWW-Authenticate": _CHALLENGE}))
    try:
        token = api_tokens.accept(secret.strip(), request.remote_addr)
    except api_tokens.Refused as error:
        attempt = limiting.enter(limiting.API_TOKEN, "")
        attempt.failed()
        _refuse(401, "invalid_token", because(error.reason),
                "The API token is unknown, expired or revoked.", error.token)  # fmt: skip
    if not api_tokens.allows(token, scope):
        _refuse(403, "insufficient_scope", because(Reason.WITHOUT_SCOPE, scope=scope),
                f"The API token lacks the scope {scope}.", token, f', scope="{scope}"')  # fmt: skip
    spend(token)
    return token


def spend(token: ApiToken, requests: int = 1) -> None:
    """Count requests of this token; a large one counts as several. Raises `TooManyAttempts`."""
    if requests:
        limiting.spend_own(limiting.API_REQUESTS, str(token.id), requests)


def _refuse(
    status: int,
    error: str,
    reason: Message,
    description: str,
    token: ApiToken | None = None,
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
        api_token=token and token.id,
    )
    challenge = f'{_CHALLENGE}, error="{error}", error_description="{description}"{more}'
    headers = {"WWW-Authenticate": challenge} if status != 400 else None
    abort(as_json(error, description, status, headers))


_BY = "api"
_LONGEST_KEEP = 24 * 365  # hours


def registrations() -> Response:
    """List registrations, or register a client (RFC 7591)."""
    actor = _actor()
    if request.method in ("GET", "HEAD"):
        return _answer({"clients": [_document(client) for client in stored.every()]})
    fields = _fields()
    try:
        client, secret = clients.register(actor, fields)
    except Invalid as error:
        return _refused(error)
    db.session.commit()
    document = _document(client, secret)
    return _answer(document, client, 201, {"Location": document["registration_client_uri"]})


def registered_client(client_id: str) -> Response:
    """Read, replace or delete a registration (RFC 7592)."""
    actor = _actor()
    if request.method in ("GET", "HEAD"):
        client = (client_id.isprintable() and stored.find(client_id)) or _unknown()
        return _answer(_document(client), client)
    client = _locked(client_id)
    if request.method == "DELETE":
        clients.delete(actor, client_id)
        db.session.commit()
        return Response(status=204)
    fields = clients.replacing_registration(_fields(client_id))
    try:
        client, _ = clients.change(actor, client_id, fields)
    except Invalid as error:
        return _refused(error)
    db.session.commit()
    return _answer(_document(client), client)


def client_secret(client_id: str) -> Response:
    """Give a client a new secret. `keep_old`: hours for which the old one stays valid."""
    actor = _actor()
    _locked(client_id)
    hours = (_body() if request.get_data() else {}).get("keep_old", 0)
    if isinstance(hours, bool) or not isinstance(hours, int) or not 0 <= hours <= _LONGEST_KEEP:
        return _refused(Invalid([f"keep_old is not a number from 0 to {_LONGEST_KEEP}"]))
    try:
        client, secret = clients.rotate_secret(actor, client_id, timedelta(hours=hours))
    except Invalid as error:
        return _refused(error)
    db.session.commit()
    return _answer(_document(client, secret), client)


def _actor() -> Actor:
    """Authenticate with the scope for the method; return the token as the actor. Commits."""
    is_reading = request.method in ("GET", "HEAD")
    token = authenticate(api_tokens.CLIENTS_READ if is_reading else api_tokens.CLIENTS_WRITE)
    db.session.commit()
    return api_tokens.actor_of(token, _BY)


def _locked(client_id: str) -> Client:
    """Lock the client; abort with 412 if it has changed since it was read (If-Match)."""
    # PostgreSQL takes no NUL in a text.
    client = (client_id.isprintable() and stored.lock(client_id)) or _unknown()
    expected = request.headers.get("If-Match", "*").strip()
    if expected not in ("*", _etag(client)):
        db.session.rollback()
        abort(as_json("invalid_request", "The client has changed; read it again.", 412))
    return client


def _unknown() -> Any:
    db.session.rollback()
    abort(as_json("invalid_request", "There is no client with this ID.", 404))


def _fields(client_id: str | None = None) -> dict[str, Any]:
    body = _body()
    if client_id is not None and body.get("client_id", client_id) != client_id:
        abort(_refused(Invalid(["client_id is not that of the URL"])))
    try:
        return clients.parsed_registration(body)
    except Invalid as error:
        abort(_refused(error))


def _body() -> dict[str, Any]:
    try:
        body = json.loads(request.get_data())
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict) or request.mimetype != "application/json":
        abort(_refused(Invalid(["the body is no JSON object of type application/json"])))
    return body


def _document(client: Client, secret: str | None = None) -> dict[str, Any]:
    """Return the answer to a registration (RFC 7591 §3.2.1, RFC 7592 §3)."""
    issued = {"client_secret": secret, "client_secret_expires_at": 0} if secret else {}
    uri = f"{context.settings().base_url}/oauth2/register/{client.client_id}"
    return {**clients.registration_document(client), **issued, "registration_client_uri": uri}


def _etag(client: Client) -> str:
    return f'W/"{client.version}"'


def _answer(
    body: dict[str, Any],
    client: Client | None = None,
    status: int = 200,
    headers: dict[str, str] | None = None,
) -> Response:
    etag = {"ETag": _etag(client)} if client else {}
    return Response(
        json.dumps(body), status, {**etag, **(headers or {})}, mimetype="application/json"
    )


def _refused(error: Invalid) -> Response:
    """Return the error response of a registration (RFC 7591 §3.2.2)."""
    db.session.rollback()
    rule = Rule.INVALID_REDIRECT_URI
    code = rule.value if error.rules == {rule} else "invalid_client_metadata"
    return as_json(code, str(error)[:1000], 400)
