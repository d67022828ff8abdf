"""The strict reader that stands before Authlib at every protocol endpoint.

Authlib reads `request.values`, takes the first of repeated parameters and lets any byte through.
This reader knows where a parameter came from, that it came once, and that it is clean text.
"""

import re
from collections.abc import Iterable
from urllib.parse import parse_qsl

from flask import Request

MAX_FIELDS = 100
MAX_LENGTH = 4096
_UNCLEAN = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
FORM = "application/x-www-form-urlencoded"


class ParameterFault(ValueError):
    """A parameter is repeated or unreadable; `str()` is the description, free of what was sent.

    `name` is the parameter at fault, or `None` when the whole text can't be read.
    """

    def __init__(self, description: str, name: str | None = None) -> None:
        super().__init__(description)
        self.name = name


Pairs = list[tuple[str, str]]


def read_pairs(raw: bytes) -> Pairs:
    """Split form-encoded text; bytes that aren't UTF-8 survive as surrogates."""
    if not raw:
        return []
    try:
        return parse_qsl(
            raw.decode("utf-8", "surrogateescape"),
            keep_blank_values=True,
            errors="surrogateescape",
            max_num_fields=MAX_FIELDS,
        )
    except ValueError:
        raise ParameterFault(f"There are more than {MAX_FIELDS} parameters.") from None


def query_pairs(request: Request) -> Pairs:
    """The query's parameters."""
    return read_pairs(request.query_string)


def form_pairs(request: Request) -> Pairs:
    """The body's parameters. Raises `ParameterFault` unless the body is form-encoded."""
    if request.mimetype != FORM:
        raise ParameterFault(f"The request's body is not {FORM}.")
    return read_pairs(request.get_data(cache=True))


def single(pairs: Pairs, once: Iterable[str], repeatable: Iterable[str] = ()) -> dict[str, str]:
    """Parameters by name; empty ones count as left out (RFC 6749 §3.1).

    The values of one in `repeatable` get spaces between them. Raises `ParameterFault` when one of
    those in `once` is repeated that is not in `repeatable`.
    """
    values: dict[str, str] = {}
    may_repeat = frozenset(repeatable)
    may_not_repeat = frozenset(once) - may_repeat
    seen: set[str] = set()
    for name, value in pairs:
        if name in seen and name in may_not_repeat:
            raise ParameterFault(f"The parameter '{name}' is repeated.", name)
        seen.add(name)
        if value and name in may_repeat and name in values:
            values[name] += f" {value}"
        elif value:
            values.setdefault(name, value)
    return values


def is_text(value: str) -> bool:
    """Whether it can be written in UTF-8, as what JSON escapes need not be."""
    return not any("\ud800" <= character <= "\udfff" for character in value)


def fault_of(name: str, value: str) -> str | None:
    """Why a value is no clean text of sensible length, or `None`."""
    if len(value) > MAX_LENGTH:
        return f"The parameter '{name}' is longer than {MAX_LENGTH} characters."
    if _UNCLEAN.search(value):
        return f"The parameter '{name}' has control characters or is not UTF-8."
    return None


def check_clean(values: dict[str, str], names: Iterable[str]) -> None:
    """Raise `ParameterFault` for the first of these parameters that is not clean text."""
    for name in names:
        if name in values and (fault := fault_of(name, values[name])):
            raise ParameterFault(fault, name)
