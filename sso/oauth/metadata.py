"""The metadata document (RFC 8414 §2, OIDC Discovery §3), computed from what is really there."""

from collections.abc import Iterable, Mapping
from typing import Any

from sso.config.client_fields import GRANT_TYPES
from sso.config.issuers import Alias
from sso.config.settings import Settings
from sso.config.urls import ENDPOINTS, REGISTRATION
from sso.crypto import client_jwt, dpop, keys
from sso.flow import request, role_claims, scopes
from sso.i18n.languages import LANGUAGES
from sso.oauth import client_authentication
from sso.oauth.id_jag import ID_JAG, ID_JAG_PROFILE


def document(
    settings: Settings, own: Iterable[str] = (), alias: Alias | None = None
) -> dict[str, Any]:
    """Return the metadata document of this server; `own`: claims of applications' own.

    `alias`: that of this issuer of an earlier server, with the endpoints that the server had.
    """
    if alias:
        whole = _members(settings, own, alias.issuer, alias.endpoints)
        lacking = tuple(f"{name}_endpoint" for name in ENDPOINTS if name not in alias.endpoints)
        return {name: value for name, value in whole.items() if not name.startswith(lacking)}
    endpoints = {name: settings.base_url + path for name, path in ENDPOINTS.items()}
    return _members(settings, own, settings.issuer, endpoints) | _of_agents(settings)


def _members(
    settings: Settings, own: Iterable[str], issuer: str, endpoints: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "issuer": issuer,
        **{f"{name}_endpoint": url for name, url in endpoints.items() if name != "jwks"},
        "jwks_uri": endpoints["jwks"],
        "backchannel_logout_supported": True,
        "backchannel_logout_session_supported": True,
        "scopes_supported": list(scopes.SCOPES),
        "response_types_supported": ["code"],
        "response_modes_supported": [*request.RESPONSE_MODES, *request.SIGNED_RESPONSE_MODES],
        "authorization_signing_alg_values_supported": list(keys.ALGORITHMS),
        "grant_types_supported": list(GRANT_TYPES),
        # Of clients that are registered for them (ID-JAG §7).
        "authorization_grant_profiles_supported": [ID_JAG_PROFILE],
        "identity_chaining_requested_token_types_supported": [ID_JAG],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": list(keys.ALGORITHMS),
        "token_endpoint_auth_methods_supported": client_authentication.METHODS,
        "revocation_endpoint_auth_methods_supported": client_authentication.METHODS,
        "introspection_endpoint_auth_methods_supported": client_authentication.CONFIDENTIAL_METHODS,
        **{
            f"{name}_endpoint_auth_signing_alg_values_supported": list(client_jwt.ALGORITHMS)
            for name in ("token", "revocation", "introspection")
        },
        "code_challenge_methods_supported": ["S256"],
        "require_pushed_authorization_requests": False,  # a client can be registered for it
        "dpop_signing_alg_values_supported": list(dpop.ALGORITHMS),
        "authorization_response_iss_parameter_supported": True,
        "acr_values_supported": list(request.ACR_VALUES),
        "prompt_values_supported": sorted(request.PROMPTS),
        "ui_locales_supported": list(LANGUAGES),
        "claim_types_supported": ["normal"],
        "claims_supported": [*scopes.ALL_CLAIMS, role_claims.CLAIM, *_PROTOCOL_CLAIMS, *own],
        "claims_parameter_supported": True,
        "request_parameter_supported": True,  # of clients that are registered for it
        "request_object_signing_alg_values_supported": list(client_jwt.ALGORITHMS),
        "require_signed_request_object": False,
        "request_uri_parameter_supported": False,
    }


def _of_agents(settings: Settings) -> dict[str, Any]:
    """Return what clients that nobody registered look for."""
    document: dict[str, Any] = {}
    if settings.client_documents != "off":
        document["client_id_metadata_document_supported"] = True
    if settings.is_registration_open:
        document["registration_endpoint"] = settings.base_url + REGISTRATION
    return document


_PROTOCOL_CLAIMS = (
    "iss", "aud", "exp", "iat", "auth_time", "nonce", "at_hash", "sid", "amr", "acr",
)  # fmt: skip
