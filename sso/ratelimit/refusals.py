"""Why a request was refused: on its line of the log, in the audit trail, and for `flask explain`.

The code that refuses adds a note. At the end of the request, after its transaction, the notes
become fields of its log line, audit events, and one row for `flask explain`. Descriptions are our
texts; what a stranger sent is shortened and cleaned.

Strangers can be refused without end. So each event has a budget per network and one for all
networks. That a budget is used up is recorded once; the log line is written anyway. Authenticated
confidential clients need no budget for events.

The rows are limited a second time: each belongs to a bucket, by its kind and its network or
authenticated client, and only the newest of a bucket are kept. So no network, and no number of
strangers, removes what authenticated clients left, and the table has a size that it never exceeds.
"""

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from flask import Flask, current_app, g, request

from sso import audit, clock, context
from sso.audit.events import Event
from sso.i18n.message import Message
from sso.models import Refusal
from sso.observability.redaction import HIDDEN, redact_url
from sso.ratelimit import limiting, networks

AN_HOUR = 200  # events of a kind from one network
EVERYWHERE = 10_000  # events of a kind in an hour, so that many networks do not fill the disk
BUCKETS = 128  # of strangers, and as many of authenticated clients
OTHER = "error"  # the name, and the budget, of what has no event of its own
_NOTES, _EXTENSION = "sso_refusals", "sso.keep_refusals"
_LONGEST_SEGMENT = 36  # of a path: a UUID; what is longer may be a secret
_LONGEST = 200
_LONGEST_FACT = 1000
_LONGEST_DETAILS = 4000  # bytes of a row
_LONGEST_CLIENT_ID = 255  # as `models.clients` has it, which would load Authlib


class _Note(NamedTuple):
    event: Event | None  # None: not for the audit trail
    budget: str | None  # None: without one
    is_proven: bool  # by a client that has authenticated
    fields: dict[str, Any]
    facts: Mapping[str, Any]


def init_app(app: Flask, keep: Callable[[Sequence[Refusal]], None]) -> None:
    """Hand the rows for `flask explain` to `keep`."""
    app.extensions[_EXTENSION] = keep


def record(
    event: Event | None,
    *,
    budget: str | None,
    is_proven: bool = False,
    facts: Mapping[str, object] | None = None,
    **fields: object,
) -> None:
    """Record a refusal: `error`, `description`, `client` (an id), and what else is known.

    `reason` is a cause that the answer does not reveal; `user` is a user's id. If the description
    or the reason has a code, the code is kept for `flask explain`, as are the `facts`; a `user`
    among the facts is kept as the user of the refusal. Names of URLs end in `uri`.
    """
    note = _Note(event, budget, is_proven, fields, facts or {})
    g.setdefault(_NOTES, []).append(note)


def record_answer(error: str, description: str) -> None:
    """Record an answer's error for the log, unless its cause is recorded already."""
    if not any("error" in note.fields for note in g.get(_NOTES, ())):
        record(None, budget=None, error=error, description=description)


def record_csrf(description: str) -> None:
    """Record a submitted form without a valid CSRF token."""
    event, headers = Event.CSRF_REFUSED, request.headers
    facts = {
        "has_cookie": current_app.config["SESSION_COOKIE_NAME"] in request.cookies,
        "fetch_site": headers.get("Sec-Fetch-Site"),
        "fetch_dest": headers.get("Sec-Fetch-Dest"),
    }
    path = shown_path(request.path)
    record(event, budget=event, facts=facts, description=description, path=path)


def flush(status: int, endpoint: str | None) -> dict[str, str]:
    """Write the events of a request at its end; return the fields of its log line."""
    notes: list[_Note] = g.pop(_NOTES, [])
    reported: dict[str, str] = {}
    is_kept = False
    for event, budget, _, fields, _ in notes:
        present = {name: value for name, value in fields.items() if value is not None}
        reported |= {name: audit.clean(value, _LONGEST) for name, value in present.items()}
        if event and (budget is None or _is_within(budget)):
            audit.event(event, **present)
            is_kept = True
    if notes and (is_kept or (not any(note.event for note in notes) and _is_within(OTHER))):
        _keep(notes, {**reported, "status": status}, endpoint)
    return reported


def _keep(notes: list[_Note], details: dict[str, Any], endpoint: str | None) -> None:
    """Hand the refusal over to be written."""
    user = None
    for note in notes:
        facts = dict(note.facts)
        user = facts.pop("user", user)
        details |= {name: _shown(name, value) for name, value in facts.items() if value is not None}
        details |= _codes(note)
    details.pop("user", None)
    first = next((note for note in notes if note.event), notes[0])
    is_proven = any(note.is_proven for note in notes)
    client = details.get("client")
    source = client if is_proven else networks.widest(request.remote_addr)
    bucket = zlib.crc32(f"{first.budget or first.event}/{source}".encode()) % BUCKETS
    refusal = Refusal(
        request_id=g.sso_request_id,
        at=clock.now(),
        bucket=bucket + BUCKETS * is_proven,
        name=first.event or OTHER,
        endpoint=endpoint,
        client_id=client[:_LONGEST_CLIENT_ID] if client else None,
        user_id=user,
        details=_as_json({**details, **_origin()}),
    )
    keep: Callable[[Sequence[Refusal]], None] = current_app.extensions[_EXTENSION]
    keep([refusal])


def _codes(note: _Note) -> dict[str, Any]:
    """Return the codes of a note's texts, and what the texts name (see `flow.refusals`)."""
    codes: dict[str, Any] = {}
    for name, code in (("description", "code"), ("reason", "reason_code")):
        text = note.fields.get(name)
        if isinstance(text, Message) and text.code:
            codes |= {key: _shown(key, value) for key, value in text.variables.items()}
            codes[code] = text.code
    return codes


def _shown(name: str, value: object) -> object:
    if isinstance(value, bool | int):
        return value
    if name.endswith("uri"):
        return _cut(audit.storable(redact_url(str(value))), _LONGEST_FACT)
    return _cut(audit.clean(value, _LONGEST_FACT), _LONGEST_FACT - 1)


def _origin() -> dict[str, str]:
    """Return the client's IP address, and the host and scheme if they are not the public ones."""
    base, environ = urlsplit(context.settings().base_url), request.environ
    origin = {"address": audit.clean(environ.get("REMOTE_ADDR") or "", 45)}
    if (host := environ.get("HTTP_HOST", "")) != base.netloc:
        origin["host"] = audit.clean(host, _LONGEST)
    if request.scheme != base.scheme:
        origin["scheme"] = audit.clean(request.scheme, 10)
    return origin


def _as_json(details: Mapping[str, Any]) -> str:
    text = json.dumps(details, ensure_ascii=False)
    if len(text.encode()) <= _LONGEST_DETAILS:
        return text
    short = [(name, _cut(str(value), 40)) for name, value in details.items()]
    return json.dumps(dict(short[:20]), ensure_ascii=False)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + HIDDEN


def without_query(uri: str) -> str:
    """Return the part of an untrusted URL that may be logged: no credentials, query or fragment."""
    return redact_url(uri[: _LONGEST * 2]).partition("?")[0].partition("#")[0]


def shown_path(path: str) -> str:
    """Return the path of an unknown URL, shortened, without parts that may be secrets."""
    # A question mark is one that was sent as %3F: what follows was meant to be a query.
    path, mark, _ = path[: _LONGEST * 10].partition("?")
    segments = [
        segment if len(segment) <= _LONGEST_SEGMENT else HIDDEN for segment in path.split("/")[:20]
    ]
    return audit.clean("/".join(segments) + (mark and "?…"), _LONGEST)


def _is_within(budget: str) -> bool:
    try:
        limiting.spend(limiting.Flooding(budget, account=EVERYWHERE, ip_address=AN_HOUR), "")
    except limiting.TooManyAttempts:
        return False
    return True
