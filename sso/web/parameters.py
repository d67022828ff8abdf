"""A strict reader of parameters, used before Authlib at every protocol endpoint.

Authlib reads `request.values`, takes the first of repeated parameters and accepts any byte. This
reader separates query and body, and refuses repeated parameters and unclean text.
"""

import re
from collections.abc import Collection
from urllib.parse import parse_qsl

from flask import Request

MAX_FIELDS = 100
MAX_LENGTH = 4096
_UNCLEAN = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
FORM = "application/x-www-form-urlencoded"


class ParameterFault(ValueError):
    """A parameter is repeated or invalid; `str()` is a description without the value.

    `name` is the parameter at fault, or `None` if the whole text cannot be read.
    """

    def __init__(self, description: str, name: str | None = None) -> None:
        super().__init__(description)
        self.name = name


Pairs = list[tuple[str, str]]


def read_pairs(raw: bytes) -> Pairs:
    """Parse form-encoded text; bytes that are not UTF-8 become surrogates."""
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
    """Return the parameters of the query."""
    return read_pairs(request.query_string)


def form_pairs(request: Request) -> Pairs:
    """Return the parameters of the body. Raises `ParameterFault` if it is not form-encoded."""
    if request.mimetype != FORM:
        raise ParameterFault(f"The request's body is not {FORM}.")
    return read_pairs(request.get_data(cache=True))


def single(pairs: Pairs, once: Collection[str], repeatable: Collection[str] = ()) -> dict[str, str]:
    """Return the parameters by name, without empty ones (RFC 6749 §3.1).

    The values of a parameter in `repeatable` get spaces between them. Raises `ParameterFault` if
    another parameter in `once` is repeated.
    """
    values: dict[str, str] = {}
    names: set[str] = set()
    for name, value in pairs:
        if name in names and name in once and name not in repeatable:
            raise ParameterFault(f"The parameter '{name}' is repeated.", name)
        names.add(name)
        if value and name in values and name in repeatable:
            values[name] += f" {value}"
        elif value:
            values.setdefault(name, value)
    return values


def is_text(value: str) -> bool:
    """Return whether a value can be encoded in UTF-8; JSON escapes allow others."""
    return not any("\ud800" <= character <= "\udfff" for character in value)


def fault_of(name: str, value: str) -> str | None:
    """Return an error unless a value is clean text of limited length."""
    if len(value) > MAX_LENGTH:
        return f"The parameter '{name}' is longer than {MAX_LENGTH} characters."
    if _UNCLEAN.search(value):
        return f"The parameter '{name}' has control characters or is not UTF-8."
    return None


def check_clean(
    values: dict[str, str], names: Collection[str], exempt: Collection[str] = ()
) -> None:
    """Raise `ParameterFault` for the first of these parameters that is not clean text."""
    for name, value in values.items():
        if name in names and name not in exempt and (fault := fault_of(name, value)):
            raise ParameterFault(fault, name)
