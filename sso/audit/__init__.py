"""Security events: a line on the log, and a row for `writer`.

An event that is recorded before its transaction commits becomes part of it, and is gone if that is
rolled back, unless `Event.survives_rollback`; one recorded after the commit, or without any, is
written soon after.

A signed-in user and a service can repeat some events in a loop. For these, each has a budget of
rows per kind of event, hour and process. The end of a budget is recorded once; the log line is
always written.
"""

import json
import logging
import os
import pwd
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache, wraps
from threading import Lock
from typing import Any, Concatenate, ParamSpec, TypeVar
from uuid import UUID

from flask import current_app, has_app_context, has_request_context, request

from sso import clock
from sso.audit.events import Event, limited
from sso.observability import counters
from sso.observability.redaction import redact

logger = logging.getLogger("sso.audit")

EXTENSION = "sso.audit"


@dataclass(frozen=True)
class Actor:
    """The author of an event: a named operator, else the event's own user, or the system.

    `by`: the program that an operator uses, if it is more than one command; use cases pass it on to
    their events. `token`: the id of the API token that a program uses; `operator` is then its name.
    `user_id`: an operator who is signed in, and has only the rights of a group (see
    `services.staff`). `changes_staff`: may change administrators and members of the helpdesk, and
    who they are.
    """

    operator: str | None = None
    by: str | None = None
    token: str | None = None
    user_id: UUID | None = None
    is_helpdesk: bool = False
    changes_staff: bool = True


USER = Actor()  # a person, for themselves
SYSTEM = Actor()  # a job of the worker
_actor: ContextVar[Actor] = ContextVar("actor", default=SYSTEM)
_dry_run: ContextVar[bool] = ContextVar("dry_run", default=False)
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Record:
    """What happened; clean text without secrets.

    `gone`: email and name of a user whom the event deletes, for webhooks; not in the trail.
    """

    name: Event
    at: datetime
    user: str | None
    client: str | None
    address: str | None
    browser: str | None
    fields: dict[str, Any]
    gone: Mapping[str, str] | None = None


_as_json = json.JSONEncoder(sort_keys=True).encode
Sink = Callable[[Record], None]


def event(name: Event, gone: Mapping[str, str] | None = None, /, **fields: object) -> None:
    """Log and record a security event. Pass ids and reasons; never a secret, a code or a token.

    A mapping is what an operator changed, before and after: it is kept in full.

    `user` is a user's id, `client` a `client_id`. The request's address and browser, or the
    operator at the command line, are added here. `gone`: see `Record`.
    """
    _tell(name, fields, has_row=True, gone=gone)


def on_log_alone(name: Event, **fields: object) -> None:
    """As `event`, but without a row in the audit trail (see `own_events`)."""
    _tell(name, fields, has_row=False)


def _tell(
    name: Event,
    fields: Mapping[str, object],
    *,
    has_row: bool,
    gone: Mapping[str, str] | None = None,
) -> None:
    if _dry_run.get():
        return
    counters.event(name)
    shown = {
        key: _in_full(value) if isinstance(value, Mapping) else clean(value, 200)
        for key, value in fields.items()
        if value is not None
    }
    if has_request_context():
        environ = request.environ
        shown.setdefault("address", clean(environ.get("REMOTE_ADDR") or "", 45))
        shown.setdefault("browser", clean(environ.get("HTTP_USER_AGENT", ""), 200))
    actor = _actor.get()
    if actor.operator:
        shown.setdefault("operator", actor.operator)
    if actor.token:
        shown.setdefault("api_token", actor.token)
    if actor.user_id:
        shown.setdefault("operator_id", str(actor.user_id))
    text = _as_json(shown)
    logger.info("%s %s", name, text, extra={"event": name, "fields": shown})
    sink: Sink | None = current_app.extensions.get(EXTENSION) if has_app_context() else None
    if sink and has_row:
        known = {key: shown.pop(key, None) for key in ("user", "client", "address", "browser")}
        sink(Record(name, clock.now(), fields=shown, gone=gone, **known))


@contextmanager
def acting_as(actor: Actor) -> Iterator[None]:
    """Name who acts in every event of the block."""
    token = _actor.set(actor)
    try:
        yield
    finally:
        _actor.reset(token)


def acting(
    function: Callable[Concatenate[Actor, Parameters], Result],
) -> Callable[Concatenate[Actor, Parameters], Result]:
    """A decorator for use cases: every event of theirs names their first argument."""

    @wraps(function)
    def run(actor: Actor, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with acting_as(actor):
            return function(actor, *args, **kwargs)

    return run


@contextmanager
def dry_run() -> Iterator[None]:
    """Record nothing in the block: for changes that are going to be rolled back."""
    token = _dry_run.set(True)
    try:
        yield
    finally:
        _dry_run.reset(token)


def operator(by: str | None = None) -> Actor:
    """The operator who runs this process at the command line."""
    return Actor(system_user(), by)


def system_user() -> str:
    """The operating system's user that runs this process, and who became it by sudo."""
    number = os.getuid()
    try:
        name = pwd.getpwuid(number).pw_name
    except KeyError:  # a container may run under a number that has no name
        name = str(number)
    asked = os.environ.get("SUDO_USER")
    return clean(f"{name} (sudo: {asked})" if asked else name, 100)


def _in_full(value: object) -> Any:
    """A value in full, as JSON: URLs differ by their query, too."""
    if isinstance(value, Mapping):
        return {str(key): _in_full(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_in_full(one) for one in value]
    if value is None or isinstance(value, bool | int):
        return value
    return storable(str(value))


def clean(value: object, most: int) -> str:
    """The text without what a log or a database cannot hold, and without secrets; cut."""
    if isinstance(value, UUID):
        return str(value)
    # Longer than what is kept: a secret that is cut would not be recognised.
    return _clean_text(str(value)[: most + 600])[:most]


def storable(text: str) -> str:
    """The text without what a log or a database cannot hold."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


@lru_cache(maxsize=512)  # addresses, browsers and scopes come again and again
def _clean_text(text: str) -> str:
    text = storable(text)
    return redact(text) if len(text) > 16 else text


OWN_EVENTS_AN_HOUR = (
    300  # rows of a kind for one user or service; applications that ask every minute need fewer
)
MOST_COUNTERS = 50_000  # counters in memory
_EXTENSION = "sso.own_events"


class _Counts:
    """Counts of this hour. In this process alone, as authorize is hit too often to ask Redis."""

    def __init__(self) -> None:
        self._hour, self._counts, self._lock = 0, Counter[tuple[str, UUID | str]](), Lock()

    def increase(self, name: str, whose: UUID | str) -> int:
        hour = int(clock.now().timestamp()) // 3600
        with self._lock:
            if hour != self._hour or len(self._counts) >= MOST_COUNTERS:
                self._hour, self._counts = hour, Counter()
            self._counts[name, whose] += 1
            return self._counts[name, whose]


def _counts() -> _Counts:
    extensions = current_app.extensions
    if _EXTENSION not in extensions:
        extensions.setdefault(_EXTENSION, _Counts())  # another thread may be quicker
    counts: _Counts = extensions[_EXTENSION]
    return counts


def own_event(name: Event, user: UUID, **fields: object) -> None:
    """As `audit.event`, of this person."""
    _own_event(name, "user", user, fields)


def own_event_of_client(name: Event, client_id: str, **fields: object) -> None:
    """As `audit.event`, of this client, which acts for itself."""
    _own_event(name, "client", client_id, fields)


def _own_event(name: Event, kind: str, whose: UUID | str, fields: Mapping[str, object]) -> None:
    count = _counts().increase(name, whose)
    write = event if count <= OWN_EVENTS_AN_HOUR else on_log_alone
    write(name, **{kind: whose, **fields})
    if count == OWN_EVENTS_AN_HOUR + 1:
        event(limited(name), **{kind: whose, "count": f"of {kind}"})
