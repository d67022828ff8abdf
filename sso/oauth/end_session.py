"""RP-Initiated Logout 1.0."""

import string
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from authlib.oauth2.rfc6749.errors import InvalidRequestError, OAuth2Error
from authlib.oidc.rpinitiated import EndSessionEndpoint as AuthlibEndSessionEndpoint
from authlib.oidc.rpinitiated.end_session import EndSessionRequest
from flask import request as flask_request
from flask_login import current_user

from sso import audit
from sso.audit.events import Event
from sso.config import urls
from sso.flow import token_claims
from sso.flow.refusals import Cause, describe
from sso.i18n.message import code_of
from sso.oauth import tokens
from sso.oauth.authlib_request import ProtocolRequest
from sso.oauth.client_authentication import LONGEST_CLIENT_ID
from sso.oauth.server import AuthorizationServer
from sso.ratelimit import refusals
from sso.store.clients import RegisteredClient

PARAMETERS = (
    "id_token_hint", "client_id", "post_logout_redirect_uri", "state", "logout_hint", "ui_locales",
)  # fmt: skip
_LONGEST_SHOWN = 300  # characters


class LogoutRequest(NamedTuple):
    """A logout request as far as it is valid.

    `redirect_uri`: where the browser goes afterwards, with `state`. `names_session`: whether the
    hint names this very browser session. `error`: what is wrong, for developers; then there is
    never a redirect (§4).
    """

    client: RegisteredClient | None = None
    redirect_uri: str | None = None
    names_session: bool = False
    error: str | None = None
    unregistered: str | None = None  # what is wrong is the URI alone: as a page may show it


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
        claims = tokens.claims_of_hint(id_token_hint)
        if claims is None:
            raise InvalidRequestError(
                "The id_token_hint is no identity token of this server, or too old to be verified."
            )
        return claims


def read(server: AuthorizationServer, values: dict[str, str]) -> LogoutRequest:
    """Validate a logout request. What is wrong with it is returned, not raised."""
    client_id = values.get("client_id")
    try:
        logout = server.validate_endpoint_request("end_session", ProtocolRequest(values))
    except OAuth2Error as error:
        client = server.query_client(client_id) if client_id else None
        description = error.get_error_description() or "The request is not valid."
        hint = values.get("id_token_hint")
        facts = tokens.facts_of_hint(hint) if hint else {}
        note_refusal(Event.END_SESSION_REFUSED, description, client or client_id, facts=facts)
        return LogoutRequest(client, error=description)
    is_named, uri = "client_id" in values, values.get("post_logout_redirect_uri")
    is_named |= logout.id_token_claims is not None
    problem = error_of(logout.client, uri, is_named=is_named)
    if problem:
        event = Event.POST_LOGOUT_REFUSED if uri else Event.END_SESSION_REFUSED
        named = client_id or str((logout.id_token_claims or {}).get("aud") or "")
        note_refusal(event, problem, logout.client or named, uri)
    is_unregistered = code_of(problem) == Cause.UNREGISTERED_POST_LOGOUT_URI
    return LogoutRequest(
        logout.client,
        logout.redirect_uri,
        not problem and _names_this_session(logout),
        problem,
        _shown(values["post_logout_redirect_uri"]) if is_unregistered else None,
    )


def _shown(uri: str) -> str:
    """Escape characters that change how the text beside them is shown."""
    return quote(uri[:_LONGEST_SHOWN], safe=string.punctuation)


def error_of(client: RegisteredClient | None, uri: str | None, *, is_named: bool) -> str | None:
    """Return why nobody is led to a URI after the sign-out, or `None`.

    `is_named`: the request names a client, by its ID or by a hint.
    """
    if client is None and is_named:
        return "No client with the client_id of this request is registered and enabled."
    if uri is None or (client and client.check_post_logout_redirect_uri(uri)):
        return None
    if client is None:
        return (
            "A post_logout_redirect_uri needs an id_token_hint or a client_id beside it, "
            "which names the client that it is registered with."
        )
    return describe(Cause.UNREGISTERED_POST_LOGOUT_URI)


def note_refusal(
    event: Event,
    description: str,
    client: RegisteredClient | str | None = None,
    uri: str | None = None,
    facts: Mapping[str, object] | None = None,
) -> None:
    """Note what is wrong, once: the post of our own page brings the request again."""
    if flask_request.method == "GET":
        client_id = client if isinstance(client, str | None) else client.client_id
        refusals.record(
            event,
            budget=event,
            facts={"post_logout_redirect_uri": uri, **(facts or {})},
            client=audit.clean(client_id, LONGEST_CLIENT_ID) if client_id else None,
            error="invalid_request",
            description=description,
            redirect_uri=refusals.without_query(uri) if uri else None,
        )


def _names_this_session(logout: EndSessionRequest) -> bool:
    current_session = current_user.current_session if current_user.is_authenticated else None
    claims, client = logout.id_token_claims or {}, logout.client
    if current_session is None:
        return False
    names = {str(current_session.user.id)}
    if client and client.subject_attribute:
        attribute, client_id = client.subject_attribute, client.client_id
        names.add(token_claims.subject(current_session.user, attribute, client_id))
    has_sid = claims.get("sid") == str(current_session.session.id)
    return has_sid and claims.get("sub") in names
