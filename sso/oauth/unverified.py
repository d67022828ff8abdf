"""What a JWT claims, unverified: only for looking something up, or for what harms nobody."""

import json
from base64 import urlsafe_b64decode
from typing import Any

from sso.flow.request import RESPONSE_MODES


def claims_of(token: str) -> dict[str, Any] | None:
    """The payload of a JWT in three parts, or `None`. Nothing is verified."""
    try:
        _, payload, _ = token.split(".")
        claims = json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)).decode())
    except (ValueError, RecursionError):
        return None
    return claims if isinstance(claims, dict) else None


def response_mode_of(request_object: str) -> str | None:
    """The way that a request object wants to be answered (OIDC Core §6.1), if it is a known one."""
    mode = (claims_of(request_object) or {}).get("response_mode")
    return mode if isinstance(mode, str) and mode in RESPONSE_MODES else None
