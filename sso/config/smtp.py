"""The connection to the mail server that `SSO_SMTP_URL` names.

    smtp://host            port 587; STARTTLS when the server offers it
    smtp://host?starttls=required   no mail without TLS and a certificate that verifies
    smtp://host?starttls=never      not even when it is offered
    smtps://host           port 465; TLS from the first byte

A name and a password (`user:password@`, percent-encoded) are never sent in clear, except to this
machine or with `starttls=never`. If they are given, the certificate must verify.
"""

import smtplib
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from sso.config.urls import is_loopback
from sso.i18n.message import Message

TIMEOUT = 10  # seconds for each answer of the server
OFFERED, REQUIRED, NEVER = "offered", "required", "never"


class NoTls(smtplib.SMTPException):
    """The server offers no TLS where it is needed."""


@dataclass(frozen=True)
class MailServer:
    """The mail server, and how to connect to it."""

    host: str
    port: int
    implicit_tls: bool
    starttls: str
    user: str | None
    password: str


def parse(url: str) -> MailServer:
    """Read the URL of a mail server. Raises `ValueError` with the remedy."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # whose text may show a part of the password
        raise ValueError("its port is not a number; percent-encode the password") from None
    if parts.scheme not in ("smtp", "smtps") or not parts.hostname:
        raise ValueError("give an address such as smtp://host:port")
    implicit = parts.scheme == "smtps"
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    starttls = options.pop("starttls", OFFERED)
    if options or parts.path.strip("/") or parts.fragment:
        raise ValueError("only ?starttls=… may stand behind the host; remove the rest")
    if starttls not in (OFFERED, REQUIRED, NEVER) or (implicit and "starttls" in parts.query):
        raise ValueError("give ?starttls=required, ?starttls=never or smtps:// without it")
    return MailServer(
        host=parts.hostname,
        port=port or (465 if implicit else 587),
        implicit_tls=implicit,
        starttls=starttls,
        user=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password or ""),
    )


def checked(url: str) -> str:
    """Check SSO_SMTP_URL."""
    parse(url)
    return url


@contextmanager
def connected(server: MailServer) -> Iterator[smtplib.SMTP]:
    """Open a connection, secured and authenticated as the URL says.

    Raises `OSError` and `smtplib.SMTPException`.
    """
    connection: smtplib.SMTP
    if server.implicit_tls:
        connection = smtplib.SMTP_SSL(
            server.host, server.port, timeout=TIMEOUT, context=ssl.create_default_context()
        )
    else:
        connection = smtplib.SMTP(server.host, server.port, timeout=TIMEOUT)
    try:
        connection.ehlo_or_helo_if_needed()
        if not server.implicit_tls:
            _secure(connection, server)
        if server.user is not None:
            connection.login(server.user, server.password)
        yield connection
        connection.quit()
    finally:
        connection.close()


def _secure(connection: smtplib.SMTP, server: MailServer) -> None:
    if server.starttls == NEVER:
        return
    if connection.has_extn("starttls"):
        connection.starttls(context=_context(server))
        connection.ehlo()
    elif server.starttls == REQUIRED:
        raise NoTls(Message("the server offers no STARTTLS, and it is required"))
    elif server.user is not None and not is_loopback(server.host):
        # An attacker on the path may have removed the offer to read the password.
        raise NoTls(Message("the server offers no STARTTLS; the password is not sent in clear"))


def _context(server: MailServer) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if server.starttls == OFFERED and server.user is None:
        # RFC 7435: where TLS is optional, an unverified certificate is better than none.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
