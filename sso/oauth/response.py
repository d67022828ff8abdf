"""The answers of the authorization server: to the client through the browser, and errors.

This is the only place that redirects to a client's URI, always with `iss` (RFC 9207 §2). Authlib's
IssuerParameter covers neither errors of the validation nor form_post, and re-encodes the query.
"""

from datetime import timedelta
from typing import TYPE_CHECKING

from authlib.oauth2.rfc6749.errors import InvalidRequestError, OAuth2Error
from flask import Response, render_template
from flask import request as flask_request
from flask_babel import gettext
from werkzeug.datastructures import Headers

from sso import audit, clock, context
from sso.audit.events import Event
from sso.config import urls
from sso.flow import decision
from sso.flow.refusals import Cause
from sso.flow.request import RESPONSE_MODES, SIGNED_RESPONSE_MODES, can_be_posted
from sso.i18n.message import code_of
from sso.oauth import tokens
from sso.oauth.authlib_request import ProtocolRequest
from sso.oauth.client_authentication import LONGEST_CLIENT_ID, ClientAuthenticationFailed
from sso.oauth.dpop import RefusedProof
from sso.ratelimit import refusals
from sso.services import agent_identity
from sso.store.clients import RegisteredClient
from sso.web import errors, headers, pending_request, routing
from sso.web.parameters import FORM, ParameterFault

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

SIGNED_RESPONSE_LIFETIME = timedelta(minutes=5)
AuthlibAnswer = tuple[int, str, list[tuple[str, str]]]


class UnregisteredRedirectUri(InvalidRequestError):
    """RFC 6749 §3.1.2.4; the description never echoes the URI."""

    def __init__(self) -> None:
        super().__init__("The 'redirect_uri' does not match any registered one exactly.")


class ClientRedirect(Response):
    """A redirect to exactly the registered URI."""

    def get_wsgi_headers(self, environ: "WSGIEnvironment") -> Headers:
        # Werkzeug would parse the Location and encode it again: com.app:///cb became com.app:/cb.
        # Ours is ASCII: `config.urls` registers no other, and adds parameters encoded.
        return self.headers


def to_exactly(uri: str) -> Response:
    """Redirect to a URI as it is: the signature of its query covers every character."""
    return ClientRedirect(status=303, headers={"Location": uri})


def to_client(
    client: RegisteredClient,
    redirect_uri: str,
    parameters: list[tuple[str, str]],
    state: str | None,
    response_mode: str,
) -> AuthlibAnswer:
    """Send the browser to a *proven* URI, by redirect or by a page that posts itself."""
    answer = list(parameters)
    if state:
        answer.append(("state", state))
    answer.append(("iss", context.settings().issuer_of(client)))
    if response_mode in SIGNED_RESPONSE_MODES:
        answer = [("response", _signed(client, dict(answer)))]
    if response_mode.startswith("form_post"):
        # OAuth 2.0 Form Post Response Mode §2.
        headers.allow_own_script()
        body = render_template("form_post.html", action=redirect_uri, fields=answer)
        return 200, body, [("Content-Type", "text/html; charset=utf-8")]
    # 303: the browser never re-posts a form with a password to the client (RFC 9700 §4.12).
    return 303, "", [("Location", urls.add_parameters(redirect_uri, answer))]


def error_to_client(request: ProtocolRequest, error: OAuth2Error) -> AuthlibAnswer:
    """Send an error to the *proven* URI that it carries (RFC 6749 §4.1.2.1)."""
    data = request.payload.data
    client, state = request.client, data.get("state", "")
    mode = _response_mode(data, error) or "query"
    signs = client.authorization_signed_response_alg is not None
    if mode not in RESPONSE_MODES and not (signs and mode in SIGNED_RESPONSE_MODES):
        mode = "query"
    if mode != "query" and not can_be_posted(error.redirect_uri, state):
        mode = "query"
    return to_client(
        client,
        error.redirect_uri,
        [("error", error.error), ("error_description", _description(error))],
        request.payload.state,
        mode,
    )


def _signed(client: RegisteredClient, answer: dict[str, str]) -> str:
    """Sign an answer as a JWT (JARM §2.1). It has no `typ`, so it is no identity token."""
    expires = clock.now() + SIGNED_RESPONSE_LIFETIME
    claims = {**answer, "aud": client.client_id, "exp": int(expires.timestamp())}
    alg = client.authorization_signed_response_alg or ""
    return context.key_ring().sign(claims, alg, typ=None)


def error_here(error: OAuth2Error, client: RegisteredClient | None) -> Response:
    """Answer an error that is not sent to a client: a page for browsers, JSON for backends."""
    if routing.is_protocol():
        return errors.from_oauth(error)
    name = agent_identity.title_of(client) if client else None
    if name and isinstance(error, UnregisteredRedirectUri):
        message = gettext(
            "%(client)s wants to send you to an address that is not registered for it.", client=name
        )
    elif error.error == "invalid_client":
        message = gettext(
            "The application that sent you here is not registered here, or has been disabled."
        )
    else:
        message = None
    return invalid_page(_description(error), error.error, message, name)


def is_no_refusal(request: ProtocolRequest | None, error: OAuth2Error) -> bool:
    """Return whether a device that polls is only told to wait (RFC 8628 §3.5).

    That the interval has grown is noted: it does so few times for each device code.
    """
    has_grown = request is not None and request.keep_changes
    return error.error in ("authorization_pending", "slow_down") and not has_grown


def note_fault(fault: ParameterFault, client_id: str | None) -> None:
    """Note a request whose parameters cannot be read; so its client is only a guess."""
    event = Event.AUTHORIZATION_REFUSED
    refusals.record(
        event,
        budget=event,
        facts={"parameter": fault.name},
        error="invalid_request",
        description=str(fault),
        client=audit.clean(client_id, LONGEST_CLIENT_ID) if client_id else None,
    )


def invalid_page(
    detail: str,
    error: str = "invalid_request",
    message: str | None = None,
    client_name: str | None = None,
    hint: str | None = None,
) -> Response:
    """Return the page for a request that is invalid by the application's fault.

    `hint`: what the person may try; without it, the page says that trying again will not help.
    """
    title = None
    if client_name:
        title = gettext("Signing in to %(client)s did not work", client=client_name)
    message = message or gettext("The application sent a request that is not valid.")
    return errors.page(
        message, title=title, hint=hint, error=error, detail=detail, client_name=client_name
    )


def as_get(url: str) -> Response:
    """Redirect to the same request by GET, so that the browser sends its cookies (SameSite=Lax).

    `url`: where the same endpoint is.
    """
    if flask_request.method == "POST" and flask_request.mimetype != FORM:
        return invalid_page("A posted request has to be form-encoded.")
    body = flask_request.get_data(cache=True)
    query = b"&".join(part for part in (flask_request.query_string, body) if part)
    if len(query) > pending_request.MAX_LENGTH:
        return invalid_page("The request is too long.")
    safe = "".join(chr(byte) if 0x21 <= byte <= 0x7E else f"%{byte:02X}" for byte in query)
    return Response(status=303, headers={"Location": f"{url}?{safe}"})


def _description(error: OAuth2Error) -> str:
    return error.get_error_description() or "The request is not valid."


def _response_mode(data: dict[str, str], error: OAuth2Error) -> str | None:
    """Return how the client wants errors to be sent.

    In a request object that is refused, a client may have said so there alone. It is unverified,
    but so is the query; and it takes precedence over the query (OIDC Core §6.1).
    """
    inside = None
    if error.error == "request_not_supported":
        inside = response_mode_of(data.get("request", ""))
    return inside or data.get("response_mode")


def response_mode_of(request_object: str) -> str | None:
    """Return the response mode that a request object asks for, if it is a known one."""
    mode = (tokens.unverified_claims(request_object) or {}).get("response_mode")
    return mode if isinstance(mode, str) and mode in RESPONSE_MODES else None


# What an operator can change at the user.
_OF_USER = frozenset(
    {
        Cause.NOT_A_MEMBER,
        Cause.NO_LONGER_A_MEMBER,
        Cause.NOT_A_MEMBER_OF_API,
        Cause.RESOURCE_WITHDRAWN,
        Cause.SUBJECT_NO_ID_TOKEN,
    }
)


def note_refusal(request: ProtocolRequest | None, error: OAuth2Error) -> None:
    """Note an error for the log and the audit trail; `None`: the request could not be read."""
    route = routing.current()
    event = route.refused if route else Event.AUTHORIZATION_REFUSED
    if isinstance(error, ClientAuthenticationFailed):
        event = Event.CLIENT_AUTHENTICATION_FAILED
    # Those to prompt=none say no more than "not now": they must not hide others.
    is_silent = error.error in decision.SILENT_ERRORS
    budget: str | None = f"silent_{event}" if is_silent else event
    client, is_proven = None, False
    if request:
        client = request.claimed_client or request.payload.client_id
        if routing.is_protocol() and request.client:
            client = request.client.client_id
            # Anyone can name a public client.
            is_proven = not request.client.is_public
            budget = None if is_proven else budget
    fields: dict[str, object] = {
        "error": error.error,
        "description": error.get_error_description() or None,
        "client": audit.clean(client, LONGEST_CLIENT_ID) if client else None,
    }
    if request:
        if request.live_grant:
            fields["user"] = request.live_grant.user_id
        fields |= request.details
        if isinstance(error, RefusedProof):
            request.facts |= error.facts
        request.facts.setdefault("grant_type", request.payload.grant_type)
        if code_of(error.get_error_description()) in _OF_USER:
            request.facts["user"] = request.details.get("user")
    refusals.record(
        None if request and request.is_reported else event,
        budget=budget,
        is_proven=is_proven,
        facts=request.facts if request else None,
        **fields,
    )
