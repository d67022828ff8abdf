"""Whether the email address that a provider gives is the person's own."""

from collections.abc import Mapping
from typing import Any

from sso.config.upstream.oidc import GoogleProvider, MicrosoftProvider, OidcProvider


def is_verified(provider: OidcProvider, email: str, claims: Mapping[str, Any]) -> bool:
    """Whether the provider says that the address is the person's own, now."""
    if isinstance(provider, MicrosoftProvider):
        # An administrator of any tenant sets `email` as they like; this says that they own the
        # domain. It is an optional claim.
        return claims.get("xms_edov") in (True, 1, "1", "true", "True")
    if claims.get("email_verified") not in (True, "true"):
        return False
    if isinstance(provider, GoogleProvider):
        # Other addresses were verified once, when the account was made.
        return email.lower().endswith("@gmail.com") or bool(claims.get("hd"))
    return True
