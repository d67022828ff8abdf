"""Access logs: the requests in them, one line at a time.

Read are the common and combined log format, as Apache, nginx, Traefik and Keycloak write it, and
JSON lines of Caddy, Traefik, nginx, Quarkus and container runtimes. A log is written by strangers:
lines are bounded, and nothing in one is believed to be well formed.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import unquote

MAX_LINE = 64 * 1024  # bytes
# Begins at no escaped quote: the time would grow with the square of a line of these.
_QUOTED = re.compile(r'(?<!\\)"((?:[^"\\]|\\.)*)" (\d{3})(?!\d)')
_REQUEST = re.compile(r"([A-Z]{3,20}) (\S+)(?: HTTP/[0-9.]+)?\Z")
_METHOD = re.compile(r"[A-Z]{3,20}\Z")
_ABSOLUTE = re.compile(r"https?://[^/?#]*")
# Of programs that log a line of text as one member of a JSON object.
_TEXTS = ("message", "log", "msg", "request")
_METHODS = ("RequestMethod", "request_method", "method")
_TARGETS = ("RequestPath", "request_uri", "uri", "path", "url")
_QUERIES = ("args", "query_string", "query")
_STATUSES = ("DownstreamStatus", "OriginStatus", "status", "status_code", "response_code")


class LoggedRequest(NamedTuple):
    """A request of a log. `path` is decoded, `query` is not. `status`: 0 if it is unknown."""

    method: str
    path: str
    query: str
    status: int


class Line(NamedTuple):
    """A line of a log by its number; `request` is `None` if there is none, or it `is_too_long`."""

    number: int
    request: LoggedRequest | None
    is_too_long: bool = False


def lines(file: BinaryIO) -> Iterator[Line]:
    """Yield the lines of a log that are not empty. Of a long one, no more is read than of others at
    a time.
    """
    number = 0
    while line := file.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE:
            while line and not line.endswith(b"\n"):
                line = file.readline(MAX_LINE)
            yield Line(number, None, is_too_long=True)
        elif line.strip():
            yield Line(number, parsed(line.decode("utf-8", "backslashreplace")))


def parsed(line: str) -> LoggedRequest | None:
    """Return the request of a line, or `None`."""
    line = line.strip()
    return _of_object(line) if line.startswith("{") else _of_text(line)


def _of_text(line: str) -> LoggedRequest | None:
    """Return the request of a line in the common log format: quoted, with the status behind it."""
    for match in _QUOTED.finditer(line):
        if request := _REQUEST.match(match[1]):
            return _request(request[1], request[2], int(match[2]))
    return None


def _of_object(line: str) -> LoggedRequest | None:
    try:
        members = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(members, dict):
        return None
    status = _status(members)
    inner = members.get("request")
    if isinstance(inner, dict):  # Caddy
        return _of_members(inner, status)
    if request := _of_members(members, status):
        return request
    for name in _TEXTS:
        text = members.get(name)
        if isinstance(text, str) and len(text) <= MAX_LINE:
            if request := _of_text(text):
                return request
            if match := _REQUEST.match(text.strip()):
                return _request(match[1], match[2], status)
    return None


def _of_members(members: Mapping[str, Any], status: int) -> LoggedRequest | None:
    method, target = _first(members, _METHODS), _first(members, _TARGETS)
    if not (_METHOD.match(method) and target.startswith(("/", "http"))):
        return None
    if "?" not in target and (query := _first(members, _QUERIES).removeprefix("?")):
        target = f"{target}?{query}"
    return _request(method, target, status)


def _first(members: Mapping[str, Any], names: tuple[str, ...]) -> str:
    """Return the first of these members that is a text."""
    return next((members[name] for name in names if isinstance(members.get(name), str)), "")


def _status(members: Mapping[str, Any]) -> int:
    for name in _STATUSES:
        text = str(members.get(name, ""))
        if len(text) == 3 and text.isascii() and text.isdigit():
            return int(text)
    return 0


def _request(method: str, target: str, status: int) -> LoggedRequest:
    target = _ABSOLUTE.sub("", target, count=1) if target.startswith("http") else target
    path, _, query = target.partition("#")[0].partition("?")
    return LoggedRequest(method, unquote(path, errors="replace") or "/", query, status)
