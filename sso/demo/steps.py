"""Turns what was sent and received into the numbered steps of the page."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from joserfc.errors import JoseError
from joserfc.jws import extract_compact

from .recording import Exchange

_SECRET = frozenset({"client_secret"})
_LONG = frozenset({"access_token", "refresh_token", "id_token", "code", "state"})
_TIMES = frozenset({"exp", "iat", "nbf", "auth_time", "updated_at"})
_LONGEST_TEXT = 2000

Rows = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Part:
    """One half of a step: a heading, then an address, a table or a text, as there are."""

    heading: str
    line: str = ""
    rows: Rows = ()
    text: str = ""


@dataclass(frozen=True)
class Step:
    """One step of the flow, with what a reader should notice in it."""

    title: str
    note: str
    parts: tuple[Part, ...]


def shorten(value: str) -> str:
    """The two ends of a long value: enough to recognise it, too little to use it."""
    return f"{value[:10]}…{value[-4:]} ({len(value)} characters)" if len(value) > 24 else value


def _cell(name: str, value: str) -> str:
    if name in _SECRET:
        return "•••••••• (hidden)"
    return shorten(value) if name in _LONG else value


def fields(pairs: Iterable[tuple[str, str]]) -> Rows:
    """Table rows of parameters: secrets hidden, tokens and codes shortened."""
    return tuple((name, _cell(name, value)) for name, value in pairs)


def authorization_request(address: str) -> Part:
    """The address that the browser was sent to, and its parameters."""
    parts = urlsplit(address)
    where = f"GET {parts.scheme}://{parts.netloc}{parts.path}"
    # Nothing is shortened here: it all went through the address bar.
    return Part("Request, through the browser", where, tuple(parse_qsl(parts.query)))


def exchange_parts(exchange: Exchange) -> tuple[Part, ...]:
    """A recorded request and its recorded answer."""
    header: Rows = ()
    if exchange.authorization:
        scheme, _, credentials = exchange.authorization.partition(" ")
        shown = shorten(credentials) if scheme.lower() == "bearer" else "•••••••• (hidden)"
        header = (("Authorization", f"{scheme} {shown}"),)
    return (
        Part("Request", f"{exchange.method} {exchange.url}", header + fields(exchange.form)),
        Part("Answer", exchange.status, text=_answer_text(exchange.body)),
    )


def _answer_text(body: str) -> str:
    try:
        answer = json.loads(body)
    except ValueError:
        return body[:_LONGEST_TEXT]
    if isinstance(answer, dict):
        answer = {
            name: _cell(name, value) if isinstance(value, str) else value
            for name, value in answer.items()
        }
    return json.dumps(answer, indent=2, ensure_ascii=False)


def access_token_claims(token: str) -> Part:
    """What an access token says, decoded for the reader only: it is for the API to verify."""
    try:
        opened = extract_compact(token.encode())
        claims = json.loads(opened.payload)
    except (JoseError, ValueError):
        return Part("Access token", shorten(token), text="Not a JSON Web Token: nothing to decode.")
    return Part("Access token, decoded only to show it", _header(opened.headers()), _claims(claims))


def identity_token_claims(token: str, validated: Mapping[str, Any]) -> Part:
    """The claims that Authlib has validated, with the header of the token they came in."""
    header = extract_compact(token.encode()).headers()
    return Part("Identity token, validated by Authlib", _header(header), _claims(validated))


def _header(header: Mapping[str, Any]) -> str:
    return "Header " + json.dumps(dict(header), ensure_ascii=False)


def _claims(claims: Mapping[str, Any]) -> Rows:
    return tuple((name, _claim(name, value)) for name, value in claims.items())


def _claim(name: str, value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if name in _TIMES and isinstance(value, (int, float)):
        try:
            return f"{text} ({datetime.fromtimestamp(value, UTC):%Y-%m-%d %H:%M:%S} UTC)"
        except (OverflowError, ValueError, OSError):
            return text
    return text
