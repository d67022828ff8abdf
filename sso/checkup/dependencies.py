"""The services that the server depends on: Redis and the mail server."""

import smtplib
import ssl
from contextlib import suppress
from typing import Any

from sso import context
from sso.checkup.finding import Findings, ok, skipped, warning, wrong
from sso.config import smtp
from sso.i18n.message import Message
from sso.ratelimit import storage
from sso.store import clients

TIMEOUT = 10  # seconds


def rate_limits() -> Findings:
    """Redis answers, if it is configured."""
    url = context.settings().redis_url
    if url is None:
        seen = Message("SSO_REDIS_URL is not set: each process limits rates by itself")
        yield skipped("redis", seen)
        return
    is_replica = False
    redis = storage.connect(url, TIMEOUT)
    connection: Any = redis.storage
    errors = storage.errors_of(redis)
    try:
        connection.ping()
        with suppress(*errors):  # the user may not ask
            is_replica = connection.role()[0] in (b"slave", "slave")
    except errors as error:
        seen = Message("no answer (%(reason)s)", reason=type(error).__name__)
        yield wrong("redis", seen, Message("check SSO_REDIS_URL and that Redis runs"))
    else:
        if is_replica:
            sentinel = "redis+sentinel://host:26379/service"
            hint = Message("give the URL of the primary, or %(sentinel)s", sentinel=sentinel)
            yield wrong("redis", Message("it is a replica, which takes no writes"), hint)
        else:
            yield ok("redis", Message("answers"))
    finally:
        connection.close()


def no_mail_server() -> Findings:
    """What it means that none is configured."""
    if context.settings().smtp_url is not None:
        return
    if any(client.require_mfa for client in clients.every()):
        yield warning(
            "mail",
            Message(
                "SSO_SMTP_URL is not set: a password alone is enough to add the first second "
                "factor, which an application requires"
            ),
            Message("set SSO_SMTP_URL, so that a code is mailed before"),
        )
    else:
        yield skipped("mail", Message("SSO_SMTP_URL is not set: mail goes to the log"))


def mail() -> Findings:
    """The mail server accepts our credentials, if it is configured. No mail is sent."""
    url = context.settings().smtp_url
    if url is None:
        yield from no_mail_server()
        return
    server = smtp.parse(url)
    try:
        with smtp.connected(server) as connection:
            connection.noop()
            secure = isinstance(connection.sock, ssl.SSLSocket)
    except (OSError, smtplib.SMTPException) as error:
        reason = error.args[0] if isinstance(error, smtp.NoTls) else type(error).__name__
        seen = Message("the mail server refuses (%(reason)s)", reason=reason)
        yield wrong("mail", seen, Message("check SSO_SMTP_URL"))
        return
    if server.user is not None and not secure:
        hint = Message("use %(scheme)s, or a mail server with STARTTLS", scheme="smtps://")
        yield warning("mail", Message("name and password go over the network in clear"), hint)
    elif secure:
        yield ok("mail", Message("%(host)s takes mail over TLS", host=server.host))
    else:
        yield ok("mail", Message("%(host)s takes mail", host=server.host))
