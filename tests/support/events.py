"""What the audit trail holds."""

import json
from typing import Any

from flask import Flask
from sqlalchemy import select

from sso.audit import writer
from sso.extensions import db
from sso.models import AuditEvent


def events(app: Flask, *names: str) -> list[dict[str, Any]]:
    """The events of these names, oldest first, with all that is known of them."""
    writer.flush(app)
    with app.app_context():
        rows = db.session.scalars(
            select(AuditEvent)
            .where(AuditEvent.name.in_(names))
            .order_by(AuditEvent.at, AuditEvent.id)
        ).all()
        return [
            {
                "name": row.name,
                "user": row.user_id,
                "client": row.client_id,
                "address": row.address,
                **json.loads(row.fields),
            }
            for row in rows
        ]
