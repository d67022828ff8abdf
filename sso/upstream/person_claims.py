"""What the claims about a person mean, where they leave something open."""

from collections.abc import Mapping
from typing import Any

from sso.config.upstream.oidc import GoogleProvider, MicrosoftProvider, OidcProvider

MAX_GROUPS = 1000


def groups(provider: OidcProvider, claims: Mapping[str, Any]) -> frozenset[str] | None:
    """The groups; without the claim none, as many providers leave it out for people in none.

    `None` if it is elsewhere (OIDC Core §5.6.2), as Microsoft has it for people in very many.
    """
    found, elsewhere = claims.get(provider.groups_claim), claims.get("_claim_names")
    if found is None and isinstance(elsewhere, dict) and provider.groups_claim in elsewhere:
        return None
    listed = found if isinstance(found, list) else [found]
    return frozenset(one for one in listed[:MAX_GROUPS] if isinstance(one, str))


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
