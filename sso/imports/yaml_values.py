"""Values of YAML files, whose scalars are all texts."""

from typing import Any

from sso.imports.person import text

_NULL = ("", "~", "null", "Null", "NULL")
_TRUE = ("true", "yes", "on", "y", "1")


def word(value: Any) -> str:
    """Return a text; "" for null, and for what is no text."""
    plain = text(value)
    return "" if plain in _NULL else plain


def is_on(value: Any) -> bool:
    """Return whether a switch is on."""
    return text(value).lower() in _TRUE


def listed(value: Any) -> list[Any]:
    """Return a list; one value stands for a list of it."""
    if isinstance(value, list):
        return value
    return [value] if word(value) else []
