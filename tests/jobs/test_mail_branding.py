"""Mail with the operator's name, color and links."""

from collections.abc import Callable
from email.parser import BytesHeaderParser
from email.policy import SMTP, compat32

import pytest
from flask import Flask
from hypothesis import HealthCheck, example, given, settings

from sso.config.mail_texts import TEXTS
from sso.config.tables import checked_name
from sso.jobs import mail as mail_jobs
from sso.models import Mail
from tests.jobs.test_mail_headers import HEADERS, names
from tests.support.factories import make_user

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
