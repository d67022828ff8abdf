"""Pages and mails with blocks and texts of the operator's own."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from flask import Flask

from sso.checkup import components
from sso.checkup.finding import Status
from sso.config import mail_texts, overrides
from sso.config.overrides import BLOCKS
from sso.errors import SettingsError
from sso.web import headers
from sso.web.static_files import FOLDER, YEAR
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.factories import make_client, make_user
from tests.support.mailbox import Mailbox, text_of

STYLE = ":root { --card: #fffdf5 }"
NAME = '<b onclick="x">Books</b>'
TEXTS = """
[reset.en]
subject = "{service}: a new password"
paragraphs = ["Somebody at {address} wants one. <b>", "Call 100."]
[reset.de]
action = "Weiter"
"""


def write(folder: Path, name: str, **blocks: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    parts = [f"{{% block {block} %}}{body}{{% endblock %}}" for block, body in blocks.items()]
    (folder / name).write_text("\n".join([f'{{% extends "sso/{name}" %}}', *parts]))


@pytest.fixture
def own(make_app: Callable[..., Flask], tmp_path: Path) -> Flask:
    folder = tmp_path / "own"
    folder.mkdir()
    write(folder, "base.html", announcement="<p>Moved on Friday.</p>", footer="{{ super() }}!")
    write(
        folder,
        "sign_in.html",
        heading="Hello{% if client_name %}, {{ client_name }}{% endif %}",
        help="<p title='{{ client_name }}'>{{ client_name|upper }} {{ _('Get help') }}</p>",
    )
    write(folder, "mail/message.html", header="<p>{{ brand.name }}, {{ subject }}</p>")
    write(folder, "mail/message.txt", footer="Reception: 100 <{{ base_url }}>")
    (folder / "mail" / "texts.toml").write_text(TEXTS)
    (folder / "custom.css").write_text(STYLE)
    return make_app(SSO_TEMPLATES_DIR=str(folder), SSO_NAME="Acme", SSO_ACCENT_COLOR="#c8102e")


def test_pages(own: Flask) -> None:
    browser = Browser(own)
    page = browser.authorize(make_client(own, name=NAME))
    assert "<h1>Hello, &lt;b onclick=&#34;x&#34;&gt;Books&lt;/b&gt;</h1>" in page.html
    assert "<p title='&lt;b onclick=&#34;x&#34;&gt;Books&lt;/b&gt;'>" in page.html
    assert "&lt;B ONCLICK" in page.html
    assert "<b onclick" not in page.html
    assert {"email", "password", "csrf_token"} <= set(page.fields)
    for path in ("/sign-in", "/nowhere", "/forgotten-password"):
        page = browser.open(f"{ORIGIN}{BASE}{path}")
        assert "<p>Moved on Friday.</p>" in page.html
        assert "One account for all your applications.\n!" in page.html
    assert page.headers["Content-Security-Policy"] == headers.PAGE_POLICY
    browser.http.environ_base["HTTP_ACCEPT_LANGUAGE"] = "de"
    assert "HILFE" in browser.open(f"{ORIGIN}{BASE}/sign-in").html.upper()


def test_style(own: Flask) -> None:
    """The last rules of the style sheet, whose URL changes with them."""
    page = Browser(own).open(f"{ORIGIN}{BASE}/sign-in")
    (address,) = re.findall(r'href="([^"]*/sso\.css\?[^"]*)"', page.html)
    answer = own.test_client().get(address)
    assert answer.text.startswith((FOLDER / "sso.css").read_text())
    assert answer.text.endswith(f"}}\n{STYLE}")
    assert answer.headers["Cache-Control"] == YEAR


def test_mails(own: Flask, mailbox: Mailbox) -> None:
    mailbox.app = own
    own.extensions["sso.settings"] = replace(
        own.extensions["sso.settings"], smtp_url=mailbox.server.url
    )
    user = make_user(own)
    for language, subject, paragraph, action in (
        ("en", "Acme: a new password", "Somebody at dana@example.com wants one. <b>", "Set a new"),
        ("de", "Neues Passwort setzen", "wahrscheinlich Sie", "Weiter"),
    ):
        browser = Browser(own)
        browser.http.environ_base["HTTP_ACCEPT_LANGUAGE"] = language
        browser.open(f"{ORIGIN}{BASE}/forgotten-password")
        browser.submit(email=user.email)
        (mail,) = mailbox.read()
        assert mail["Subject"] == subject
        text, html = text_of(mail), text_of(mail, "html")
        assert paragraph in " ".join(text.split())
        assert f"{action}" in text
        assert text.rstrip().endswith(f"Reception: 100 <{ORIGIN}{BASE}>")
        assert f"<p>Acme, {subject}</p>" in html
        assert "<b>" not in html
        assert "/new-password?token=" in text


@pytest.mark.parametrize("name", BLOCKS)
def test_every_block_is_shown(app: Flask, name: str) -> None:
    """Compiled as the operator's would be: nothing in the built-in template hides it."""
    blocks = BLOCKS[name][0]
    parts = [f"{{% block {one} %}}<<{one}>>{{% endblock %}}" for one in blocks]
    source = f'{{% extends "sso/{name}" %}}' + "".join(parts)
    template = app.jinja_env.from_string(source)
    assert set(template.blocks) == set(blocks)
    parent = app.jinja_env.get_template(f"sso/{name}")
    assert set(blocks) <= set(parent.blocks)


def test_an_error_stops_the_start(make_app: Callable[..., Flask], tmp_path: Path) -> None:
    write(tmp_path, "sign_in.html", help="{{ nobody }}", foot="")
    write(tmp_path, "consent.html", help="<form>")
    with pytest.raises(SettingsError) as caught:
        make_app(SSO_TEMPLATES_DIR=str(tmp_path), SSO_NAME="")
    lines = caught.value.errors
    assert len(lines) == 4
    assert all(line.startswith("SSO_TEMPLATES_DIR: ") for line in lines)


def test_what_changes_later_waits_for_the_next_start(own: Flask, tmp_path: Path) -> None:
    (tmp_path / "own" / "sign_in.html").write_text("{% broken")
    (tmp_path / "own" / "base.html").unlink()
    assert "Moved on Friday" in Browser(own).open(f"{ORIGIN}{BASE}/sign-in").html


def test_what_doctor_says(own: Flask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with own.app_context():
        found = list(components.templates())
        assert [one.status for one in found] == [Status.WARNING] * 5 + [Status.OK]
        assert found[0].seen.startswith("base.html (announcement, footer): it does not say")
        for one in found[:5]:  # do what it says
            assert one.hint
            name = one.seen.partition(" ")[0]
            mark = one.hint.partition("let its first line be: ")[2]
            path = tmp_path / "own" / name
            path.write_text(f"{mark}\n{path.read_text()}")
        assert {one.status for one in components.templates()} == {Status.OK}
        write(tmp_path / "own", "error.html", help="x")
        seen = [one.seen for one in components.templates()]
        assert "error.html (help): replaces nothing that is built in" in seen
        (tmp_path / "own" / "error.html").unlink()
        changed = {**mail_texts.TEXTS, "reset": mail_texts.TEXTS["invite"]}
        monkeypatch.setattr(mail_texts, "TEXTS", changed)
        monkeypatch.setattr(overrides, "BUILT_IN", tmp_path / "built_in")
        for name in ("base.html", "sign_in.html", "mail/message.html", "mail/message.txt"):
            path = tmp_path / "built_in" / name
            path.parent.mkdir(exist_ok=True, parents=True)
            blocks = ("heading", "footer", "header")
            path.write_text("".join(f"{{% block {one} %}}new{{% endblock %}}" for one in blocks))
        seen = [one.seen for one in components.templates()]
        assert all(one.endswith("what is built in has changed since") for one in seen[:-1]), seen
