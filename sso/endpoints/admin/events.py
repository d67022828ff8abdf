"""Audit events, as admin pages show them."""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from sso.models import AuditEvent
from sso.store import clients, users


@dataclass(frozen=True)
class Shown:
    """One event, with the email of its user and the name of its application, if they are known."""

    event: AuditEvent
    person: str | None
    client: str | None
    fields: list[tuple[str, str]]


def shown(found: Iterable[AuditEvent]) -> list[Shown]:
    """Events with names instead of ids."""
    listed = list(found)
    emails = users.emails({one.user_id for one in listed if one.user_id})
    names = clients.names({one.client_id for one in listed if one.client_id})
    return [
        Shown(
            one,
            emails.get(one.user_id or "", one.user_id),
            names.get(one.client_id or "", one.client_id),
            [(name, _text(value)) for name, value in json.loads(one.fields).items()],
        )
        for one in listed
    ]


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
