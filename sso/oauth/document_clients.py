"""Clients that are identified by a metadata document: read it, and find the client.

`examine` reads the document before the transaction of a request, because it may have to wait;
`current` returns the client. Nothing is stored: see `services.agents.admit`.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from http.client import HTTPException
from typing import Any, cast

from flask import Flask, current_app, g
from sqlalchemy import Connection

from sso import clock, database
from sso.flow import refusals
from sso.flow.refusals import Cause, Reason, because, describe
from sso.i18n.message import Message
from sso.models.clients import DOCUMENT
from sso.process import http_call
from sso.ratelimit import limiting
from sso.services import agents, client_documents
from sso.services.checks import Invalid
from sso.store import clients
from sso.store.clients import RegisteredClient
from sso.upstream.remote_cache import RemoteCache, RemoteUnavailable

SECONDS = 3.0
SHORTEST, LONGEST = timedelta(minutes=5), timedelta(days=1)  # that a document is fresh
KEPT = timedelta(days=1)  # while its host is away
_EXTENSION = "sso.client_documents"
_MAX_AGE = re.compile(r"(?:^|[,\s])max-age\s*=\s*\"?([0-9]{1,9})", re.IGNORECASE)
_NO_STORE = re.compile(r"(?:^|[,\s])no-(?:store|cache)\b", re.IGNORECASE)
_JSON = re.compile(r"application/(?:[a-z0-9.-]+\+)?json(?:\s*;.*)?", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Document:
    """A valid document: the metadata of the client, and how long it need not be read again."""

    client_id: str
    metadata: Mapping[str, Any]
    fresh_for: timedelta


@dataclass(frozen=True)
class Examined:
    """What became of the document of a request: it, or why it cannot be used."""

    client_id: str
    document: Document | None = None
    error: Message | None = None
    # Its host cannot be reached: what was stored may serve.
    is_away: bool = False
    at: datetime = field(default_factory=clock.now)


class InvalidDocument(RemoteUnavailable):
    """A document was read, but it describes no client; `message` says why."""

    def __init__(self, message: str) -> None:
        super().__init__(str(message))
        self.message = message


def read(client_id: str) -> Document:
    """Read a document now. Raises `RemoteUnavailable`."""
    try:
        answer = http_call.call(
            "GET",
            client_id,
            headers={"Accept": "application/json"},
            seconds=SECONDS,
            read=client_documents.MAX_LENGTH + 1,
            only_public=True,
        )
    except http_call.ForbiddenPeer as error:
        raise InvalidDocument(str(error)) from None
    except (OSError, HTTPException, ValueError) as error:
        is_late = isinstance(error, TimeoutError)
        reason = "its host did not answer in time" if is_late else "its host cannot be reached"
        raise RemoteUnavailable(reason, f"{type(error).__name__}: {error}") from None
    if answer.status >= 500 or answer.status == 429:
        raise RemoteUnavailable(f"its host answered {answer.status}")
    if answer.status != 200:
        raise InvalidDocument(f"its host answered {answer.status}, not 200")
    if not _JSON.fullmatch(answer.headers.get("content-type", "").strip()):
        raise InvalidDocument("its Content-Type is not application/json")
    if len(answer.body) > client_documents.MAX_LENGTH:
        raise InvalidDocument(f"it is longer than {client_documents.MAX_LENGTH} bytes")
    try:
        content = json.loads(answer.body)
        client = client_documents.registered(client_id, content)
    except Invalid as error:
        raise InvalidDocument("; ".join(map(str, error.errors))) from None
    except (ValueError, RecursionError):
        raise InvalidDocument("it is not JSON") from None
    return Document(client_id, client.client_metadata, _fresh_for(answer.headers))


def _fresh_for(headers: Mapping[str, str]) -> timedelta:
    """Return how long a document may be used unread (RFC 9111 §5.2.2), within our bounds."""
    control = headers.get("cache-control", "")
    match = _MAX_AGE.search(control)
    if match is None or _NO_STORE.search(control):
        return SHORTEST
    return min(max(timedelta(seconds=int(match[1])), SHORTEST), LONGEST)


def init_app(app: Flask) -> None:
    app.extensions[_EXTENSION] = RemoteCache(
        _in_context(app), "a client metadata document", kept=KEPT,
        fresh_for=lambda document: document.fresh_for,
    )  # fmt: skip


def _in_context(app: Flask) -> Any:
    """Return what reads a document in a thread of its own, which has no application context."""

    def read_here(client_id: str) -> Document:
        with app.app_context():
            return read(client_id)

    return read_here


def _documents() -> RemoteCache[Document]:
    return cast("RemoteCache[Document]", current_app.extensions[_EXTENSION])


def examine(client_id: str, *, is_pushed: bool = False) -> None:
    """Read the document of a request's client, if it is identified by one.

    `is_pushed`: the request will be stored, so it counts for a client that no person has allowed
    yet even if the document need not be read. No transaction may be open. Raises `TooManyAttempts`.
    """
    if client_documents.is_url(client_id) and "sso_document" not in g:
        g.sso_document = _examined(client_id, is_pushed)


def _examined(client_id: str, is_pushed: bool) -> Examined:
    if error := client_documents.url_error(client_id):
        return Examined(client_id, error=error)
    with database.reading() as connection:
        if error := agents.policy_error(connection, client_documents.authority_of(client_id)):
            return Examined(client_id, error=error)
        is_stored = clients.registered(connection, client_id) is not None
    if not is_stored and (is_pushed or not _documents().has_fresh(client_id)):
        limiting.spend(limiting.CLIENT_DOCUMENT, client_documents.domain_of(client_id))
    try:
        return Examined(client_id, _documents().get(client_id))
    except RemoteUnavailable as trouble:
        reason = "its host did not answer in time" if trouble.is_passing else trouble.reason
        is_invalid = isinstance(trouble, InvalidDocument)
        return Examined(client_id, error=Message("%(text)s", text=reason), is_away=not is_invalid)


def error_of(client_id: str) -> Message | None:
    """Return why the document of this request's client cannot be used, or `None`."""
    examined: Examined | None = g.get("sso_document")
    return examined.error if examined and examined.client_id == client_id else None


def described(error: Message, facts: dict[str, object]) -> tuple[str, Message]:
    """Return the description and the reason of a refusal because of the client's document.

    `facts`: of the refusal, for `flask explain`; the error is added.
    """
    facts["document"] = str(error)
    description = describe(Cause.CLIENT_DOCUMENT, reason=refusals.plain(str(error)))
    return description, because(Reason.CLIENT_DOCUMENT, fault=str(error))


def document_of(client_id: str) -> Document | None:
    """Return the document of this request's client."""
    examined: Examined | None = g.get("sso_document")
    return examined.document if examined and examined.client_id == client_id else None


def current(
    connection: Connection, client_id: str, stored: RegisteredClient | None
) -> RegisteredClient | None:
    """Return the client as its document describes it now; `None` if there is none.

    `stored`: the client as a person allowed it. It serves for a day while the host is away.
    """
    examined: Examined | None = g.get("sso_document")
    if examined is None or examined.client_id != client_id:
        return stored
    if examined.document is None:
        return stored if stored and examined.is_away and _is_recent(stored) else None
    metadata = dict(examined.document.metadata)
    if stored is not None:
        if stored.registration != DOCUMENT:
            return stored
        decided = client_documents.with_policy(metadata, stored.client_metadata)
        return replace(stored, client_metadata=decided)
    if clients.registered(connection, client_id) is not None:
        return None  # it is disabled
    return RegisteredClient(
        client_id=client_id,
        client_metadata=metadata,
        secret_digest="",
        secret_expires_at=None,
        previous_secret_digest=None,
        previous_secret_expires_at=None,
        first_party=False,
        require_pkce=True,
        require_mfa=False,
        updated_at=examined.at,
        registration=DOCUMENT,
        document_read_at=None,
    )


def _is_recent(client: RegisteredClient) -> bool:
    return client.document_read_at is not None and clock.now() < client.document_read_at + KEPT
