"""Queue events for the webhooks that subscribe to them, in the transaction of the events.

So no event is sent that was rolled back, and none is lost that was committed. Events of token and
userinfo requests are never sent.
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

_AT_ONCE = 10_000  # users in a statement; SQLite takes 32,766 values
# The receivers do not get IP addresses, browsers and operators.
_SENT = ("api", "changes", "sid", "amr", "scope", "grant", "kind", "reason")
# Changes that may enable or disable their object.
_SWITCHED = {
    Event.USER_CHANGED: (Event.USER_ENABLED, Event.USER_DISABLED),
    Event.CLIENT_CHANGED: (Event.CLIENT_ENABLED, Event.CLIENT_DISABLED),
    Event.API_CHANGED: (Event.API_ENABLED, Event.API_DISABLED),
}

# Not the tables of the models (see `writer`).
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
# Locked, because the webhook could be deleted before its deliveries are inserted.
_ENABLED = (
    select(_WEBHOOKS.c.id, _WEBHOOKS.c.events)
    .where(_WEBHOOKS.c.disabled_at.is_(None))
    .order_by(_WEBHOOKS.c.id)
    .with_for_update(read=True, key_share=True)
)


def add(connection: Connection, records: Sequence["Record"]) -> None:
    """Queue deliveries of these events for the webhooks that subscribe to them."""
    typed_records = [(name, record) for record in records for name in _types(record)]
    enabled = connection.execute(_ENABLED).all() if typed_records else ()
    deliveries = [
        (webhook.id, name, record)
        for webhook in enabled
        for name, record in typed_records
        if name in webhook.events
    ]
    if not deliveries:
        return
    people = _people(connection, [record for *_, record in deliveries])
    deliveries = [delivery for delivery in deliveries if not _is_of_doctor(delivery[-1], people)]
    if not deliveries:
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
            for webhook_id, name, record in deliveries
        ],
    )


def _types(record: "Record") -> Iterator[str]:
    """Yield the types under which an event is sent; a change may have several."""
    if record.name not in WEBHOOK_EVENTS:
        return
    yield str(record.name)
    if record.name not in _SWITCHED:
        return
    changes = record.fields.get("changes", {})
    if "email" in changes:
        yield str(Event.EMAIL_CHANGED)
    if "disabled" in changes:
        enabled, disabled = _SWITCHED[record.name]
        yield str(disabled if changes["disabled"]["after"] else enabled)


def _people(connection: Connection, records: Sequence["Record"]) -> dict[str, dict[str, str]]:
    """Return the current email and name of users, by id."""
    ids = list({UUID(record.user) for record in records if record.user and record.person is None})
    people = {}
    for start in range(0, len(ids), _AT_ONCE):
        some = _USERS.c.id.in_(ids[start : start + _AT_ONCE])
        for row in connection.execute(select(_USERS).where(some)):
            people[str(row.id)] = {"email": row.email, "name": row.name}
    return people


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
