"""What an assertion of SAML says about a user: the NameID and the attributes."""

import json
from collections.abc import Sequence
from typing import Any

from sso.flow import own_claims, scopes

# XML has no control characters but tab and line ends. The last two are no characters; they leave a
# mark, so that no value becomes like another person's.
_NOT_IN_XML = {code: None for code in range(32) if chr(code) not in "\t\n\r"} | {
    0xFFFE: "\ufffd",
    0xFFFF: "\ufffd",
}
PERSISTENT = "persistent"  # a random NameID; the others are claims


def name_of(user: scopes.Profile, name_id: str, scope: str) -> str | None:
    """Return the value of a NameID that is a claim. An unverified email address names nobody."""
    names = scopes.claims_of(scopes.split(scope))
    if name_id not in names or (name_id == "email" and not user.email_verified):
        return None
    value = scopes.values(user, [name_id]).get(name_id)
    if not isinstance(value, str) or value.translate(_NOT_IN_XML) != value:
        return None
    return value if value.strip() else None


def claims_of(user: scopes.Profile, scope: str, own: Sequence[str] = ()) -> dict[str, Any]:
    """Return the claims that attributes can have; `own`: those of the application's own."""
    of_application = own_claims.of(own, user, own_claims.ASSERTION)
    return own_claims.joined(of_application, scopes.profile(user, scope, is_standard=True))


def attributes_of(
    user: scopes.Profile, pairs: Sequence[tuple[str, str]], scope: str, own: Sequence[str] = ()
) -> dict[str, list[str]]:
    """Return the attributes: of each of the `pairs` the name and the claim; without any, all
    claims that the scope allows, and the application's own.
    """
    claims = claims_of(user, scope, own)
    attributes: dict[str, list[str]] = {}
    for name, claim in pairs or [(name, name) for name in claims]:
        if claim in claims:
            attributes.setdefault(name, []).extend(_texts(claims[claim]))
    return attributes


def _texts(value: Any) -> list[str]:
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    if isinstance(value, bool):
        return ["true" if value else "false"]
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value)
    return [text.translate(_NOT_IN_XML)]
