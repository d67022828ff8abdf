"""Security events: a log line, and a row that `writer` writes.

An event that is recorded before its transaction commits becomes part of it, and is rolled back with
it, unless `Event.survives_rollback`. An event that is recorded after the commit, or without a
transaction, is written soon after.

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
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache, wraps
from threading import Lock
from typing import Any, Concatenate, ParamSpec, TypeVar
from uuid import UUID

from flask import current_app, has_app_context, has_request_context, request

from sso import clock
from sso.audit.events import Event, limited
from sso.errors import NotAllowed
from sso.flow.permissions import (
    LIMITED_SERVICES,
    NONE,
    SERVICES,
    Needs,
    Permission,
    Rights,
    lacking,
)
from sso.observability import counters
from sso.observability.redaction import redact

logger = logging.getLogger("sso.audit")

EXTENSION = "sso.audit"


@dataclass(frozen=True)
class Actor:
    """The author of an event: an operator, or else the user of the event, or the system.

    `by`: the tool that the operator uses, if it is more than a command; services copy it into their
    events. `token`: the id of the API token of a program, `service`: the client that acts with an
    access token of its own; `operator` is then its name. `user_id`: the signed-in operator, whose
    rights come from a group (see `services.roles`). `permissions`: what the operator may do, or
    `None` if nothing is refused, as at the command line. `limits`: further permissions, which hold
    only for some groups, and `applications`: those that hold only for some applications (see
    `permissions.Rights`). `needs`: the permissions of which the service that runs needs one.
    `changes_staff`: may change administrators, members of the helpdesk, and who has these roles.
    `reads_people`: False for a program whose scopes let it read no users.
    """

    operator: str | None = None
    by: str | None = None
    token: str | None = None
    user_id: UUID | None = None
    permissions: frozenset[Permission] | None = None
    changes_staff: bool = True
    reads_people: bool = True
    service: str | None = None
    limits: Mapping[Permission, frozenset[str]] = field(default_factory=dict)
    applications: Mapping[Permission, frozenset[str]] = field(default_factory=dict)
    needs: Needs = NONE

    @property
    def rights(self) -> Rights:
        """Return what the operator may do, with limits."""
        if self.permissions is None:
            return Rights(frozenset(Permission))
        return Rights(self.permissions, self.limits, self.applications)

    def may(self, permission: Permission) -> bool:
        return self.permissions is None or permission in self.permissions


USER = Actor()  # the user of the event
SYSTEM = Actor()  # a job of the worker
_actor: ContextVar[Actor] = ContextVar("actor", default=SYSTEM)
_dry_run: ContextVar[bool] = ContextVar("dry_run", default=False)
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Record:
    """A recorded event: clean text without secrets.

    `person`: email and name of the user, for webhooks; not in the audit trail. If it is missing,
    the transaction looks them up. It is needed for a user whom the event deletes, and saves the
    look-up where thousands change at once.
    """

    name: Event
    at: datetime
    user: str | None
    client: str | None
    address: str | None
    browser: str | None
    fields: dict[str, Any]
    person: Mapping[str, str] | None = None


_as_json = json.JSONEncoder(sort_keys=True).encode
Sink = Callable[[Record], None]


class Uncut(str):
    """Text without secrets that is recorded as long as it is."""

    __slots__ = ()


def event(name: Event, person: Mapping[str, str] | None = None, /, **fields: object) -> None:
    """Log and record a security event. Pass ids and reasons; never a secret, a code or a token.

    A mapping holds what an operator changed, before and after; it is stored uncut.

    `user` is a user's id, `client` a `client_id`. The IP address and browser of the request, or the
    operator at the command line, are added here. `person`: see `Record`.
    """
    _log(name, fields, has_row=True, person=person)


def on_log_alone(name: Event, **fields: object) -> None:
    """Log an event like `event`, but without a row in the audit trail (see `own_event`)."""
    _log(name, fields, has_row=False)


def _log(
    name: Event,
    fields: Mapping[str, object],
    *,
    has_row: bool,
    person: Mapping[str, str] | None = None,
) -> None:
    if _dry_run.get():
        return
    counters.event(name)
    details = {
        key: _in_full(value) if isinstance(value, Mapping | Uncut) else clean(value, 200)
        for key, value in fields.items()
        if value is not None
    }
    if has_request_context():
        environ = request.environ
        details.setdefault("address", clean(environ.get("REMOTE_ADDR") or "", 45))
        details.setdefault("browser", clean(environ.get("HTTP_USER_AGENT", ""), 200))
    actor = _actor.get()
    if actor.operator:
        details.setdefault("operator", actor.operator)
    if actor.token:
        details.setdefault("api_token", actor.token)
    if actor.service:
        details.setdefault("service", actor.service)
    if actor.user_id:
        details.setdefault("operator_id", str(actor.user_id))
    text = _as_json(details)
    logger.info("%s %s", name, text, extra={"event": name, "fields": details})
    sink: Sink | None = current_app.extensions.get(EXTENSION) if has_app_context() else None
    if sink and has_row:
        columns = {key: details.pop(key, None) for key in ("user", "client", "address", "browser")}
        sink(Record(name, clock.now(), fields=details, person=person, **columns))


@contextmanager
def acting_as(actor: Actor) -> Iterator[None]:
    """Set the actor of all events of the block."""
    token = _actor.set(actor)
    try:
        yield
    finally:
        _actor.reset(token)


def acting(
    function: Callable[Concatenate[Actor, Parameters], Result],
) -> Callable[Concatenate[Actor, Parameters], Result]:
    """Decorate a use case so that all its events name its first argument as the actor.

    It raises `NotAllowed` if the actor lacks the permission that `permissions.SERVICES` names. One
    with limits is enough for those in `LIMITED_SERVICES`, which ask for whom it holds.
    """
    name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
    needs, limited = SERVICES.get(name), LIMITED_SERVICES.get(name, NONE)

    @wraps(function)
    def run(actor: Actor, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if actor.permissions is not None and needs != NONE:
            held = actor.rights
            if held.permissions.isdisjoint(needs or ()) and held.limited.isdisjoint(limited):
                raise NotAllowed(lacking(needs or ()))
            actor = replace(actor, needs=needs or NONE)
        with acting_as(actor):
            return function(actor, *args, **kwargs)

    return run


@contextmanager
def dry_run() -> Iterator[None]:
    """Record no events in the block: its changes will be rolled back."""
    token = _dry_run.set(True)
    try:
        yield
    finally:
        _dry_run.reset(token)


def operator(by: str | None = None) -> Actor:
    """Return the operator who runs this process at the command line."""
    return Actor(system_user(), by)


def system_user() -> str:
    """Return the system user that runs this process, with the user who called sudo."""
    number = os.getuid()
    try:
        name = pwd.getpwuid(number).pw_name
    except KeyError:  # a container may run under a number that has no name
        name = str(number)
    sudo_user = os.environ.get("SUDO_USER")
    return clean(f"{name} (sudo: {sudo_user})" if sudo_user else name, 100)


def _in_full(value: object) -> Any:
    """Return a value uncut, as JSON; the query of a URL is kept, because it may have changed."""
    if isinstance(value, Mapping):
        return {str(key): _in_full(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_in_full(item) for item in value]
    if value is None or isinstance(value, bool | int):
        return value
    return storable(str(value))


def clean(value: object, most: int) -> str:
    """Return text for logs and databases: redacted, storable and cut."""
    if isinstance(value, UUID):
        return str(value)
    # Redact before cutting: a secret that is cut would not be recognized.
    return _clean_text(str(value)[: most + 600])[:most]


def storable(text: str) -> str:
    """Remove characters that a log or a database cannot store."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


@lru_cache(maxsize=512)  # IP addresses, browsers and scopes repeat
def _clean_text(text: str) -> str:
    text = storable(text)
    return redact(text) if len(text) > 16 else text


OWN_EVENTS_AN_HOUR = (
    300  # rows of a kind for one user or service; applications that ask every minute need fewer
)
MOST_COUNTERS = 50_000  # counters in memory
_EXTENSION = "sso.own_events"


class _Counts:
    """Counts of this hour, per process: authorize is called too often to ask Redis."""

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
    """Record an event that the user may repeat; beyond the budget, it is only logged."""
    _own_event(name, "user", user, fields)


def own_event_of_client(name: Event, client_id: str, **fields: object) -> None:
    """Record an event of a client that acts for itself; see `own_event`."""
    _own_event(name, "client", client_id, fields)


def _own_event(name: Event, kind: str, whose: UUID | str, fields: Mapping[str, object]) -> None:
    count = _counts().increase(name, whose)
    write = event if count <= OWN_EVENTS_AN_HOUR else on_log_alone
    write(name, **{kind: whose, **fields})
    if count == OWN_EVENTS_AN_HOUR + 1:
        event(limited(name), **{kind: whose, "count": f"of {kind}"})
