"""Whatever a name or an address is: a mail has the headers that were set, and one recipient."""

from email.parser import BytesHeaderParser
from email.policy import SMTP, compat32

import pytest
from flask import Flask
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sso.config import email_addresses
from sso.extensions import db
from sso.jobs import mail
from sso.models import Mail, User

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
