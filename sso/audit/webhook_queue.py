"""Queues events for the webhooks that want them, in the transaction that records the events.

So nothing is sent that was rolled back, and nothing is lost that was committed. The events that
can be sent are none of those that token and userinfo requests record.
"""

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from sqlalchemy import JSON, Connection, Uuid, column, insert, select, table

from sso.audit.events import WEBHOOK_EVENTS, Event
from sso.config.urls import DOCTOR_DOMAIN
from sso.extensions import UtcDateTime

if TYPE_CHECKING:
    from sso.audit import Record

# Of what the audit trail keeps, the receivers get no addresses, browsers and operators.
_SENT = ("changes", "sid", "amr", "scope", "grant", "kind", "reason")

# Not the models' (see `writer`).
_WEBHOOKS = table(
    "webhooks", column("id", Uuid), column("events", JSON), column("disabled_at", UtcDateTime)
)
_USERS = table("users", column("id", Uuid), column("email"), column("name"))
_DELIVERIES = table(
    "webhook_deliveries",
    column("id", Uuid),
    column("webhook_id", Uuid),
    *(column(name) for name in ("event", "body", "attempts")),
    column("created_at", UtcDateTime),
    column("next_attempt_at", UtcDateTime),
)
# Locked, or the webhook could be deleted before we refer to it.
_ENABLED = (
    select(_WEBHOOKS.c.id, _WEBHOOKS.c.events)
    .where(_WEBHOOKS.c.disabled_at.is_(None))
    .order_by(_WEBHOOKS.c.id)
    .with_for_update(read=True, key_share=True)
)


def add(connection: Connection, records: Sequence["Record"]) -> None:
    """Queue what webhooks want of these events."""
    typed = [(name, record) for record in records for name in _types(record)]
    enabled = connection.execute(_ENABLED).all() if typed else ()
    wanted = [
        (webhook.id, name, record)
        for webhook in enabled
        for name, record in typed
        if name in webhook.events
    ]
    if not wanted:
        return
    people = _people(connection, [record for *_, record in wanted])
    wanted = [one for one in wanted if not _is_of_doctor(one[-1], people)]
    if not wanted:
        return
    connection.execute(
        insert(_DELIVERIES),
        [
            {
                "id": uuid4(),
                "webhook_id": webhook_id,
                "event": name,
                "body": _body(name, record, people),
                "attempts": 0,
                "created_at": record.at,
                "next_attempt_at": record.at,
            }
            for webhook_id, name, record in wanted
        ],
    )


def _types(record: "Record") -> Iterator[str]:
    """The types under which an event is sent: an operator's update may be several."""
    if record.name not in WEBHOOK_EVENTS:
        return
    yield str(record.name)
    changes = record.fields.get("changes", {}) if record.name == Event.USER_CHANGED else {}
    if "email" in changes:
        yield str(Event.EMAIL_CHANGED)
    if "disabled" in changes:
        is_off = changes["disabled"]["after"]
        yield str(Event.USER_DISABLED if is_off else Event.USER_ENABLED)


def _people(connection: Connection, records: Sequence["Record"]) -> dict[str, dict[str, str]]:
    """Email and name by id, as they are now."""
    ids = {UUID(record.user) for record in records if record.user and record.person is None}
    rows = connection.execute(select(_USERS).where(_USERS.c.id.in_(ids))) if ids else ()
    return {str(row.id): {"email": row.email, "name": row.name} for row in rows}


def _is_of_doctor(record: "Record", people: dict[str, dict[str, str]]) -> bool:
    person = record.person or people.get(record.user or "", {})
    return person.get("email", "").endswith(f"@{DOCTOR_DOMAIN}")


def _body(name: str, record: "Record", people: dict[str, dict[str, str]]) -> str:
    data: dict[str, Any] = {}
    if record.user:
        data = {"sub": record.user, **(record.person or people.get(record.user, {}))}
    if record.client:
        data["client_id"] = record.client
    data |= {field: record.fields[field] for field in _SENT if field in record.fields}
    at = record.at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return json.dumps({"type": name, "timestamp": at, "data": data})
