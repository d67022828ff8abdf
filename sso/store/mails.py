"""Statements about the outbox of mails."""

from datetime import timedelta

from sqlalchemy import func, select

from sso import clock
from sso.extensions import db
from sso.models import Mail
from sso.store.outbox import Outbox

outbox = Outbox(Mail)

MOST_AN_HOUR = 5  # of one kind, to one address


def add(mail: Mail) -> bool:
    """Owe a mail, unless the address was owed enough of its kind within the hour."""
    recent = select(func.count()).where(
        Mail.address == mail.address,
        Mail.kind == mail.kind,
        Mail.created_at > clock.now() - timedelta(hours=1),
    )
    if (db.session.scalar(recent) or 0) >= MOST_AN_HOUR:
        return False
    db.session.add(mail)
    db.session.flush()
    return True
