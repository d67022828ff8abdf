"""Write queued mails and send them; without a mail server, write them to the log."""

import logging
import smtplib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.parser import BytesHeaderParser
from email.policy import SMTP, compat32
from urllib.parse import urlsplit
from uuid import UUID

from flask import current_app, render_template
from flask_babel import force_locale, gettext

from sso import audit, clock, context
from sso.audit.events import Event
from sso.config import colors, email_addresses, smtp
from sso.config.mail_texts import TEXTS, WITH_SECRET, Text
from sso.crypto import mail_codes
from sso.extensions import db
from sso.i18n import languages, times
from sso.models import Mail, User
from sso.services import identities, mail_links, notifications, second_factors, sign_in_codes
from sso.store import mail_tokens, users
from sso.store import outbox as outboxes

_BLUE = "#2f5bea"  # as on the pages


class CannotBeWritten(ValueError):
    """The mail can never be sent, for instance because no mail server accepts the address."""


@dataclass(frozen=True)
class Written:
    """A mail that is ready to be sent, and the token of its link, to remove if sending fails."""

    message: EmailMessage
    text: str
    token_id: UUID | None


def write(mail: Mail) -> Written | None:
    """Write a mail with a new link; return `None` if it has no recipient.

    Adds the token of the link; the caller commits. Raises `CannotBeWritten`.
    """
    if mail.kind not in TEXTS:
        raise CannotBeWritten("unknown kind")  # written by a newer version of this program
    addressee = _addressee(mail)
    if addressee is None:
        return None
    kind, user = addressee
    token, link, until, code = None, None, None, ""
    if kind == "enrolment_code" and user:
        token, code = second_factors.make_emailed_code(user, UUID(mail.details["session"]))
    if kind == "sign_in_code" and user:
        code = sign_in_codes.make(UUID(mail.details["token"]), user) or ""
        if not code:
            return None
    page = TEXTS[kind].page
    if page is WITH_SECRET:
        token, link = mail_links.make(kind, mail.address, user)
        until = token.expires_at
    elif TEXTS[kind].action:
        link = context.settings().base_url + page
    language = languages.known([_asked_language(mail, user)])
    with force_locale(language or context.settings().language):
        subject, text, html = _render(kind, mail, user, link, until, code)
    try:
        message = _message(mail, user, subject, text, html)
    except (ValueError, MessageError) as error:
        if token:
            mail_tokens.remove(token.id)
        raise CannotBeWritten(type(error).__name__) from error
    return Written(message, text, token.id if token else None)


def _addressee(mail: Mail) -> tuple[str, User | None] | None:
    """Return the kind of mail that suits the account, and its user; `None` for no mail."""
    owner = users.find_by_email(mail.address)
    if mail.kind == "reset":
        if owner is None or owner.is_disabled:
            return None
        return "directory_password" if identities.directory_of(owner) else "reset", owner
    if mail.kind == "sign_up":
        return ("known_address", owner) if owner else ("sign_up", None)
    if mail.kind == "sign_in_code":
        if owner is None or owner.is_disabled:
            return None
        if sign_in_codes.may_be_strangers(owner):
            return "reset", owner
        return "sign_in_code" if sign_in_codes.is_allowed_for(owner) else "no_sign_in_code", owner
    if mail.kind == "account_deleted":
        return mail.kind, None
    user = users.find(mail.user_id) if mail.user_id else None
    if user is None or user.is_disabled:
        return None
    if mail.kind == "change_email" and mail.details.get("bond") != mail_links.bond(user):
        return None
    if mail.kind == "enrolment_code" and not _is_still_meant(mail, user):
        return None
    if mail.kind == "change_email" and owner is not None:
        return None if owner.id == user.id else ("known_address", owner)
    if mail.kind == "verify" and (user.email_verified or user.email != mail.address):
        return None
    if mail.kind == "invite" and (user.email != mail.address or user.password_hash is not None):
        return None  # already accepted
    return mail.kind, user


def _is_still_meant(mail: Mail, user: User) -> bool:
    """Return whether address and password are the same as when the code was requested."""
    session_id = UUID(mail.details["session"])
    return bool(mail.details.get("bond") == second_factors.emailed_code_bond(user, session_id))


def _render(
    kind: str,
    mail: Mail,
    user: User | None,
    link: str | None,
    until: datetime | None,
    code: str,
) -> tuple[str, str, str]:
    settings, branding, kind_text = context.settings(), context.branding(), _text(kind)
    directory = identities.directory_of(user) if user else None
    factor = mail.details.get("factor", "")
    at, zone = _time(mail.details.get("time")), times.zone_for(user and user.claims.get("zoneinfo"))
    values_by_name = {
        "service": branding.name or urlsplit(settings.base_url).netloc,
        "address": mail.address,
        "new_address": mail.details.get("new_address", ""),
        "code": mail_codes.shown(code),
        "left": mail.details.get("left", ""),
        "factor": gettext(factor) if factor == notifications.APP_NAME else _line(factor),
        "provider": _line(mail.details.get("provider") or (directory.name if directory else "")),
        "account": _line(mail.details.get("account", "")) or "-",
        "browser": languages.browser_name(mail.details.get("browser", "")),
        "network": mail.details.get("network") or "unknown",
        "names": _line(mail.details.get("names", ""), 2000),
        "groups": _line(mail.details.get("groups", "")),
        "client": _line(mail.details.get("client", "")),
        "program": _line(mail.details.get("program", "")) or "-",
        "time": times.moment(at, zone) if at else "",
        "until": times.moment(until, zone) if until else "",
    }
    subject = kind_text.subject.format(**values_by_name)
    values = {
        "subject": subject,
        # Never a name that a stranger typed: anyone could send any text to any address.
        "name": _name(mail, user),
        "paragraphs": [paragraph.format(**values_by_name) for paragraph in kind_text.paragraphs],
        "action": kind_text.action,
        "link": link,
        "base_url": settings.base_url,
        "button_color": colors.light_variant(branding.accent_color or _BLUE),
    }
    text = render_template("mail/message.txt", **values)
    return subject, text, render_template("mail/message.html", **values)


def _text(kind: str) -> Text:
    """Return the text of a kind of mail in the current language; the operator's comes first."""
    built_in = TEXTS[kind]
    own = current_app.extensions["sso.overrides"].texts.get((kind, languages.language()), {})
    return Text(
        own.get("subject") or gettext(built_in.subject),
        tuple(own.get("paragraphs") or map(gettext, built_in.paragraphs)),
        (own.get("action") or gettext(built_in.action)) if built_in.action else None,
    )


def _message(mail: Mail, user: User | None, subject: str, text: str, html: str) -> EmailMessage:
    # The policy refuses line ends in headers, so that no value begins a header of its own.
    message = EmailMessage(policy=SMTP)
    message["Subject"] = subject
    mail_from = context.settings().mail_from
    sender = email_addresses.for_smtp(mail_from) if mail_from else f"no-reply@{_host()}"
    message["From"] = _address(context.branding().name or "", sender)
    message["To"] = _address(_name(mail, user), email_addresses.for_smtp(mail.address))
    message["Date"] = clock.now()
    # Each attempt has its own, as it has its own link.
    message["Message-ID"] = f"<{mail.id}.{mail.attempts}@{_host()}>"
    message["Auto-Submitted"] = "auto-generated"  # RFC 3834: no out-of-office answers
    message.set_content(text)
    message.add_alternative(html, subtype="html")
    _check_headers(message)
    return message


def _check_headers(message: EmailMessage) -> None:
    """Raise `ValueError` if the encoded message has other headers than were set.

    Some versions of Python decode encoded words in a name, and write the line ends in them.
    """
    for utf8 in (False, True):  # smtplib chooses by the addresses
        encoded = message.as_bytes(policy=SMTP.clone(utf8=utf8))
        if BytesHeaderParser(policy=compat32).parsebytes(encoded).keys() != message.keys():
            raise ValueError("a header within a header")


def _name(mail: Mail, user: User | None) -> str:
    """Return the name in the greeting; none if the reader may not be the user."""
    return _line(user.name) if user and mail.kind != "change_email" else ""


def _address(name: str, email: str) -> Address:
    user, _, domain = email.rpartition("@")
    # A name that mail programs would decode into something else is omitted.
    return Address("" if email_addresses.ENCODED_WORD in name else name, user, domain)


def _host() -> str:
    """Return the host name; `localhost` if the base URL has an IP address."""
    host = urlsplit(context.settings().base_url).hostname or ""
    return "localhost" if ":" in host or host.replace(".", "").isdigit() else host


def _asked_language(mail: Mail, user: User | None) -> str | None:
    """Return the language of the account, or of the page that caused the mail."""
    locale = user.claims.get("locale") if user else None
    return str(locale) if locale else mail.details.get("language")


def _line(text: str, most: int = 200) -> str:
    """Return one line without control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:most]


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


logger = logging.getLogger("sso.jobs")
outlet = logging.getLogger("sso.mail")  # `logs` does not redact it: its links are for reading

AT_ONCE = 16
LONGEST = 30  # seconds for one run; the rest is left to the next
LEASE = outboxes.MAILS.lease  # three times as long


@dataclass(frozen=True)
class Outcome:
    """The result of an attempt. Without an error, the mail was sent or had no recipient."""

    is_sent: bool = False
    error: str | None = None
    is_final: bool = False  # trying again would change nothing
    is_tried: bool = True


_NOBODY = Outcome(is_final=True)
_NOT_TRIED = Outcome(is_tried=False)


def deliver_due() -> int:
    """Send the mails that are due, through one connection; return their number. Commits."""
    claimed = outboxes.MAILS.claim(AT_ONCE, until=clock.now() + LEASE)
    if not claimed:
        db.session.rollback()
        return 0
    results = [_write(mail) for mail in claimed]
    db.session.commit()
    ready = [result for result in results if isinstance(result, Written)]
    outcomes = iter(_send(ready))
    for mail, result in zip(claimed, results, strict=True):
        if isinstance(result, Written):
            _record(mail, next(outcomes), result)
        else:
            _record(mail, result, None)
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
        for mail in ready:
            outlet.info("to %s: %s\n%s", mail.message["To"], mail.message["Subject"], mail.text)
        return [Outcome(is_sent=True) for _ in ready]
    return _send_by_smtp(ready, smtp.parse(url)) if ready else []


def _send_by_smtp(ready: Sequence[Written], server: smtp.MailServer) -> list[Outcome]:
    outcomes: list[Outcome] = []
    end, reached = time.monotonic() + LONGEST, False
    try:
        with smtp.connected(server) as connection:
            reached = True
            for mail in ready:
                if time.monotonic() > end:
                    break
                outcomes.append(_send_one(connection, mail))
    except (OSError, smtplib.SMTPException) as error:
        # A mail that breaks the connection must not delay the others.
        missing = len(ready) - len(outcomes)  # 0: the server only did not say good-bye
        outcomes += [Outcome(error=_error_name(error))] * min(missing, 1 if reached else missing)
    return outcomes + [_NOT_TRIED] * (len(ready) - len(outcomes))


def _send_one(connection: smtplib.SMTP, mail: Written) -> Outcome:
    """Send one mail. Errors of this mail are its outcome; those of the connection are raised."""
    try:
        # The only recipient, whatever the headers say.
        recipient = mail.message["To"].addresses[0].addr_spec
        connection.send_message(mail.message, to_addrs=[recipient])
    except smtplib.SMTPRecipientsRefused as error:
        code = next(iter(error.recipients.values()))[0]
        return Outcome(error=f"recipient refused: {code}", is_final=500 <= code < 600)
    except smtplib.SMTPDataError as error:
        return Outcome(error=_error_name(error), is_final=500 <= error.smtp_code < 600)
    except (smtplib.SMTPNotSupportedError, ValueError) as error:
        return Outcome(error=_error_name(error), is_final=True)
    except smtplib.SMTPServerDisconnected:
        raise
    except smtplib.SMTPException as error:
        return Outcome(error=_error_name(error))
    return Outcome(is_sent=True)


def _error_name(error: Exception) -> str:
    """Return the type of the error and the server's code, without its text."""
    code = getattr(error, "smtp_code", None)
    return f"{type(error).__name__} {code}" if code else type(error).__name__


def _record(mail: Mail, outcome: Outcome, written_mail: Written | None) -> None:
    if not outcome.is_sent and written_mail and written_mail.token_id:
        mail_tokens.remove(written_mail.token_id)  # the next attempt has one of its own
    outbox = outboxes.MAILS
    details = {"mail": mail.id, "kind": mail.kind, "user": mail.user_id, "attempts": mail.attempts}
    if not outcome.is_tried:
        outbox.release(mail.id)
    elif outcome.is_sent:
        outbox.mark_sent(mail.id)
        audit.event(Event.MAIL_SENT, **details)
    elif again_at := outbox.mark_failed(mail, outcome.error, outcome.is_final):
        logger.warning(
            "mail %s (%s): %s; attempt %d, again at %s",
            mail.id, mail.kind, outcome.error, mail.attempts, again_at.isoformat(" ", "seconds"),
        )  # fmt: skip
    elif outcome.error:
        audit.event(Event.MAIL_GIVEN_UP, fault=outcome.error, **details)
