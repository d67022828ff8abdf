"""How clients authenticate (RFC 7591 §2), and the profiles that they are registered for."""

ANY_AUTH_METHOD = "any"
NO_AUTH_METHOD = "none"  # of public clients
PRIVATE_KEY_JWT = "private_key_jwt"  # OIDC Core §9
AUTH_METHODS = (ANY_AUTH_METHOD, "client_secret_post", "client_secret_basic", PRIVATE_KEY_JWT)
FAPI2 = "fapi2"  # FAPI 2.0 Security Profile


def has_secret(method: str) -> bool:
    """Return whether clients authenticate with a secret by this method."""
    return method not in (NO_AUTH_METHOD, PRIVATE_KEY_JWT)
