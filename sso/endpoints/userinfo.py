"""Userinfo (OIDC Core §5.3, RFC 6750)."""

import json

from authlib.consts import default_json_headers
from authlib.integrations.flask_oauth2 import current_token
from flask import Response

from sso.flow import scopes
from sso.oauth.bearer import require_oauth


@require_oauth(list(scopes.USERINFO_SCOPES))
def userinfo() -> Response:
    """Userinfo: the claims that the token's scope and the `claims` parameter allow."""
    requested = current_token.grant.claims.get("userinfo", [])
    profile = scopes.profile(current_token.user, current_token.scope, requested)
    return Response(json.dumps(profile), headers=default_json_headers)
