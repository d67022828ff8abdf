"""Pages of the audit trail: filter, list and export events."""

import heapq
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any

from flask import abort, request
from flask_babel import gettext
from sqlalchemy import Select
from werkzeug.wrappers import Response

from sso import audit
from sso.audit import chain, event_titles, rows
from sso.audit.event_families import FAMILIES, Family
from sso.audit.events import Event
from sso.endpoints.admin import access, admin_page, exports
from sso.extensions import db
from sso.flow.permissions import Permission
from sso.models import AuditEvent
from sso.process.program import COMMAND
from sso.services import agent_identity
from sso.store import clients, users
from sso.store.lists import Order

_NEWEST = Order((AuditEvent.at, AuditEvent.id), is_descending=True)
_CHANGES = "changes"


@dataclass(frozen=True)
class Detail:
    """One field of an event: its value, or the values that a change removed and added."""

    name: str
    value: str = ""
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()


@dataclass(frozen=True)
class EventView:
    """An event for pages, with the email of its user and the name of its application."""

    event: AuditEvent
    name: str
    person: str | None
    client: str | None
    details: list[Detail]

    @property
    def author(self) -> str:
        """Return the operator who caused the event; empty if it was the person or the server."""
        return next((detail.value for detail in self.details if detail.name == "operator"), "")

    @property
    def time(self) -> str:
        """Return the time in seconds, in UTC like the export and the filters."""
        return f"{self.event.at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def views(events: Iterable[AuditEvent]) -> list[EventView]:
    """Return events with names instead of ids."""
    listed = list(events)
    emails = users.emails({event.user_id for event in listed if event.user_id})
    names = agent_identity.labels({event.client_id for event in listed if event.client_id})
    return [
        EventView(
            event,
            event_titles.title_of(event.name),
            emails.get(event.user_id or "", event.user_id),
            names.get(event.client_id or "", event.client_id),
            list(_details(json.loads(event.fields))),
        )
        for event in listed
    ]


def _details(fields: Mapping[str, Any]) -> Iterator[Detail]:
    """Yield the fields of an event, and one for each field of a change."""
    for name, value in fields.items():
        if name == _CHANGES and isinstance(value, dict):
            for field, change in value.items():
                yield from _differences(field, change)
        else:
            yield Detail(name, _text(value))


def _differences(field: str, change: Any) -> Iterator[Detail]:
    if not isinstance(change, dict):
        yield Detail(field, _text(change))
        return
    before, after = change.get("before"), change.get("after")
    if "added" in change or "removed" in change:
        removed, added = (change.get(name) or () for name in ("removed", "added"))
        yield Detail(field, removed=_texts(removed), added=_texts(added))
    elif (
        (before or after)
        and isinstance(old := before or {}, dict)
        and isinstance(new := after or {}, dict)
    ):
        for name in {**old, **new}:
            if old.get(name) != new.get(name):
                parts = {"before": old.get(name), "after": new.get(name)}
                yield from _differences(f"{field}.{name}", parts)
    elif "before" in change or "after" in change:
        yield Detail(field, removed=_texts([before]), added=_texts([after]))
    else:
        yield Detail(field, _text(change))


def _texts(values: Iterable[Any]) -> tuple[str, ...]:
    return tuple(_text(value) for value in values if value not in (None, ""))


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(gettext("yes") if value else gettext("no"))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


_FIELDS = ("at", "event", "user", "client", "address", "browser", "fields", "number")


_SEARCHED = 20_000  # events that are searched for an operator
_VERIFIED = 2000  # events in a request
_EVERY = 10  # seconds between two reloads of a page that follows the trail
_MOST_RELOADS = 60  # then it stops: it would keep the session alive
_FAMILY = "family:"  # before the name of a family, in the filter of events


@dataclass(frozen=True)
class Filters:
    """What the URL asks for."""

    who: str
    client: str
    actor: str
    event: str
    since: str
    until: str

    @classmethod
    def of_request(cls) -> "Filters":
        return cls(**{field.name: admin_page.searched(field.name) for field in fields(cls)})

    @property
    def family(self) -> Family | None:
        is_family = self.event.startswith(_FAMILY)
        return FAMILIES.get(self.event.removeprefix(_FAMILY)) if is_family else None

    def statements(self) -> tuple[list[Select[AuditEvent]], bool]:
        """Return the queries, which together select the events, and whether older ones are left
        out. Deleted users are found by id.
        """
        if (managed := _managed()) is not None:
            return self._of_clients(managed)
        user_id = _only(users.matching(self.who), "id", self.who) if self.who else None
        client_id = (
            _only(clients.matching(self.client), "client_id", self.client) if self.client else None
        )
        statement, is_bounded = self._statement(user_id, client_id)
        if self.family and not self.actor and not self.who and not self.client:
            # An index serves each name, but not all of them together.
            return [statement.where(AuditEvent.name == name) for name in self.family.events], False
        if self.family:
            statement = statement.where(AuditEvent.name.in_(self.family.events))
        return [statement], is_bounded

    def _of_clients(self, managed: Iterable[str]) -> tuple[list[Select[AuditEvent]], bool]:
        """Return a query for each of these applications, which an index serves.

        Names are compared with theirs alone, and people are found by their whole email or ID: a
        part of one would tell whether there are others.
        """
        user = users.find_by_email(self.who) if self.who else None
        user_id = str(user.id) if user else self.who or None
        names = agent_identity.labels({*managed}) if self.client else {}
        chosen = [
            client_id
            for client_id in sorted(managed)
            if self.client in ("", client_id, names.get(client_id))
        ]
        parts = [self._statement(user_id, client_id) for client_id in chosen]
        statements = [statement for statement, _ in parts]
        if self.family:
            of_family = AuditEvent.name.in_(self.family.events)
            statements = [statement.where(of_family) for statement in statements]
        return statements, any(is_bounded for _, is_bounded in parts)

    def _statement(
        self, user_id: str | None, client_id: str | None
    ) -> tuple[Select[AuditEvent], bool]:
        """Return the query for the events of a user and a client, and whether it leaves out older
        ones.
        """
        until, is_bounded = _day(self.until), False
        statement = rows.matching(
            user_id=user_id,
            client_id=client_id,
            names=[self.event] if self.event and not self.family else (),
            since=_day(self.since),
            until=until + timedelta(days=1) if until else None,
        )
        if self.actor:
            user = users.find_by_email(self.actor)
            statement, is_bounded = rows.bounded(statement, _SEARCHED)
            statement = statement.where(rows.acted_by(self.actor, user.id if user else None))
        return statement, is_bounded


def _managed() -> frozenset[str] | None:
    """Return the IDs of the clients whose events the visitor may read; `None` if all events."""
    return access.staff().rights.clients_for(Permission.AUDIT)


def audit_trail() -> Response:
    """List security events, newest first."""
    filters, cursor = Filters.of_request(), admin_page.cursor(_NEWEST)
    statements, is_bounded = filters.statements()
    events = (
        _NEWEST.page(statements[0], cursor)
        if len(statements) == 1
        else _NEWEST.page_of_several(statements, cursor)
    )
    reloads = 0 if cursor else _reloads()
    chosen = {name: value for name, value in asdict(filters).items() if value}
    response = admin_page.render(
        "admin/audit.html",
        "audit",
        events=views(events.rows),
        pages=admin_page.neighbours(events, "page", _LIVE),
        total=None if reloads or len(statements) != 1 else admin_page.total(_NEWEST, statements[0]),
        is_bounded=is_bounded,
        searched=_SEARCHED,
        given=filters,
        families=[
            (
                family.title,
                f"{_FAMILY}{code}",
                sorted((event_titles.title_of(name), str(name)) for name in family.events),
            )
            for code, family in FAMILIES.items()
        ],
        exports={kind: admin_page.url("audit_export", kind=kind, **chosen) for kind in _KINDS},
        every=_EVERY,
        reloads=reloads,
        follow=admin_page.url("audit", **chosen, **{_LIVE: str(_MOST_RELOADS)}),
        stop=admin_page.url("audit", **chosen),
    )
    if reloads:
        again = admin_page.url("audit", **chosen, **{_LIVE: str(reloads - 1)})
        response.headers["Refresh"] = f"{_EVERY}; url={again}"
    return response


_LIVE = "live"


def _reloads() -> int:
    """Return how often the page is still to reload itself."""
    text = request.args.get(_LIVE, "")
    return (
        min(int(text), _MOST_RELOADS)
        if text.isascii() and text.isdecimal() and len(text) < 4
        else 0
    )


def event() -> Response:
    """Show one event with all that is recorded about it."""
    row, managed = rows.find(admin_page.uuid()), _managed()
    if row is None or not (managed is None or row.client_id in managed):
        abort(404)
    recorded = json.loads(row.fields)
    changes = recorded.pop(_CHANGES, None)
    return admin_page.render(
        "admin/audit_event.html",
        "audit",
        event=views([row])[0],
        facts=list(_details(recorded)),
        changes=list(_details({_CHANGES: changes})) if changes else [],
    )


def verify() -> Response:
    """Verify a part of the chain of events, from the number in the URL on."""
    text = request.args.get("first", "")
    first = int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else 1
    db.session.rollback()
    verdict = chain.verify_part(max(first, 1), _VERIFIED)
    if verdict.faults:
        with audit.acting_as(access.staff().actor):
            audit.event(
                Event.AUDIT_VERIFICATION_FAILED,
                faults=len(verdict.faults),
                first=verdict.faults[0],
            )
    return admin_page.render(
        "admin/audit_chain.html",
        "audit",
        verdict=verdict,
        count=max(0, verdict.last - verdict.first + 1),
        command=f"{COMMAND} audit verify",
    )


def export() -> Response:
    """Export all events of the current filters, as CSV or JSON lines."""
    kind = request.args.get("kind", "")
    if kind not in _KINDS:
        abort(404)
    mimetype, write = _KINDS[kind]
    statements, _ = Filters.of_request().statements()
    parts = [exports.rows(_NEWEST, statement) for statement in statements]
    events = heapq.merge(*parts, key=lambda event: (event.at, event.id), reverse=True)
    return exports.send(f"audit trail as {kind}", f"audit.{kind}", mimetype, write(events))


def _only(match: Any, field: str, text: str) -> str:
    return str(getattr(match.rows[0], field)) if len(match.rows) == 1 else text


def _day(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        return None


def _as_jsonl(events: Iterator[AuditEvent]) -> Iterator[str]:
    for event in events:
        yield json.dumps(rows.as_record(event), ensure_ascii=False) + "\n"


def _as_csv(events: Iterator[AuditEvent]) -> Iterator[str]:
    records = ({**rows.as_record(event), "fields": event.fields} for event in events)
    return exports.table(_FIELDS, ([record[name] for name in _FIELDS] for record in records))


_KINDS = {"csv": ("text/csv", _as_csv), "jsonl": ("application/jsonl", _as_jsonl)}
