"""Why a request was refused: on its line of the log, and in the audit trail.

The code that refuses adds a note. At the end of the request, after its transaction, the notes
become fields of its log line and audit events. Descriptions are our texts; what a stranger sent is
shortened and cleaned.

Strangers can be refused without end. So each event has a budget per network and one for all
networks. That a budget is used up is recorded once; the log line is written anyway. Authenticated
confidential clients need no budget.
"""

from typing import NamedTuple

from flask import g, request

from sso import audit
from sso.audit.events import Event
from sso.ratelimit import limiting

AN_HOUR = 200  # events of a kind from one network
EVERYWHERE = 10_000  # events of a kind in an hour, so that many networks do not fill the disk
_NOTES = "sso_refusals"
_LONGEST_SEGMENT = 36  # of a path: a UUID; what is longer may be a secret
_LONGEST = 200


class _Note(NamedTuple):
    event: Event | None  # None: for the log alone
    budget: str | None  # None: without one
    fields: dict[str, object]


def note(event: Event | None, *, budget: str | None, **fields: object) -> None:
    """Note a refusal: `error`, `description`, `client` (an id), and what else is known.

    `reason` is a cause that the answer does not reveal; `user` is a user's id.
    """
    g.setdefault(_NOTES, []).append(_Note(event, budget, fields))


def note_answer(error: str, description: str) -> None:
    """Note an answer's error for the log, unless its cause is noted already."""
    if not any("error" in one.fields for one in g.get(_NOTES, ())):
        note(None, budget=None, error=error, description=description)


def note_csrf(description: str) -> None:
    """Note a submitted form without a valid CSRF token."""
    event = Event.CSRF_REFUSED
    note(event, budget=event, description=description, path=shown_path(request.path))


def settle() -> dict[str, str]:
    """At the end of a request: write its events and return the fields of its log line."""
    reported: dict[str, str] = {}
    for event, budget, fields in g.pop(_NOTES, ()):
        known = {name: value for name, value in fields.items() if value is not None}
        reported |= {name: audit.clean(value, _LONGEST) for name, value in known.items()}
        if event and (budget is None or _is_within(budget)):
            audit.event(event, **known)
    return reported


def without_query(uri: str) -> str:
    """The part of a URL sent by a stranger that may be logged."""
    return uri[: _LONGEST * 2].partition("?")[0].partition("#")[0]


def shown_path(path: str) -> str:
    """The path of an unknown URL: shortened, and without what may be a secret."""
    # A question mark is one that was sent as %3F: what follows was meant to be a query.
    path, mark, _ = path[: _LONGEST * 10].partition("?")
    kept = [part if len(part) <= _LONGEST_SEGMENT else "…" for part in path.split("/")[:20]]
    return audit.clean("/".join(kept) + (mark and "?…"), _LONGEST)


def _is_within(budget: str) -> bool:
    try:
        limiting.spend(limiting.Flooding(budget, account=EVERYWHERE, ip_address=AN_HOUR), "")
    except limiting.TooManyAttempts:
        return False
    return True
