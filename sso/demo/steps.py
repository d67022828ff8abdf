"""The numbered steps on the page, made from the recorded HTTP exchanges."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from flask import g
from joserfc.errors import JoseError
from joserfc.jws import extract_compact
from requests import PreparedRequest, Response

_SECRET = frozenset({"client_secret"})
_HIDDEN = "•••••••• (hidden)"
_LONG = frozenset({"access_token", "refresh_token", "id_token", "code", "state"})
_TIMES = frozenset({"exp", "iat", "nbf", "auth_time", "updated_at"})
_LONGEST_TEXT = 2000

Rows = tuple[tuple[str, str], ...]
Values = Mapping[str, Any]


@dataclass(frozen=True)
class Part:
    """A part of a step: a heading with a line, a table or a text."""

    heading: str
    line: str = ""
    rows: Rows = ()
    text: str = ""


@dataclass(frozen=True)
class Step:
    """One step of the flow, with a note about what matters in it."""

    title: str
    note: str
    parts: tuple[Part, ...]


def record(response: Response, *_args: Any, **_kwargs: Any) -> None:
    """Keep an exchange for the page, as the `response` hook of a `requests` session."""
    g.setdefault("exchanges", []).append(response)


def of_sign_in(
    url: str,
    answer: Iterable[tuple[str, str]],
    token: Values,
    identity: Values,
    metadata: Values,
) -> tuple[Step, ...]:
    """Return the five steps of the authorization code flow."""
    return (
        Step(
            "The authorization request",
            "The browser was sent to the server, with the hash of a secret that only this "
            "application knows (PKCE) and two random values to recognise the answer by.",
            (_authorization_request(url),),
        ),
        Step(
            "The answer at the callback",
            "The server sent the browser back with a code. The state is the one that was sent, "
            "and iss names the server that was asked.",
            (Part("Answer, through the browser", rows=_fields(answer)),),
        ),
        Step(
            "The token request",
            "The application traded the code for tokens, without the browser. The code_verifier "
            "is the secret whose hash was in step 1.",
            _exchanges_with(metadata["token_endpoint"]),
        ),
        Step(
            "What the tokens say",
            "The identity token is for this application: its signature, issuer, audience, expiry "
            "and nonce were checked. The access token is for the API that is called with it.",
            _claims_of(token, identity),
        ),
        Step(
            "The profile",
            "The application asked who signed in, with the access token.",
            _exchanges_with(metadata["userinfo_endpoint"]),
        ),
    )


def of_refresh(token: Values, identity: Values | None, metadata: Values) -> tuple[Step, ...]:
    """Return the two steps of a refresh."""
    return (
        Step(
            "The refresh request",
            "The application traded its refresh token for new tokens, and nobody had to sign in.",
            _exchanges_with(metadata["token_endpoint"]),
        ),
        Step(
            "What the new tokens say",
            "The same person, with a later expiry.",
            _claims_of(token, identity),
        ),
    )


def of_failure() -> tuple[Part, ...]:
    """Return the last exchange before a failure, other than for metadata and keys."""
    return _exchanges(lambda sent: sent.method == "POST" or "Authorization" in sent.headers)[-2:]


def _fields(pairs: Iterable[tuple[str, str]]) -> Rows:
    return tuple((name, _cell(name, value)) for name, value in pairs)


def _cell(name: str, value: str) -> str:
    if name in _SECRET:
        return _HIDDEN
    return _shorten(value) if name in _LONG else value


def _shorten(value: str) -> str:
    """Return the two ends of a long value: enough to recognise it, too little to use it."""
    return f"{value[:10]}…{value[-4:]} ({len(value)} characters)" if len(value) > 24 else value


def _authorization_request(url: str) -> Part:
    parts = urlsplit(url)
    where = f"GET {parts.scheme}://{parts.netloc}{parts.path}"
    # Nothing is shortened here: it all went through the address bar.
    return Part("Request, through the browser", where, tuple(parse_qsl(parts.query)))


def _exchanges_with(url: str) -> tuple[Part, ...]:
    """Return the requests to one URL while this page was made, each with its answer."""
    return _exchanges(lambda sent: (sent.url or "").split("?")[0] == url)


def _exchanges(condition: Callable[[PreparedRequest], bool]) -> tuple[Part, ...]:
    responses: list[Response] = g.get("exchanges", [])
    return tuple(
        part
        for response in responses
        if condition(response.request)
        for part in _exchange(response)
    )


def _exchange(response: Response) -> tuple[Part, Part]:
    sent = response.request
    header: Rows = ()
    if authorization := str(sent.headers.get("Authorization", "")):
        scheme, _, credentials = authorization.partition(" ")
        text = _shorten(credentials) if scheme.lower() == "bearer" else _HIDDEN
        header = (("Authorization", f"{scheme} {text}"),)
    body = sent.body.decode() if isinstance(sent.body, bytes) else sent.body
    form = parse_qsl(body, keep_blank_values=True) if isinstance(body, str) else ()
    status = f"{response.status_code} {response.reason}"
    return (
        Part("Request", f"{sent.method} {sent.url}", header + _fields(form)),
        Part("Answer", status, text=_answer_text(response.text)),
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


def _claims_of(token: Values, identity: Values | None) -> tuple[Part, ...]:
    """Return what the tokens say. Only the API verifies the access token."""
    access = token["access_token"]
    try:
        opened = extract_compact(access.encode())
        rows = _rows(json.loads(opened.payload))
        first = Part("Access token, decoded only to show it", _header(opened.headers()), rows)
    except (JoseError, ValueError):
        text = "Not a JSON Web Token: nothing to decode."
        first = Part("Access token", _shorten(access), text=text)
    if not identity:
        return (first,)
    header = _header(extract_compact(token["id_token"].encode()).headers())
    return first, Part("Identity token, validated by Authlib", header, _rows(identity))


def _header(header: Values) -> str:
    return "Header " + json.dumps(dict(header), ensure_ascii=False)


def _rows(claims: Values) -> Rows:
    return tuple((name, _claim(name, value)) for name, value in claims.items())


def _claim(name: str, value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if name in _TIMES and isinstance(value, (int, float)):
        try:
            return f"{text} ({datetime.fromtimestamp(value, UTC):%Y-%m-%d %H:%M:%S} UTC)"
        except (OverflowError, ValueError, OSError):
            return text
    return text
