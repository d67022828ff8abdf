"""Pages of the audit trail: filter, list and export events."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from flask import abort, request
from flask_babel import gettext
from sqlalchemy import Select
from werkzeug.wrappers import Response

from sso.audit import event_names, rows
from sso.audit.events import Event
from sso.endpoints.admin import admin_page, exports
from sso.models import AuditEvent
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
    def time(self) -> str:
        """Return the time in seconds, in UTC like the export and the filters."""
        return f"{self.event.at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def views(events: Iterable[AuditEvent]) -> list[EventView]:
    """Return events with names instead of ids."""
    listed = list(events)
    emails = users.emails({event.user_id for event in listed if event.user_id})
    names = clients.names({event.client_id for event in listed if event.client_id})
    return [
        EventView(
            event,
            event_names.name(event.name),
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


def audit_trail() -> Response:
    """List security events, newest first."""
    events = _NEWEST.page(_matching(), admin_page.cursor(_NEWEST))
    filters = {
        name: admin_page.searched(name) for name in ("who", "client", "event", "since", "until")
    }
    return admin_page.render(
        "admin/audit.html",
        "audit",
        events=views(events.rows),
        pages=admin_page.neighbours(events),
        total=admin_page.total(_NEWEST, _matching()),
        given=filters,
        names=sorted((event_names.name(code), code) for code in Event),
        exports={kind: admin_page.url("audit_export", kind=kind, **filters) for kind in _KINDS},
    )


def export() -> Response:
    """Export all events of the current filters, as CSV or JSON lines."""
    kind = request.args.get("kind", "")
    if kind not in _KINDS:
        abort(404)
    mimetype, write = _KINDS[kind]
    events = exports.rows(_NEWEST, _matching())
    return exports.send(f"audit trail as {kind}", f"audit.{kind}", mimetype, write(events))


def _matching() -> Select[AuditEvent]:
    """Return the query of the filters in the URL. Deleted users are found by id."""
    identifier, client = admin_page.searched("who"), admin_page.searched("client")
    until = _day("until")
    return rows.matching(
        user_id=_only(users.matching(identifier), "id", identifier) if identifier else None,
        client_id=_only(clients.matching(client), "client_id", client) if client else None,
        names=[name] if (name := admin_page.searched("event")) else (),
        since=_day("since"),
        until=until + timedelta(days=1) if until else None,
    )


def _only(match: Any, field: str, text: str) -> str:
    return str(getattr(match.rows[0], field)) if len(match.rows) == 1 else text


def _day(name: str) -> datetime | None:
    try:
        return datetime.strptime(admin_page.searched(name), "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        return None


def _as_jsonl(events: Iterator[AuditEvent]) -> Iterator[str]:
    for event in events:
        yield json.dumps(rows.as_record(event), ensure_ascii=False) + "\n"


def _as_csv(events: Iterator[AuditEvent]) -> Iterator[str]:
    records = ({**rows.as_record(event), "fields": event.fields} for event in events)
    return exports.table(_FIELDS, ([record[name] for name in _FIELDS] for record in records))


_KINDS = {"csv": ("text/csv", _as_csv), "jsonl": ("application/jsonl", _as_jsonl)}
