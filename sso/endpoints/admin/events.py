"""Audit events, as admin pages show them."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC
from typing import Any

from flask_babel import gettext

from sso.audit import event_names
from sso.models import AuditEvent
from sso.store import clients, users

_CHANGES = "changes"


@dataclass(frozen=True)
class Detail:
    """One field of an event: its value, or the values that a change removed and added."""

    name: str
    value: str = ""
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()


@dataclass(frozen=True)
class Shown:
    """One event, with the email of its user and the name of its application, if they are known."""

    event: AuditEvent
    name: str
    person: str | None
    client: str | None
    details: list[Detail]

    @property
    def time(self) -> str:
        """Return the time in seconds, in UTC like the export and the filters."""
        return f"{self.event.at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def shown(found: Iterable[AuditEvent]) -> list[Shown]:
    """Events with names instead of ids."""
    listed = list(found)
    emails = users.emails({one.user_id for one in listed if one.user_id})
    names = clients.names({one.client_id for one in listed if one.client_id})
    return [
        Shown(
            one,
            event_names.name(one.name),
            emails.get(one.user_id or "", one.user_id),
            names.get(one.client_id or "", one.client_id),
            list(_details(json.loads(one.fields))),
        )
        for one in listed
    ]


def _details(fields: Mapping[str, Any]) -> Iterator[Detail]:
    """Yield the fields; a change has one for each field that it changed."""
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
    elif isinstance(before, dict) or isinstance(after, dict):
        old, new = before or {}, after or {}
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
