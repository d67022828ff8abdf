"""Userinfo (OIDC Core §5.3)."""

from authlib.consts import default_json_headers
from authlib.oauth2.rfc6749 import OAuth2Request
from authlib.oidc.core import UserInfoEndpoint as AuthlibUserInfoEndpoint

from sso.flow import scopes
from sso.store.tokens import AccessToken

Answer = tuple[int, dict[str, object], list[tuple[str, str]]]


class UserInfoEndpoint(AuthlibUserInfoEndpoint):
    """The profile that the token's scope and the `claims` parameter allow."""

    def __call__(self, request: OAuth2Request) -> Answer:
        # Authlib demands `openid`; we take any of three, and claims beside scope.
        token: AccessToken = self.resource_protector.validate_request(
            list(scopes.USERINFO_SCOPES), request
        )
        requested = token.requested_claims.get("userinfo", [])
        profile = scopes.profile(token.user, token.scope, requested)
        return 200, profile, default_json_headers
