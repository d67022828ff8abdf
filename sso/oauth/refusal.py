"""What is noted of a protocol error for the log and the audit trail (`sso.ratelimit.refusals`)."""

from authlib.oauth2.rfc6749.errors import InvalidRequestError, OAuth2Error

from sso import audit, clock
from sso.audit.events import Event
from sso.oauth import access_tokens, bearer
from sso.oauth.client_authentication import LONGEST_CLIENT_ID, ClientAuthenticationFailed
from sso.oauth.request import ProtocolRequest
from sso.ratelimit import refusals
from sso.store import tokens
from sso.web import routing

# The answers to prompt=none that say no more than "not now": they must not hide others.
_NOT_NOW = frozenset(
    {"login_required", "consent_required", "interaction_required", "account_selection_required"}
)


class UnregisteredRedirectUri(InvalidRequestError):
    """RFC 6749 §3.1.2.4; the description never echoes the address."""

    def __init__(self) -> None:
        super().__init__("The 'redirect_uri' does not match any registered one exactly.")


def note(request: ProtocolRequest | None, error: OAuth2Error) -> None:
    """Note an error that is about to be answered; `None`: the request could not be read."""
    route = routing.current()
    event = route.refused if route else Event.AUTHORIZATION_REFUSED
    if isinstance(error, ClientAuthenticationFailed):
        event = Event.CLIENT_AUTHENTICATION_FAILED
    budget: str | None = f"silent_{event}" if error.error in _NOT_NOW else event
    client = None
    if request:
        client = request.claimed_client or request.payload.client_id
        if routing.is_protocol() and request.client:
            client, budget = request.client.client_id, None
    fields: dict[str, object] = {
        "error": error.error,
        "description": error.get_error_description() or None,
        "client": audit.clean(client, LONGEST_CLIENT_ID) if client else None,
    }
    if request:
        if request.approval:
            fields["user"] = request.approval.user_id
        fields |= request.details
    refusals.note(None if request and request.is_told else event, budget=budget, **fields)


def note_access_token(error: OAuth2Error) -> None:
    """Note why userinfo is refused, and whose token was presented."""
    fields: dict[str, object] = {
        "error": error.error,
        "description": error.get_error_description(),
    }
    if isinstance(error, bearer.MissingToken):
        refusals.note(None, budget=None, **fields)
        return
    if error.status_code != 400:  # there is one token, and it can be read
        fields |= _about(bearer.presented() or "")
    event = Event.ACCESS_TOKEN_REFUSED
    refusals.note(event, budget=event, **fields)


def _about(token: str) -> dict[str, object]:
    jti = access_tokens.claimed_jti(token)
    found = tokens.circumstances_of_access(jti) if jti else None
    if found is None:
        return {"reason": "unknown" if jti else "not a token of this server"}
    is_genuine = access_tokens.is_genuine(token, found.digest)
    reason = found.reason(clock.now()) if is_genuine else "altered"
    return {"client": found.client_id, "user": found.user_id, "reason": reason}
