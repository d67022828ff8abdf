"""A real mail server, and what arrived in it."""

import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword
from flask import Flask

from sso.jobs import mail
from tests.support.processes import free_port

LINK = re.compile(r"http\S+\?token=\S+")


class MailServer:
    """Takes mails over a socket, as aiosmtpd's handler; refuses recipients that it is told to."""

    def __init__(self) -> None:
        self.messages: list[EmailMessage] = []
        self.refused: dict[str, str] = {}
        self.sessions: list[Any] = []
        self.url = ""
        self.port = 0

    async def handle_RCPT(
        self, _server: Any, _session: Any, envelope: Any, address: str, _options: Any
    ) -> str:
        if address in self.refused:
            return self.refused[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: Any, session: Any, envelope: Any) -> str:
        message = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(message, EmailMessage)
        message["X-Envelope"] = f"{envelope.mail_from} {' '.join(envelope.rcpt_tos)}"
        self.messages.append(message)
        self.sessions.append(session)
        return "250 OK"


class _ImplicitTls(Controller):
    """TLS from the first byte."""

    def __init__(self, handler: Any, context: ssl.SSLContext, **more: Any) -> None:
        super().__init__(handler, ssl_context=context, **more)


@contextmanager
def mail_server(
    *, tls: ssl.SSLContext | None = None, implicit: bool = False, password: str | None = None
) -> Iterator[MailServer]:
    """A mail server; with `tls` it asks for STARTTLS, with `password` for me@home and that."""
    server, port = MailServer(), free_port()

    def check(_server: Any, _session: Any, _envelope: Any, _mechanism: str, given: Any) -> Any:
        assert isinstance(given, LoginPassword)
        right = given.login == b"me@home" and given.password.decode() == password
        return AuthResult(success=right, handled=right)

    options: dict[str, Any] = {"hostname": "127.0.0.1", "port": port}
    if password is not None:
        options |= {"authenticator": check, "auth_required": True}
        options["auth_require_tls"] = tls is not None and not implicit
    if implicit:
        assert tls is not None
        controller: Controller = _ImplicitTls(server, tls, **options)
    else:
        controller = Controller(
            server, tls_context=tls, require_starttls=tls is not None, **options
        )
    controller.start()
    server.port, server.url = port, f"smtp://127.0.0.1:{port}"
    try:
        yield server
    finally:
        controller.stop()


class Mailbox:
    """What a running application sends."""

    def __init__(self, app: Flask, server: MailServer) -> None:
        self.app, self.server = app, server

    def deliver(self) -> None:
        """Let the worker do what is due."""
        with self.app.app_context():
            for _ in range(20):
                if not mail.deliver_due():
                    return
        raise AssertionError("the outbox does not become empty")

    def read(self) -> list[EmailMessage]:
        """What has come since the last reading."""
        self.deliver()
        found, self.server.messages[:] = list(self.server.messages), []
        return found

    def link(self, to: str) -> str:
        """The link with a secret in the one mail to this address."""
        (found,) = [one for one in self.read() if f"<{to}>" in one["To"] or one["To"] == to]
        return link_in(found)

    def subjects(self) -> list[tuple[str, str]]:
        """Who got what, in order."""
        return sorted((one["X-Envelope"].split()[-1], one["Subject"]) for one in self.read())


def text_of(message: EmailMessage, kind: str = "plain") -> str:
    part = message.get_body((kind,))
    assert part is not None
    content: str = part.get_content()
    return content.replace("\r\n", "\n")


def link_in(message: EmailMessage) -> str:
    """The link, which is the same in both parts."""
    (link,) = set(LINK.findall(text_of(message)))
    assert f'href="{link}"' in text_of(message, "html")
    return str(link)
