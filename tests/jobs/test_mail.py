"""The outbox of mails: what is sent, over which connection, how often, and how it ends."""

import logging
import ssl
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.parser import BytesHeaderParser
from email.policy import SMTP, compat32
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from sso import audit
from sso.audit.events import Event
from sso.config import email_addresses, smtp
from sso.config.mail_texts import TEXTS
from sso.config.tables import checked_name
from sso.extensions import db
from sso.jobs import mail
from sso.jobs import mail as mail_jobs
from sso.models import Mail, MailToken, User
from sso.services import notifications
from sso.store import outbox
from tests.conftest import Clock
from tests.support.factories import make_user
from tests.support.listeners import certificate
from tests.support.mailbox import LINK, Mailbox, link_in, mail_server, text_of
from tests.support.processes import free_port


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """The security events."""
    seen: list[tuple[str, dict[str, Any]]] = []

    def note(name: Event, **fields: Any) -> None:
        if name is not Event.USER_CREATED:  # as the tests make their users
            seen.append((name, fields))

    monkeypatch.setattr(audit, "event", note)
    return seen


def set_up(app: Flask, **changes: Any) -> None:
    app.extensions["sso.settings"] = replace(app.extensions["sso.settings"], **changes)


def ask(app: Flask, *addresses: str) -> None:
    """Somebody has forgotten the password."""
    with app.app_context():
        for address in addresses:
            notifications.reset_asked(address)
        db.session.commit()


def run(app: Flask) -> int:
    with app.app_context():
        return mail.deliver_due()


def rows(app: Flask) -> list[Mail]:
    with app.app_context():
        return list(db.session.scalars(select(Mail).order_by(Mail.created_at)))


def tokens(app: Flask) -> int:
    with app.app_context():
        return db.session.scalar(select(func.count()).select_from(MailToken)) or 0


@pytest.mark.slow
def test_a_mail(app: Flask, user: User, mailbox: Mailbox) -> None:
    ask(app, user.email)
    (mail,) = mailbox.read()
    assert mail.get_content_type() == "multipart/alternative"
    assert (mail["From"], mail["To"]) == ("no-reply@localhost", "Dana Demo <dana@example.com>")
    assert mail["X-Envelope"] == "no-reply@localhost dana@example.com"
    assert mail["Subject"] == "Set a new password"
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail["Date"]
    assert mail["Message-ID"].endswith("@localhost>")
    assert text_of(mail).startswith("Hello Dana Demo,\n")
    assert "<p>Hello Dana Demo,</p>" in text_of(mail, "html")
    assert link_in(mail).startswith("http://127.0.0.1:5000/api/auth/new-password?token=sso_ml_")
    (row,) = rows(app)
    assert (row.attempts, row.next_attempt_at, row.last_fault) == (1, None, None)
    assert row.delivered_at is not None


@pytest.mark.slow
def test_names_and_addresses_of_the_whole_world(app: Flask, mailbox: Mailbox) -> None:
    make_user(app, "山田@例え.jp", name="山田 <太郎> & Söhne")
    set_up(app, mail_from="sso@exämple.org", base_url="https://login.example.com/sso")
    ask(app, "山田@例え.jp")
    (mail,) = mailbox.read()
    assert mail["X-Envelope"] == "sso@xn--exmple-cua.org 山田@xn--r8jz45g.jp"
    assert "山田 <太郎> & Söhne" in text_of(mail)
    assert "山田 &lt;太郎&gt; &amp; Söhne" in text_of(mail, "html")
    assert LINK.search(text_of(mail))[0].startswith("https://login.example.com/sso/")  # type: ignore[index]


def tls(folder: Path) -> tuple[ssl.SSLContext, Path]:
    pem = certificate(folder, 9)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    return context, pem


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Requiring AUTH")  # aiosmtpd; there is TLS from the first byte
@pytest.mark.parametrize("implicit", [False, True])
def test_tls_and_password(
    app: Flask, user: User, tmp_path: Path, implicit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, pem = tls(tmp_path)
    scheme = "smtps" if implicit else "smtp"
    with mail_server(tls=context, implicit=implicit, password="p@ss:/?#w") as server:
        good = f"{scheme}://me%40home:p%40ss%3A%2F%3F%23w@127.0.0.1:{server.port}"
        ask(app, user.email)

        # A certificate that nobody vouches for never gets to see the password.
        set_up(app, smtp_url=good)
        assert run(app) == 1
        assert (server.messages, rows(app)[0].last_fault) == ([], "SSLCertVerificationError")

        monkeypatch.setenv("SSL_CERT_FILE", str(pem))
        set_up(app, smtp_url=good.replace("w@", "rong@"))
        ask(app, user.email)
        run(app)
        assert rows(app)[1].last_fault == "SMTPAuthenticationError 535"

        set_up(app, smtp_url=good)
        ask(app, user.email)
        run(app)
        assert len(server.messages) == 1
        assert server.sessions[0].authenticated
        assert server.sessions[0].ssl is not None or implicit


@pytest.mark.slow
def test_starttls_is_used_where_it_is_offered(app: Flask, user: User, tmp_path: Path) -> None:
    context, _ = tls(tmp_path)
    with mail_server(tls=context) as server:
        for query, fault in (
            ("?starttls=required", "SSLCertVerificationError"),
            ("?starttls=never", "SMTPSenderRefused 530"),
            ("", None),
        ):
            ask(app, user.email)
            set_up(app, smtp_url=server.url + query)
            run(app)
            assert rows(app)[-1].last_fault == fault
        assert [session.ssl is not None for session in server.sessions] == [True]


@pytest.mark.slow
def test_nothing_goes_in_clear_that_must_not(
    app: Flask, user: User, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(app, user.email)
    set_up(app, smtp_url=mailbox.server.url + "?starttls=required")
    run(app)
    monkeypatch.setattr(smtp, "is_loopback", lambda host: False)
    set_up(app, smtp_url=mailbox.server.url.replace("//", "//me:secret@"))
    ask(app, user.email)
    run(app)
    assert [row.last_fault for row in rows(app)] == ["NoTls", "NoTls"]
    assert mailbox.server.messages == []


@pytest.mark.slow
def test_a_server_that_is_away(
    clock: Clock, app: Flask, user: User, events: list[tuple[str, dict[str, Any]]]
) -> None:
    set_up(app, smtp_url=f"smtp://127.0.0.1:{free_port()}")
    ask(app, user.email, "nobody@example.com")
    pauses = []
    for _ in range(100):
        before = clock.now()
        run(app)
        assert run(app) == 0
        assert tokens(app) == 0  # what reached nobody is good for nothing
        again_at = rows(app)[0].next_attempt_at
        if again_at is None:
            break
        pauses.append((again_at - before).total_seconds())
        clock.move(seconds=pauses[-1] + 1)
    assert [round(pause) for pause in pauses[:4]] == [10, 20, 40, 80]
    assert max(round(pause) for pause in pauses) == 1800
    assert timedelta(hours=23) < timedelta(seconds=sum(pauses)) < timedelta(hours=25)
    assert [name for name, _ in events] == ["mail_given_up"]
    assert rows(app)[0].last_fault == "ConnectionRefusedError"
    assert rows(app)[1].attempts == 1  # nobody is there: nothing is owed


@pytest.mark.slow
def test_it_arrives_when_the_server_is_back(
    clock: Clock, app: Flask, user: User, mailbox: Mailbox
) -> None:
    mailbox.server.refused["dana@example.com"] = "450 come back later"
    ask(app, user.email)
    assert mailbox.read() == []
    assert rows(app)[0].last_fault == "recipient refused: 450"
    mailbox.server.refused.clear()
    assert mailbox.read() == []
    clock.move(seconds=11)
    assert len(mailbox.read()) == 1
    assert tokens(app) == 1


@pytest.mark.slow
def test_a_refused_recipient_holds_up_nobody(
    app: Flask, user: User, mailbox: Mailbox, events: list[tuple[str, dict[str, Any]]]
) -> None:
    make_user(app, "gone@example.com")
    mailbox.server.refused["gone@example.com"] = "550 no such user"
    ask(app, "gone@example.com", user.email)
    assert [to for to, _ in mailbox.subjects()] == [user.email]
    assert sorted(name for name, _ in events) == ["mail_given_up", "mail_sent"]
    assert rows(app)[0].next_attempt_at is None
    assert tokens(app) == 1


@pytest.mark.slow
def test_a_mail_that_can_not_be_written_holds_up_nobody(
    app: Flask, user: User, mailbox: Mailbox
) -> None:
    with app.app_context():
        db.session.add(Mail(kind="of tomorrow", address=user.email))
        db.session.commit()
    ask(app, user.email)
    assert len(mailbox.read()) == 1
    assert rows(app)[0].last_fault == "it cannot be written: unknown kind"


@pytest.mark.slow
def test_what_one_worker_took_no_other_takes(
    clock: Clock, app: Flask, user: User, mailbox: Mailbox
) -> None:
    ask(app, user.email)
    with app.app_context():
        assert len(outbox.MAILS.claim(9, until=clock.now() + mail.LEASE)) == 1
        db.session.commit()
    assert mailbox.read() == []
    clock.move(seconds=mail.LEASE.total_seconds() + 1)  # that worker has died
    assert len(mailbox.read()) == 1


@pytest.mark.slow
def test_a_long_queue_is_left_in_order(
    app: Flask, user: User, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow server: what is not tried in one run is due in the next, and is no attempt."""
    monkeypatch.setattr(mail, "LONGEST", -1)
    ask(app, user.email)
    run(app)
    assert [(row.attempts, row.last_fault) for row in rows(app)] == [(0, None)]
    assert tokens(app) == 0
    monkeypatch.undo()
    assert len(mailbox.read()) == 1


@pytest.mark.slow
def test_without_a_server_mail_goes_to_the_log(
    app: Flask, user: User, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    ask(app, user.email)
    run(app)
    (line,) = [one for one in caplog.records if one.name == "sso.mail"]
    assert "Set a new password" in line.getMessage()
    (link,) = LINK.findall(line.getMessage())
    assert app.test_client().get(link, base_url="http://127.0.0.1:5000").status_code == 200
    others = [one.getMessage() for one in caplog.records if one.name != "sso.mail"]
    assert not any("sso_ml_" in one for one in others)


@pytest.mark.slow
def test_with_a_server_no_link_is_in_the_log_or_the_database(
    app: Flask, user: User, mailbox: Mailbox, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "sso")
    ask(app, user.email)
    secret = mailbox.link(user.email).partition("token=")[2]
    app.test_client().get("/api/auth/new-password", query_string={"token": secret})
    assert secret not in caplog.text
    with app.app_context():
        for table in (Mail, MailToken):
            assert not any(secret in repr(vars(row)) for row in db.session.scalars(select(table)))


@pytest.mark.slow
def test_notices_of_the_factors(app: Flask, user: User, mailbox: Mailbox) -> None:
    with app.app_context():
        found = db.session.get_one(User, user.id)
        notifications.factor_added(found, "Passkey\n“blue”")
        notifications.factor_removed(found, "Authenticator")
        db.session.commit()
    first, second = sorted(mailbox.read(), key=lambda one: str(one["Subject"]))
    assert "Passkey “blue”" in " ".join(text_of(first).split())
    assert "removed" in second["Subject"]


@pytest.mark.slow
def test_a_deleted_user_gets_nothing(app: Flask, mailbox: Mailbox) -> None:
    make_user(app, "gone@example.com", email_verified=False)
    app.test_cli_runner().invoke(args=["user", "delete", "gone@example.com", "--yes"])
    assert mailbox.read() == []


@pytest.mark.slow
def test_a_mail_speaks_the_users_language(app: Flask, mailbox: Mailbox) -> None:
    user = make_user(app, "amal@example.com", claims={"locale": "ar"})
    with app.app_context():
        notifications.factor_added(user, notifications.APP_NAME)
        db.session.commit()
    (mail,) = mailbox.read()
    assert "Authenticator app" not in text_of(mail)
    ask(app, "amal@example.com")
    (mail,) = mailbox.read()
    assert '<html lang="ar" dir="rtl">' in text_of(mail, "html")


# Whatever a name or an address is: a mail has the headers that were set, and one recipient.

HEADERS = ["Subject", "From", "To", "Date", "Message-ID", "Auto-Submitted"]
HEADERS += ["MIME-Version", "Content-Type"]
PIECES = (
    *("=?", "?=", "=?utf-8?q?", "=?utf-8?b?", "=?utf-7?q?+2AA-?=", "=0D=0A", "DQpYOiB5DQo=", "_"),
    *('"', "\\", "<", ">", "@", ",", ";", "(", ")", ":", " ", "\r\n", "Bcc: x@example.com", "é"),
)
WORDS = ("=?utf-8?q?", "a", "=0d=0a", "?=", "=", "?", "b", ".")
names = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=5)), max_size=12).map("".join)


def _storable(text: str) -> str:
    """Without surrogates and NUL, which no form lets through and PostgreSQL does not store."""
    return text.encode(errors="ignore").decode().replace("\0", "")


@pytest.mark.slow
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(name=names)
@example(name="=?utf-8?q?Dana=0D=0AX-Injected:_yes=0D=0A=0D=0AGo_to_https://evil.example/?=")
@example(name="=?utf-7?q?+2AA-?=")
def test_a_name_is_no_header_and_stops_no_mail(app: Flask, user: User, name: str) -> None:
    with app.app_context():
        db.session.get_one(User, user.id).name = _storable(name)
        written = mail.write(Mail(kind="reset", address=user.email, details={}))
        assert written
        for utf8 in (False, True):
            sent = written.message.as_bytes(policy=SMTP.clone(utf8=utf8))
            assert BytesHeaderParser(policy=compat32).parsebytes(sent).keys() == HEADERS
        assert [one.addr_spec for one in written.message["To"].addresses] == [user.email]
        db.session.rollback()


@given(local=st.lists(st.sampled_from(WORDS)).map("".join))
@example(local="=?utf-8?q?victim=40example.com?=")
def test_an_address_is_what_it_looks_like(local: str) -> None:
    try:
        address = email_addresses.normalized(f"{local}@example.com")
    except ValueError:
        return
    assert mail._address("", address).addr_spec == address
    assert "=?" not in address


def test_an_address_of_before_gets_no_mail(app: Flask, user: User) -> None:
    """It may have been stored by a version that took it."""
    evil = "=?utf-8?q?a=0d=0ax-i=3ay?=@example.com"
    with app.app_context():
        db.session.get_one(User, user.id).email = evil
        with pytest.raises(mail.CannotBeWritten):
            mail.write(Mail(kind="reset", address=evil, details={}))
        db.session.rollback()


def test_a_header_within_a_header_is_found(
    app: Flask, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should another way in be found, no such mail is sent."""
    monkeypatch.setattr(email_addresses, "ENCODED_WORD", "not looked for")
    monkeypatch.setattr(BytesHeaderParser, "parsebytes", lambda *_: {"To": "", "X": ""})
    with app.app_context(), pytest.raises(mail.CannotBeWritten):
        mail.write(Mail(kind="reset", address=user.email, details={}))


# Mail with the operator's name, color and links.

LINKS = {
    "SSO_SUPPORT_URL": "mailto:help@acme.example",
    "SSO_PRIVACY_URL": "https://acme.example/privacy?a=1&b=2",
    "SSO_TERMS_URL": "https://acme.example/terms",
}


def write(app: Flask, kind: str = "reset") -> mail_jobs.Written:
    with app.app_context():
        found = mail_jobs.write(Mail(kind=kind, address="dana@example.com", details={}))
    assert found
    return found


def html_of(written: mail_jobs.Written) -> str:
    return str(written.message.get_body(("html",)).get_content())  # type: ignore[union-attr]


def test_what_a_mail_says(make_app: Callable[..., Flask]) -> None:
    app = make_app(SSO_NAME="<b>Acme</b> & Söhne", SSO_ACCENT_COLOR="#8aa5ff", **LINKS)
    make_user(app)
    written = write(app)
    html, text = html_of(written), written.text
    (sender,) = written.message["From"].addresses
    assert (sender.display_name, sender.addr_spec) == (
        "<b>Acme</b> & Söhne",
        "no-reply@localhost",
    )
    assert "for your account at <b>Acme</b> & Söhne." in " ".join(text.split())
    assert text.endswith(
        "-- \n<b>Acme</b> & Söhne\nhttp://127.0.0.1:5000/api/auth\n"
        "Help: mailto:help@acme.example\n"
        "Privacy policy: https://acme.example/privacy?a=1&b=2\n"
        "Terms of service: https://acme.example/terms\n"
    )
    assert "<b>" not in html
    assert html.count("&lt;b&gt;Acme&lt;/b&gt; &amp; Söhne") == 2  # heading and text
    assert '<a href="https://acme.example/privacy?a=1&amp;b=2"' in html
    assert "background:#5b6da8" in html  # readable on white, as the given one is not


def test_without_the_settings(app: Flask) -> None:
    make_user(app)
    written = write(app)
    assert str(written.message["From"]) == "no-reply@localhost"
    assert "for your account at 127.0.0.1:5000." in " ".join(written.text.split())
    assert written.text.rstrip().endswith("-- \nhttp://127.0.0.1:5000/api/auth")


def test_the_sender_that_is_set(make_app: Callable[..., Flask]) -> None:
    app = make_app(SSO_NAME="Acme, Inc.", SSO_MAIL_FROM="login@acme.example")
    make_user(app)
    assert str(write(app).message["From"]) == '"Acme, Inc." <login@acme.example>'


def test_every_subject_is_one_line(make_app: Callable[..., Flask]) -> None:
    app = make_app(SSO_NAME="{address} %s %(x)s {0}")
    make_user(app)
    with app.app_context():
        for kind, text in TEXTS.items():
            mail = Mail(kind=kind, address="dana@example.com", details={})
            subject, body, _ = mail_jobs._render(kind, mail, None, None, None, "12345678")
            assert subject.replace("{address} %s %(x)s {0}", "X").count("{") == 0
            if "{service}" in "".join(text.paragraphs):
                assert "{address} %s %(x)s {0}" in " ".join(body.split())


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(name=names)
@example(name="=?utf-8?q?Acme=0D=0AX-Injected:_yes?=")
@example(name='Acme" <boss@example.com>, "')
def test_the_sender_is_one(app: Flask, name: str) -> None:
    try:
        name = checked_name(name)
    except ValueError:
        return
    with pytest.MonkeyPatch.context() as patch, app.app_context():
        patch.setitem(
            app.extensions, "sso.settings", app.extensions["sso.settings"].__class__(
                **{**vars(app.extensions["sso.settings"]), "name": name}
            ),
        )  # fmt: skip
        mail = Mail(kind="sign_up", address="erin@example.com", details={})
        written = mail_jobs.write(mail)
        assert written
        for utf8 in (False, True):
            sent = written.message.as_bytes(policy=SMTP.clone(utf8=utf8))
            assert BytesHeaderParser(policy=compat32).parsebytes(sent).keys() == HEADERS
        assert [one.addr_spec for one in written.message["From"].addresses] == [
            "no-reply@localhost"
        ]


@pytest.mark.parametrize(
    ("kind", "change", "is_sent"),
    [
        ("verify", {}, True),
        ("verify", {"email_verified": True}, False),
        ("verify", {"email": "erin@else.example"}, False),
        ("verify", {"disabled_at": datetime(2026, 11, 1, tzinfo=UTC)}, False),
        ("invite", {}, True),
        ("invite", {"password_hash": "x"}, False),
        ("invite", {"email": "erin@else.example"}, False),
        ("invite", {"disabled_at": datetime(2026, 11, 1, tzinfo=UTC)}, False),
    ],
)
def test_what_nobody_needs_any_more_is_not_sent(
    app: Flask, mailbox: Mailbox, kind: str, change: dict[str, Any], is_sent: bool
) -> None:
    """The user has confirmed, accepted or changed meanwhile: the link would be a second one."""
    user_id = make_user(app, "erin@example.com").id
    mailbox.read()
    with app.app_context():
        user = db.session.get_one(User, user_id)
        user.email_verified, user.password_hash = False, None
        db.session.flush()
        assert notifications.verify(user) if kind == "verify" else notifications.invited(user)
        for name, value in change.items():
            setattr(user, name, value)
        db.session.commit()
    assert len(mailbox.read()) == is_sent
