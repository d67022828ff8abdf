"""Who calls the API for programs: an API token in the Authorization header (RFC 6750 §2.1)."""

from typing import NoReturn

from flask import abort, request

from sso.audit.events import Event
from sso.crypto.secrets import API_TOKEN
from sso.models import ApiToken
from sso.ratelimit import limiting, refusals
from sso.services import api_tokens
from sso.web.errors import as_json

_CHALLENGE = 'Bearer realm="sso"'


def authenticate(scope: str) -> ApiToken:
    """Return the request's token, if it has this scope, and record its use; does not commit.

    Any other request is aborted with an error. Failures have their own limit, apart from the
    requests of valid tokens: tokens cannot be guessed, and failures of others block no program.
    """
    if "access_token" in request.args or API_TOKEN in request.query_string.decode("latin-1"):
        _refuse(400, "invalid_request", "in the URL", "A token in a URL is in logs, too: revoke "
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
        _refuse(401, "invalid_token", error.reason, "The API token is unknown, expired or revoked.",
                error.token)  # fmt: skip
    if not api_tokens.allows(token, scope):
        _refuse(403, "insufficient_scope", f"without {scope}",
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
    reason: str,
    description: str,
    token: ApiToken | None = None,
    more: str = "",
) -> NoReturn:
    """Answer as §3 says."""
    event = Event.API_TOKEN_REFUSED
    refusals.note(
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
