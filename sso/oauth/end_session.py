"""RP-Initiated Logout 1.0."""

from typing import Any

from authlib.oauth2.rfc6749.errors import InvalidRequestError
from authlib.oidc.rpinitiated import EndSessionEndpoint as AuthlibEndSessionEndpoint
from authlib.oidc.rpinitiated.end_session import EndSessionRequest

from sso import addresses, browser_session, current
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


def is_of_this_session(found: EndSessionRequest) -> bool:
    """Whether the hint names the very session that would end; if not, the user is asked."""
    visit = browser_session.current_visit()
    claims = found.id_token_claims or {}
    return visit is not None and claims.get("sid") == str(visit.session.id)
