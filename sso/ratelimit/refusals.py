"""Why a request was refused: on its line of the log, and in the audit trail.

Whoever refuses notes it. At the end of the request, when its transaction is over, the notes become
fields of its line on the log and events of the trail. Descriptions are texts of ours; what a
stranger sent is cut and cleaned.

Strangers can be refused without end. So an event has a budget for each network and one for all,
and it is told once when one is used up; the line on the log is written anyway. Who has proven to be
a client needs no budget.
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

    `reason` is a cause that the answer does not tell; `user` is a user's id.
    """
    g.setdefault(_NOTES, []).append(_Note(event, budget, fields))


def note_answer(error: str, description: str) -> None:
    """Note for the log what an answer tells, unless its cause is noted already."""
    if not any("error" in one.fields for one in g.get(_NOTES, ())):
        note(None, budget=None, error=error, description=description)


def note_csrf(description: str) -> None:
    """Note a posted form that did not prove to be one of ours."""
    event = Event.CSRF_REFUSED
    note(event, budget=event, description=description, path=shown_path(request.path))


def settle() -> dict[str, str]:
    """At the end of a request: write its events; gives the fields for its line on the log."""
    told: dict[str, str] = {}
    for event, budget, fields in g.pop(_NOTES, ()):
        known = {name: value for name, value in fields.items() if value is not None}
        told |= {name: audit.clean(value, _LONGEST) for name, value in known.items()}
        if event and (budget is None or _is_within(budget)):
            audit.event(event, **known)
    return told


def without_query(uri: str) -> str:
    """An address that somebody sent, as far as it may be told."""
    return uri[: _LONGEST * 2].partition("?")[0].partition("#")[0]


def shown_path(path: str) -> str:
    """The path of an unknown address: cut, and without what may be a secret."""
    # A question mark is one that was sent as %3F: what follows was meant to be a query.
    path, mark, _ = path[: _LONGEST * 10].partition("?")
    kept = [part if len(part) <= _LONGEST_SEGMENT else "…" for part in path.split("/")[:20]]
    return audit.clean("/".join(kept) + (mark and "?…"), _LONGEST)


def _is_within(budget: str) -> bool:
    try:
        limiting.spend(limiting.Flooding(budget, account=EVERYWHERE, address=AN_HOUR), "")
    except limiting.TooManyAttempts:
        return False
    return True
