"""A grant extension: the parameters that Authlib does not know (OIDC Core §3.1.2.1)."""

from authlib.oauth2.rfc6749.errors import OAuth2Error

from sso import clock, context
from sso.flow import request as flow_request
from sso.models import Client
from sso.oauth.authorization_code import AuthorizationCodeGrant
from sso.web import parameters

# `state` goes back as it came, whatever it holds; it is never stored.
_CLEAN = tuple(name for name in flow_request.PARAMETERS if name != "state")


class ParameterValidation:
    """Parses the proven request into the frozen `AuthorizationRequest`.

    It hooks in where Authlib adds the proven `redirect_uri` to errors.
    """

    def __call__(self, grant: AuthorizationCodeGrant) -> None:
        grant.register_hook("before_validate_authorization_request_payload", self.validate)

    def validate(self, grant: AuthorizationCodeGrant, redirect_uri: str) -> None:
        """Raises `OAuth2Error` with the standard's code for the first fault."""
        request, client = grant.request, grant.client
        values: dict[str, str] = dict(request.payload.data)
        try:
            parameters.check_clean(values, _CLEAN)
            request.authorization_request = flow_request.parse(
                values,
                registered_scope=client.scope,
                require_pkce=client.require_pkce,
                hinted_subject=hinted_subject(values.get("id_token_hint"), client),
                now=clock.now(),
            )
        except parameters.ParameterFault as fault:
            raise OAuth2Error(str(fault), error="invalid_request") from None
        except flow_request.RequestFault as fault:
            if fault.error == "invalid_scope":
                request.details["dropped"] = values.get("scope")
            raise OAuth2Error(fault.description, error=fault.error) from None


def hinted_subject(id_token_hint: str | None, client: Client) -> str | None:
    """The user that a hint names; an expired hint counts. Raises `RequestFault`."""
    if id_token_hint is None:
        return None
    claims = context.key_ring().verify(id_token_hint, typ="JWT")
    if claims is None or claims.get("iss") != context.settings().issuer:
        raise flow_request.RequestFault(
            "invalid_request",
            "The 'id_token_hint' is no identity token of this server, or too old to be verified.",
        )
    if claims.get("aud") != client.client_id:
        raise flow_request.RequestFault(
            "invalid_request", "The 'id_token_hint' was issued to another client."
        )
    return str(claims.get("sub"))
