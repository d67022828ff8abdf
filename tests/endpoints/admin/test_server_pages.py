"""Pages about the server: settings without secrets, and providers, which are tested."""

import os
import re
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from flask import Flask

from sso import audit, clock, context
from sso.audit import writer
from sso.audit.events import Event
from sso.config.settings import SETTINGS
from sso.config.upstream.file import Upstreams
from sso.config.upstream.oidc import OidcProvider
from sso.extensions import db
from sso.models import Identity
from sso.observability import setting_values
from sso.ratelimit import limiting
from sso.store import identities
from tests.support.administration import (
    ADMIN,
    HELPDESK,
    StaffBrowser,
    link_identity,
    sign_in_staff,
)
from tests.support.factories import make_user

pytestmark = pytest.mark.slow


@pytest.fixture
def ada(app: Flask) -> StaffBrowser:
    return sign_in_staff(app)


def row(html: str, name: str) -> str:
    """The text of a setting's row."""
    rows: list[str] = re.findall(r"<tr>\s*<th scope=\"row\">.*?</tr>", html, re.S)
    return next(text for text in rows if f">{name}<" in text)


def test_settings_without_secrets(app: Flask, ada: StaffBrowser) -> None:
    with app.app_context():
        settings = replace(
            context.settings(),
            smtp_url="smtps://mailer:mail-password@mail.example:465",
            name="<b>Acme</b>",
            session_lifetime=12345,
        )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(app.extensions, "sso.settings", settings)
        patch.setenv("SSO_SESSION_LIFETIME", "12345")
        page = ada.open(f"{ADMIN}/settings")
    assert page.status == 200
    for setting in SETTINGS:
        assert f">{setting.name}<" in page.html
    for secret in (settings.secret_key, "mail-password"):
        assert secret not in page.html
    assert "mail.example" in row(page.html, "SSO_SMTP_URL")
    assert setting_values.HIDDEN in row(page.html, "SSO_SECRET_KEY")
    assert "&lt;b&gt;Acme" in row(page.html, "SSO_NAME")
    assert ">environment<" in row(page.html, "SSO_SESSION_LIFETIME").replace("\n", "")
    assert "chosen at the start" in row(page.html, "SSO_NAME")
    assert ">default<" in row(page.html, "SSO_KEY_LIFETIME")
    assert "none is recorded" in page.html
    assert ">flask backup<" in page.html
    with app.app_context():
        with audit.acting_as(audit.Actor("olga")):
            audit.event(Event.BACKUP_MADE, file="backup.db")
        db.session.commit()
    writer.flush(app)
    html = ada.open(f"{ADMIN}/settings").html
    assert "none is recorded" not in html
    assert "read back" not in html  # an older version recorded it
    with app.app_context():
        audit.event(Event.BACKUP_MADE, file="backup.db", bytes=1_234_567)
        db.session.commit()
    writer.flush(app)
    size = '<span dir="ltr">1.2 MB</span> · read back and complete'
    assert size in ada.open(f"{ADMIN}/settings").html
    assert ada.open(f"{ADMIN}/settings", "POST", data={}).status in (400, 404, 405)


def test_a_file_is_named_as_the_source(app: Flask) -> None:
    with app.app_context():
        environ = {"SSO_SMTP_URL_FILE": os.devnull, "SSO_NAME": "x"}
        in_use = setting_values.in_use(context.settings(), environ, context.branding())
        by_name = {each.name: each for each in in_use}
    assert by_name["SSO_NAME"].source == setting_values.ENVIRONMENT


def test_providers_are_listed_and_tested(app: Flask, ada: StaffBrowser) -> None:
    assert "There is none." in ada.open(f"{ADMIN}/providers").html

    class Broken(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(503)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Broken)
    Thread(target=server.serve_forever, daemon=True).start()
    corp = OidcProvider(
        id="corp", type="oidc", name="<i>Corp</i>", issuer=f"http://127.0.0.1:{server.server_port}",
        client_id="us", client_secret="their-secret", trust_email=True, sign_up=True,
        domains=("corp.example",),
    )  # fmt: skip
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(app.extensions, "sso.upstreams", Upstreams((corp,)))
            page = ada.open(f"{ADMIN}/provider?id=corp")
            for text in ("&lt;i&gt;Corp&lt;/i&gt;", "OpenID Connect", "for corp.example",
                         "its email addresses are trusted", corp.issuer,
                         "not used yet", "None among the last failed sign-ins."):  # fmt: skip
                assert text in page.html
            assert 'name="account"' not in page.html  # that is for directories
            assert ">wrong</span>" in ada.submit().html
            for unknown in ("", "?id=other", "?id=%00"):
                assert ada.open(f"{ADMIN}/provider{unknown}").status == 404
            page = ada.open(f"{ADMIN}/providers")
            for text in ("&lt;i&gt;Corp&lt;/i&gt;", "OpenID Connect", "not used yet", corp.issuer):
                assert text in page.html
            tested = ada.submit()
            assert tested.status == 200
            assert ">wrong</span>" in tested.html
            assert "their-secret" not in page.html + tested.html
            for _ in range((limiting.TEST_SIGN_IN.account or 0) - 1):
                last = ada.submit()
            assert last.status == 429
    finally:
        server.shutdown()
        server.server_close()


def test_the_last_error_of_a_provider_is_shown(app: Flask, ada: StaffBrowser) -> None:
    corp = OidcProvider(
        id="corp", type="oidc", name="Corp", issuer="https://corp.example", client_id="us",
        client_secret="x",
    )  # fmt: skip
    user = make_user(app)

    def fail(method: str, reason: str) -> None:
        with app.app_context():
            audit.event(Event.SIGN_IN_FAILED, method=method, reason=reason)
            db.session.commit()
        writer.flush(app)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(app.extensions, "sso.upstreams", Upstreams((corp,)))
        for method, reason in (("corp", "unavailable: <b>no</b> route"), ("password", "x-wrong")):
            fail(method, reason)
        for path in ("providers", "provider?id=corp"):
            html = ada.open(f"{ADMIN}/{path}").html
            assert "the last sign-in failed" in html
            assert "unavailable: &lt;b&gt;no&lt;/b&gt; route" in html
            assert "x-wrong" not in html
        link_identity(app, user, provider="corp")
        with app.app_context():
            identity = db.session.scalars(db.select(Identity)).one()
            identities.use(identity, "corp", clock.now())
            db.session.commit()
        app.extensions.pop("sso.admin.cached")  # usage is up to a minute old
        for path in ("providers", "provider?id=corp"):
            html = ada.open(f"{ADMIN}/{path}").html
            assert "in use" in html
            assert ("no&lt;/b&gt; route" in html) is path.startswith("provider?")


def test_it_is_not_for_the_helpdesk(app: Flask) -> None:
    hal = sign_in_staff(app, "hal@example.com", HELPDESK)
    for path in ("settings", "providers", "provider?id=corp"):
        assert hal.open(f"{ADMIN}/{path}").status == 404
        assert hal.open(f"{ADMIN}/{path}", "POST", data={}).status == 404
