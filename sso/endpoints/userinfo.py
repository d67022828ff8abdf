"""Userinfo (OIDC Core §5.3, RFC 6750)."""

import json

from authlib.consts import default_json_headers
from authlib.integrations.flask_oauth2 import current_token
from flask import Response

from sso.flow import scopes, token_claims
from sso.oauth.bearer import require_oauth
from sso.services import transaction


@require_oauth(list(scopes.USERINFO_SCOPES))
def userinfo() -> Response:
    """Userinfo: the claims that the token's scope and the `claims` parameter allow."""
    token = current_token
    if token.dpop_jkt:
        transaction.committed(require_oauth.use_proof)
    claims = token.grant.claims
    profile = token_claims.of_userinfo(token.user, token.client, token.scope, claims)
    return Response(json.dumps(profile), headers=default_json_headers)
