"""Sends mails from the outbox; without a mail server they go to the log."""

import logging
import smtplib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from sso import audit, clock, context
from sso.audit.events import Event
from sso.config import smtp
from sso.extensions import db
from sso.jobs.mail_writing import CannotBeWritten, Written, write
from sso.models import Mail
from sso.store import mail_tokens
from sso.store import outbox as outboxes

logger = logging.getLogger("sso.jobs")
outlet = logging.getLogger("sso.mail")  # kept as it is by `logs`: its links are meant to be read

AT_ONCE = 16
LONGEST = 30  # seconds for one run; what is not tried by then is left to the next
# A worker that dies leaves its mails to others after this time.
LEASE = timedelta(seconds=3 * LONGEST)


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended. Without an error it was sent, or there is nobody to send it to."""

    sent: bool = False
    error: str | None = None
    is_final: bool = False  # trying again would change nothing
    tried: bool = True


_NOBODY = Outcome(is_final=True)
_NOT_TRIED = Outcome(tried=False)


def deliver_due() -> int:
    """Send what is due, through one connection. Commits. Returns how many attempts there were."""
    claimed = outboxes.MAILS.claim(AT_ONCE, until=clock.now() + LEASE)
    if not claimed:
        db.session.rollback()
        return 0
    written = [_write(mail) for mail in claimed]
    db.session.commit()
    ready = [one for one in written if isinstance(one, Written)]
    outcomes = iter(_send(ready))
    for mail, one in zip(claimed, written, strict=True):
        if isinstance(one, Written):
            _note(mail, next(outcomes), one)
        else:
            _note(mail, one, None)
    db.session.commit()
    return len(claimed)


def _write(mail: Mail) -> Written | Outcome:
    try:
        return write(mail) or _NOBODY
    except CannotBeWritten as error:
        return Outcome(error=f"it cannot be written: {error}", is_final=True)


def _send(ready: Sequence[Written]) -> list[Outcome]:
    url = context.settings().smtp_url
    if url is None:
        for one in ready:
            outlet.info("to %s: %s\n%s", one.message["To"], one.message["Subject"], one.text)
        return [Outcome(sent=True) for _ in ready]
    return _send_by_smtp(ready, smtp.parse(url)) if ready else []


def _send_by_smtp(ready: Sequence[Written], server: smtp.MailServer) -> list[Outcome]:
    outcomes: list[Outcome] = []
    end, reached = time.monotonic() + LONGEST, False
    try:
        with smtp.connected(server) as connection:
            reached = True
            for one in ready:
                if time.monotonic() > end:
                    break
                outcomes.append(_send_one(connection, one))
    except (OSError, smtplib.SMTPException) as error:
        # A mail that breaks the connection may not hold up the others for long.
        missing = len(ready) - len(outcomes)  # 0: the server only did not say good-bye
        outcomes += [Outcome(error=_words(error))] * min(missing, 1 if reached else missing)
    return outcomes + [_NOT_TRIED] * (len(ready) - len(outcomes))


def _send_one(connection: smtplib.SMTP, one: Written) -> Outcome:
    """Raises what breaks the connection; what is about this mail alone is its outcome."""
    try:
        # To one recipient, whatever the headers say.
        recipient = one.message["To"].addresses[0].addr_spec
        connection.send_message(one.message, to_addrs=[recipient])
    except smtplib.SMTPRecipientsRefused as error:
        code = next(iter(error.recipients.values()))[0]
        return Outcome(error=f"recipient refused: {code}", is_final=500 <= code < 600)
    except smtplib.SMTPDataError as error:
        return Outcome(error=_words(error), is_final=500 <= error.smtp_code < 600)
    except (smtplib.SMTPNotSupportedError, ValueError) as error:
        return Outcome(error=_words(error), is_final=True)
    except smtplib.SMTPServerDisconnected:
        raise
    except smtplib.SMTPException as error:
        return Outcome(error=_words(error))
    return Outcome(sent=True)


def _words(error: Exception) -> str:
    """The kind of error and the server's code; its text may hold anything."""
    code = getattr(error, "smtp_code", None)
    return f"{type(error).__name__} {code}" if code else type(error).__name__


def _note(mail: Mail, outcome: Outcome, written: Written | None) -> None:
    if not outcome.sent and written and written.token_id:
        mail_tokens.remove(written.token_id)  # the next attempt has one of its own
    outbox = outboxes.MAILS
    known = {"mail": mail.id, "kind": mail.kind, "user": mail.user_id, "attempts": mail.attempts}
    if not outcome.tried:
        outbox.put_back(mail.id)
    elif outcome.sent:
        outbox.mark_sent(mail.id)
        audit.event(Event.MAIL_SENT, **known)
    elif again_at := outbox.mark_failed(mail, outcome.error, outcome.is_final):
        logger.warning(
            "mail %s (%s): %s; attempt %d, again at %s",
            mail.id, mail.kind, outcome.error, mail.attempts, again_at.isoformat(" ", "seconds"),
        )  # fmt: skip
    elif outcome.error:
        audit.event(Event.MAIL_GIVEN_UP, fault=outcome.error, **known)
