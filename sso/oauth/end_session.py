"""RP-Initiated Logout 1.0."""

import shlex
from typing import Any, NamedTuple

from authlib.oauth2.rfc6749.errors import InvalidRequestError, OAuth2Error
from authlib.oidc.rpinitiated import EndSessionEndpoint as AuthlibEndSessionEndpoint
from authlib.oidc.rpinitiated.end_session import EndSessionRequest
from flask import request as flask_request
from flask_login import current_user

from sso import audit, context
from sso.audit.events import Event
from sso.config import urls
from sso.oauth.request import ProtocolRequest
from sso.oauth.server import AuthorizationServer
from sso.ratelimit import refusals
from sso.store.clients import RegisteredClient

PARAMETERS = (
    "id_token_hint", "client_id", "post_logout_redirect_uri", "state", "logout_hint", "ui_locales",
)  # fmt: skip
_SHOWN, _LOGGED = 500, 200  # characters of a value that a page repeats, and a line on the log


class LogoutError(NamedTuple):
    """What is wrong with a logout request, for a developer, and how to fix it.

    `summary`: the description without what was sent, for the audit trail. `line`: with an address
    as far as it may stand on the log.
    """

    description: str
    hint: str | None = None
    summary: str | None = None
    line: str | None = None


class LogoutRequest(NamedTuple):
    """A logout request as far as it is valid.

    `redirect_uri`: where the browser goes afterwards, with `state`. `names_session`: whether the
    hint names this very browser session. With an error there is never a redirect (§4).
    """

    client: RegisteredClient | None = None
    redirect_uri: str | None = None
    names_session: bool = False
    error: LogoutError | None = None


class EndSessionEndpoint(AuthlibEndSessionEndpoint):
    """Authlib takes any JWT that we signed for a hint, and joins `state` by re-encoding."""

    def validate_request(self, request: ProtocolRequest) -> EndSessionRequest:
        """Client, hint and URI (§2, §3). Raises `InvalidRequestError`."""
        values: dict[str, str] = request.payload.data
        claims, client_id = self._claims(values.get("id_token_hint")), values.get("client_id")
        if claims and client_id and client_id != claims.get("aud"):
            raise InvalidRequestError("'client_id' does not match 'aud' claim")
        client = None
        if client_id or claims:
            client = self.server.query_client(client_id or str((claims or {}).get("aud")))
        redirect_uri = values.get("post_logout_redirect_uri")
        if not (client and redirect_uri and client.check_post_logout_redirect_uri(redirect_uri)):
            redirect_uri = None
        elif state := values.get("state"):
            redirect_uri = urls.add_parameters(str(redirect_uri), [("state", state)])
        return EndSessionRequest(request, client, claims, redirect_uri)

    @staticmethod
    def _claims(id_token_hint: str | None) -> dict[str, Any] | None:
        if id_token_hint is None:
            return None
        claims = context.key_ring().verify(id_token_hint, typ="JWT")
        if claims is None or claims.get("iss") != context.settings().issuer:
            raise InvalidRequestError(
                "The id_token_hint is no identity token of this server, or too old to be verified."
            )
        return claims


def read(server: AuthorizationServer, values: dict[str, str]) -> LogoutRequest:
    """Validate a logout request. What is wrong with it is returned, not raised."""
    client_id = values.get("client_id")
    try:
        found = server.validate_endpoint_request("end_session", ProtocolRequest(values))
    except OAuth2Error as error:
        client = server.query_client(client_id) if client_id else None
        description = error.get_error_description() or "The request is not valid."
        note_refusal(Event.END_SESSION_REFUSED, description, client)
        return LogoutRequest(client, error=LogoutError(description))
    wrong = _error(values, found)
    if wrong:
        uri = values.get("post_logout_redirect_uri")
        event = Event.POST_LOGOUT_REFUSED if uri else Event.END_SESSION_REFUSED
        note_refusal(event, wrong.summary or wrong.description, found.client, uri)
    return LogoutRequest(
        found.client, found.redirect_uri, not wrong and _names_this_session(found), wrong
    )


def _error(values: dict[str, str], found: EndSessionRequest) -> LogoutError | None:
    uri = values.get("post_logout_redirect_uri")
    if found.client is None and ("client_id" in values or found.id_token_claims):
        return LogoutError(
            "No client with the client_id of this request is registered and enabled.",
            "Compare it with the output of: flask client list",
        )
    if uri is None or found.redirect_uri:
        return None
    if found.client is None:
        return LogoutError(
            "A post_logout_redirect_uri needs an id_token_hint or a client_id beside it, "
            "which names the client that it is registered with."
        )
    words = "The post_logout_redirect_uri {} is not registered with the client {}."
    logged = audit.clean(refusals.without_query(uri), _LOGGED)
    return LogoutError(
        words.format(_harmless(uri[:_SHOWN]), found.client.client_id),
        _how_to_register(found.client, uri),
        "The 'post_logout_redirect_uri' is none of the registered ones, to the character.",
        words.format(_harmless(logged), found.client.client_id),
    )


def _harmless(text: str) -> str:
    """Nothing in it may change how the rest of the line reads."""
    return text.encode("ascii", "backslashreplace").decode()


def note_refusal(
    event: Event, description: str, client: RegisteredClient | None = None, uri: str | None = None
) -> None:
    """Note what is wrong, once: the post of our own page brings the request again."""
    if flask_request.method == "GET":
        refusals.note(
            event,
            budget=event,
            client=client.client_id if client else None,
            error="invalid_request",
            description=description,
            redirect_uri=refusals.without_query(uri) if uri else None,
        )


def _how_to_register(client: RegisteredClient, uri: str) -> str:
    if problem := urls.registration_error(uri, is_public=client.is_public):
        return f"It cannot be registered: {problem}."
    command = ["flask", "client", "update", client.client_id]
    return "If it belongs to the application, register it, character for character: " + shlex.join(
        [*command, "--add-post-logout-redirect-uri", uri]
    )


def _names_this_session(found: EndSessionRequest) -> bool:
    visit = current_user.current_session if current_user.is_authenticated else None
    claims = found.id_token_claims or {}
    return (
        visit is not None
        and claims.get("sid") == str(visit.session.id)
        and claims.get("sub") == str(visit.user.id)
    )
