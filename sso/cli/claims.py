"""The claims that an operator may set with `--claim NAME=VALUE`: parse and check."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from sso.flow.scopes import OPERATOR_CLAIMS

ADDRESS, PHONE_VERIFIED = "address", "phone_number_verified"
MAX_LENGTH = 2000


def parse(texts: Iterable[str]) -> tuple[dict[str, Any], list[str]]:
    """Claims by name, `None` where the value is empty; and what is wrong with the texts."""
    found: dict[str, Any] = {}
    faults = []
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator:
            faults.append(f"the claim {text!r} is not NAME=VALUE")
        elif name in found:
            faults.append(f"the claim {name!r} is given twice")
        else:
            found[name] = _typed(name, value) if value else None
    return found, faults


def faults_of(claims: Mapping[str, Any]) -> list[str]:
    """What is wrong with claims, a line each; `None` stands for one that is taken away."""
    return [fault for name, value in claims.items() if (fault := _fault(name, value))]


def _typed(name: str, value: str) -> Any:
    if name == ADDRESS:
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value  # text is no JSON object: faults_of says so
    if name == PHONE_VERIFIED:
        return {"true": True, "false": False}.get(value, value)
    return value


def _fault(name: str, value: Any) -> str | None:
    if name not in OPERATOR_CLAIMS:
        known = ", ".join(sorted(OPERATOR_CLAIMS))
        return f"the claim {name!r} is not one that can be set; known: {known}"
    if value is None:
        return None
    if name == ADDRESS:
        if isinstance(value, dict) and value and all(_is_text(part) for part in value.values()):
            return None
        return (
            "the claim 'address' is no JSON object of texts (OIDC Core §5.1.1), such as "
            '{"locality": "Delft"}'
        )
    if name == PHONE_VERIFIED:
        return None if isinstance(value, bool) else f"the claim {name!r} is neither true nor false"
    if not _is_text(value):
        return f"the claim {name!r} is no clean text of at most {MAX_LENGTH} characters"
    return None


def _is_text(value: Any) -> bool:
    """Text that a database and a token can hold; an address has lines (OIDC Core §5.1.1)."""
    return (
        isinstance(value, str)
        and 0 < len(value) <= MAX_LENGTH
        and not any((c < " " and c not in "\r\n") or "\ud800" <= c <= "\udfff" for c in value)
    )
