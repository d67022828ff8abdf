"""A strict reader of parameters, used before Authlib at every protocol endpoint.

Authlib reads `request.values`, takes the first of repeated parameters and accepts any byte. This
reader separates query and body, and refuses repeated parameters and unclean text.
"""

import re
from collections.abc import Collection
from urllib.parse import unquote_plus

from flask import Request

from sso.process import concurrency

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
    """Parse form-encoded text; bytes that are not UTF-8 become surrogates.

    The result is that of `urllib.parse.parse_qsl`, which decodes what is not encoded, too: that
    would cost 4 % of a device's poll.
    """
    if not raw:
        return []
    fields = raw.decode("utf-8", "surrogateescape").split("&")
    if len(fields) > MAX_FIELDS:
        raise ParameterFault(f"There are more than {MAX_FIELDS} parameters.")
    pairs = []
    for field in fields:
        if field:
            name, _, value = field.partition("=")
            pairs.append((_decoded(name), _decoded(value)))
    return pairs


def _decoded(text: str) -> str:
    if "%" in text or "+" in text:
        return unquote_plus(text, errors="surrogateescape")
    return text


def query_pairs(request: Request) -> Pairs:
    """Return the parameters of the query."""
    return read_pairs(request.query_string)


def form_pairs(request: Request) -> Pairs:
    """Return the parameters of the body. Raises `ParameterFault` if it is not form-encoded."""
    if request.environ.get("CONTENT_TYPE") != FORM and request.mimetype != FORM:
        raise ParameterFault(f"The request's body is not {FORM}.")
    # Werkzeug wraps each body in a stream with a limit: 4 % of a device's poll.
    body = request.environ.get(concurrency.BODY)
    return read_pairs(request.get_data() if body is None else body)


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
        elif value and name not in values:
            values[name] = value
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
        if len(value) <= MAX_LENGTH and not _UNCLEAN.search(value):
            continue
        if name in names and name not in exempt:
            raise ParameterFault(fault_of(name, value) or "", name)
