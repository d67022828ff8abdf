"""Records the HTTP exchanges that Authlib makes, as they went over the wire."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from flask import g
from requests import Response


@dataclass(frozen=True)
class Exchange:
    """One request to the server and its answer."""

    method: str
    url: str
    authorization: str
    form: tuple[tuple[str, str], ...]
    status: str
    body: str


def remember(response: Response, *_args: Any, **_kwargs: Any) -> None:
    """The `response` hook of a requests session: note the exchange for the page."""
    sent = response.request
    body = sent.body.decode() if isinstance(sent.body, bytes) else sent.body
    _list().append(
        Exchange(
            method=sent.method or "",
            url=sent.url or "",
            authorization=str(sent.headers.get("Authorization", "")),
            form=tuple(parse_qsl(body, keep_blank_values=True)) if isinstance(body, str) else (),
            status=f"{response.status_code} {response.reason}",
            body=response.text,
        )
    )


def exchanges_with(address: str) -> list[Exchange]:
    """The exchanges with one address while this page was made, in order."""
    return [exchange for exchange in _list() if exchange.url.split("?")[0] == address]


def _list() -> list[Exchange]:
    """The exchanges of the request in hand."""
    exchanges: list[Exchange] = g.setdefault("exchanges", [])
    return exchanges
