"""Identity tokens (OIDC Core §2, §3.1.3.6, §12.2)."""

from typing import Any

from authlib.oidc.core import OpenIDCode
from joserfc.jwk import Key

from sso import clock, context
from sso.crypto import keys
from sso.flow import scopes
from sso.models import Client
from sso.oauth.authorization_code import RedeemedCode
from sso.oauth.request import ProtocolRequest
from sso.store.live_grants import LiveGrant
from sso.store.users import UserProfile


class IdentityToken(OpenIDCode):
    """An extension of both grants; the claims come from the approval, not from Authlib's defaults
    (which take the time of the refresh for `auth_time` and any registered algorithm for good).
    """

    def __call__(self, grant: Any) -> None:
        # Only this hook: `prompt` and `nonce` are judged by flow/decision.py and not at all
        # (OIDC Core §15.5.2 leaves replay to the client).
        grant.register_hook("after_create_token_response", self.process_token)

    def get_client_algorithm(self, client: Client) -> str:
        alg = client.id_token_signed_response_alg or "RS256"
        if alg not in keys.ALGORITHMS:
            raise RuntimeError(f"client {client.client_id} is registered for the algorithm {alg}")
        return str(alg)

    def resolve_client_private_key(self, client: Client) -> Key:
        return context.key_ring().active(self.get_client_algorithm(client))

    def get_encode_header(self, client: Client) -> dict[str, Any]:
        key = self.resolve_client_private_key(client)
        return {"alg": self.get_client_algorithm(client), "kid": key.kid, "typ": "JWT"}

    def get_compatible_claims(self, request: ProtocolRequest) -> dict[str, Any]:
        """Everything but `nonce` and `at_hash`."""
        grant = request.approval
        if grant is None:
            raise RuntimeError("an identity token is asked for without an approval")
        now = clock.timestamp(clock.now())
        claims = {
            **self._profile(grant, request.client),
            "iss": context.settings().issuer,
            "sub": str(grant.user_id),
            "aud": grant.client_id,
            "iat": now,
            "exp": now + keys.ID_TOKEN_LIFETIME,
            "auth_time": clock.timestamp(grant.auth_time),
            "sid": grant.sid,
            "amr": grant.amr.split(),
        }
        if grant.acr:
            claims["acr"] = grant.acr
        return claims

    def get_authorization_code_claims(self, authorization_code: RedeemedCode) -> dict[str, Any]:
        """The `nonce`; a refresh has no code and so no nonce (§12.2)."""
        nonce = authorization_code.get_nonce()
        return {"nonce": nonce} if nonce else {}

    def generate_user_info(self, user: UserProfile, scope: str) -> dict[str, Any]:
        """Nothing: what the identity token says of the user depends on the approval."""
        return {}

    def _profile(self, grant: LiveGrant, client: Client) -> dict[str, Any]:
        requested = grant.claims.get("id_token", [])
        if client.id_token_has_all_claims:
            return scopes.profile(grant.user, grant.scope, requested)
        return scopes.values(grant.user, requested)
