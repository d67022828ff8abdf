"""Mails that wait or failed: an administrator has them tried again, or deletes them.

The next attempt checks whether there is still a recipient, and makes a new link.
"""

from uuid import UUID

from sso import audit, clock
from sso.audit import Actor
from sso.audit.events import Event
from sso.extensions import db
from sso.i18n.message import Message
from sso.models import Mail
from sso.services.checks import Invalid
from sso.store import outbox


@audit.acting
def resend(actor: Actor, mail_id: UUID) -> Mail:
    """Make a mail due now. Raises `LookupError` if it is not in the queue any more.

    Raises `NotAllowed`, and `Invalid` if a worker may be sending it at this moment.
    """
    mail = _locked(mail_id)
    if not outbox.MAILS.can_be_hurried(mail):
        raise Invalid([Message("The next attempt is due within two minutes anyway.")])
    mail.next_attempt_at = clock.now()
    db.session.flush()
    audit.event(Event.MAIL_RESENT, fault=mail.last_fault, **_details(mail))
    return mail


@audit.acting
def resend_failed(actor: Actor) -> int:
    """Make all mails due that are not tried again; return their number. Raises `NotAllowed`."""
    count = outbox.revive_mails()
    if count:
        audit.event(Event.MAIL_RESENT, count=count)
    return count


@audit.acting
def delete(actor: Actor, mail_id: UUID) -> None:
    """Delete a mail that waits or failed. Raises `LookupError` and `NotAllowed`.

    A mail that a worker is sending at this moment may still arrive.
    """
    mail = _locked(mail_id)
    outbox.remove_mail(mail.id)
    audit.event(Event.MAIL_DELETED, fault=mail.last_fault, **_details(mail))


def _locked(mail_id: UUID) -> Mail:
    mail = outbox.lock_unsent(mail_id)
    if mail is None:
        raise LookupError(mail_id)
    return mail


def _details(mail: Mail) -> dict[str, object]:
    return {"mail": mail.id, "kind": mail.kind, "user": mail.user_id, "attempts": mail.attempts}
