"""RP-Initiated Logout 1.0."""

from typing import Any

from authlib.oauth2.rfc6749.errors import InvalidRequestError
from authlib.oidc.rpinitiated import EndSessionEndpoint as AuthlibEndSessionEndpoint
from authlib.oidc.rpinitiated.end_session import EndSessionRequest
from flask import request as flask_request

from sso import addresses, browser_session, current, refusals
from sso.models import Client
from sso.oauth.request import ProtocolRequest

PARAMETERS = (
    "id_token_hint", "client_id", "post_logout_redirect_uri", "state", "logout_hint", "ui_locales",
)  # fmt: skip


class EndSessionEndpoint(AuthlibEndSessionEndpoint):
    """Authlib takes any JWT that we signed for a hint, and joins `state` by re-encoding."""

    def validate_request(self, request: ProtocolRequest) -> EndSessionRequest:
        state = request.payload.data.get("state")
        without = {key: value for key, value in request.payload.data.items() if key != "state"}
        found = super().validate_request(ProtocolRequest(without))
        if found.redirect_uri and state:
            found.redirect_uri = addresses.add_parameters(found.redirect_uri, [("state", state)])
        _note_unregistered(found, request.payload.data.get("post_logout_redirect_uri"))
        return found

    def _validate_id_token_hint(self, id_token_hint: str) -> dict[str, Any]:
        claims = current.key_ring().verify(id_token_hint, typ="JWT")
        if claims is None or claims.get("iss") != current.settings().issuer:
            raise InvalidRequestError(
                "The id_token_hint is no identity token of this server, or too old to be verified."
            )
        return claims

    def _is_valid_post_logout_redirect_uri(
        self, client: Client, post_logout_redirect_uri: str
    ) -> bool:
        registered = client.client_metadata.get("post_logout_redirect_uris") or []
        return post_logout_redirect_uri in registered


def _note_unregistered(found: EndSessionRequest, sent: str | None) -> None:
    """Note why the browser will not be sent where the client wants it; once, when it asks."""
    if not sent or found.redirect_uri or flask_request.method != "GET":
        return
    if found.client is None:
        why = "No registered and enabled client is named, so the address is not known."
    elif sent in (found.client.client_metadata.get("post_logout_redirect_uris") or []):
        why = "The 'post_logout_redirect_uri' needs an id_token_hint."
    else:
        why = "The 'post_logout_redirect_uri' is none of the registered ones, to the character."
    event = "post_logout_refused"
    refusals.note(
        event,
        budget=event,
        client=found.client.client_id if found.client else None,
        error="invalid_request",
        description=why,
        redirect_uri=refusals.without_query(sent),
    )


def is_of_this_session(found: EndSessionRequest) -> bool:
    """Whether the hint names the very session that would end; if not, the user is asked."""
    visit = browser_session.current_visit()
    claims = found.id_token_claims or {}
    return visit is not None and claims.get("sid") == str(visit.session.id)
