"""Languages: every catalog is whole, and a person gets the one that was asked for."""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from babel.messages.mofile import read_mo
from babel.messages.pofile import read_po
from flask import Flask, render_template_string

from sso.crypto import password_strength, passwords
from sso.i18n import languages
from sso.models import User
from sso.presets import loader, templates
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty
from tests.support.each import each
from tests.support.mailbox import Mailbox, text_of

CATALOGS = Path(languages.__file__).parents[1] / "translations"
TRANSLATED = [tag for tag in languages.LANGUAGES if tag != languages.DEFAULT]
TITLES = {"de": "Anmelden", "fr": "Connexion", "ja": "サインイン", "ar": "تسجيل الدخول"}
SIGN_IN = f"{ORIGIN}{BASE}/sign-in"


def test_there_is_a_catalog_for_each() -> None:
    assert sorted(path.name for path in CATALOGS.iterdir() if path.is_dir()) == sorted(TRANSLATED)


@pytest.mark.slow
def test_the_template_has_all_words(tmp_path: Path) -> None:
    extracted = tmp_path / "messages.pot"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "babel.messages.frontend", "-q", "extract"),
            *("-F", "pyproject.toml", "-k", "N_", "-k", "lazy_gettext", "-k", "Message"),
            *("--omit-header", "--no-location", "--sort-output", "-o", str(extracted), "."),
        ],
        cwd=CATALOGS.parent.parent,
        check=False,
    )
    assert done.returncode == 0
    with extracted.open("rb") as now, (CATALOGS / "messages.pot").open("rb") as kept:
        assert {m.id for m in read_po(now)} == {m.id for m in read_po(kept)}


def test_no_words_are_hidden_from_the_template() -> None:
    """pybabel leaves out, and says nothing, what stands in parentheses of its own."""
    hidden = re.compile(r"\b(gettext|N_|Message)\(\s*\(")
    sources = CATALOGS.parent.rglob("*.py")
    assert [path for path in sources if hidden.search(path.read_text(encoding="utf-8"))] == []


def test_a_browser_on_a_system_is_read_from_the_right_in_arabic() -> None:
    """Both names are Latin: without a mark, `<bdi>` takes the whole for English."""
    with (CATALOGS / "ar" / "LC_MESSAGES" / "messages.po").open("rb") as file:
        message = read_po(file, locale="ar").get("%(browser)s on %(system)s")
    assert message
    assert str(message.string).startswith("\N{RIGHT-TO-LEFT MARK}")


def test_the_template_has_the_texts_of_all_presets() -> None:
    with (CATALOGS / "presets.pot").open("rb") as file:
        kept = {message.id for message in read_po(file) if message.id}
    found = {text for preset in loader.every() for text in templates.texts(preset)}
    assert found == kept, "run: scripts/preset_texts.py"


@each("domain, tag", [(d, t) for d in ("messages", "presets") for t in TRANSLATED])
def test_a_catalog_is_whole(domain: str, tag: str) -> None:
    folder = CATALOGS / tag / "LC_MESSAGES"
    with (folder / f"{domain}.po").open("rb") as file:
        catalog = read_po(file, locale=tag)
    with (CATALOGS / f"{domain}.pot").open("rb") as file:
        template = read_po(file)
    assert {message.id for message in catalog} == {message.id for message in template}
    for message in catalog:
        if message.id:
            assert message.string, message.id
            assert not message.fuzzy, message.id
            assert isinstance(message.id, str)  # none has a plural
            assert isinstance(message.string, str)
            named = r"%\((\w+)\)s"
            assert set(re.findall(named, message.id)) == set(re.findall(named, message.string))
            braces = r"\{\w+\}"
            assert sorted(re.findall(braces, message.id)) == sorted(
                re.findall(braces, message.string)
            )
            tags = r"</?\w+>"
            assert sorted(re.findall(tags, message.id)) == sorted(re.findall(tags, message.string))
            if domain == "presets":
                code = r"`[^`]+`|\{\{.*?\}\}|--[a-z][\w-]+|[A-Za-z]+_[A-Za-z_]+"
                names = Counter(re.findall(code, message.id, re.ASCII))
                assert names == Counter(re.findall(code, message.string, re.ASCII))
    with (folder / f"{domain}.mo").open("rb") as file:
        compiled = read_mo(file)
    words = {message.id: message.string for message in catalog if message.id}
    kept = {message.id: message.string for message in compiled if message.id}
    assert words == kept, "run: pybabel compile"


@pytest.mark.parametrize("tag", TITLES)
def test_the_browser_chooses(app: Flask, tag: str) -> None:
    answer = app.test_client().get(f"{BASE}/sign-in", headers={"Accept-Language": f"{tag},en;q=.5"})
    assert f"<h1>{TITLES[tag]}</h1>" in answer.text
    direction = "rtl" if tag == "ar" else "ltr"
    assert f'<html lang="{tag}" dir="{direction}">' in answer.text
    assert answer.headers["Content-Language"] == tag


@pytest.mark.parametrize("asked", ["xx", "", "../../etc", "zz_" * 50, "\n", "*"])
def test_an_unknown_language_is_english(app: Flask, asked: str) -> None:
    headers = {"Accept-Language": asked.replace("\n", " ")}
    answer = app.test_client().get(f"{BASE}/sign-in", headers=headers)
    assert '<html lang="en"' in answer.text


def test_the_operator_chooses_for_the_rest(
    make_app: Callable[..., Flask], mailbox: Mailbox
) -> None:
    for tag in languages.LANGUAGES:  # the setting knows each of them
        made = make_app(SSO_LANGUAGE=tag)
    answer = made.test_client().get(f"{BASE}/sign-in", headers={"Accept-Language": "xx"})
    assert f'<html lang="{tag}"' in answer.text
    mailbox.app = made
    del made.extensions["sso.language"]  # commands have no page
    made.extensions["sso.settings"] = replace(
        made.extensions["sso.settings"], smtp_url=mailbox.server.url
    )
    result = made.test_cli_runner().invoke(
        args=["user", "invite", "--email", "ann@example.com", "--name", "Ann"]
    )
    assert result.exit_code == 0, result.output
    (mail,) = mailbox.read()
    assert f'<html lang="{tag}"' in text_of(mail, "html")


@pytest.mark.parametrize(
    ("ui_locales", "tag"), [("xx de fr", "de"), ("fr-CA", "fr"), ("xx", "es"), ("%", "es")]
)
def test_the_application_asks(
    browser: Browser, client: RelyingParty, ui_locales: str, tag: str
) -> None:
    browser.http.environ_base["HTTP_ACCEPT_LANGUAGE"] = "es"
    page = browser.authorize(client, ui_locales=ui_locales)
    assert f'<html lang="{tag}"' in page.html


def test_the_account_chooses(browser: Browser, user: User) -> None:
    browser.http.environ_base["HTTP_ACCEPT_LANGUAGE"] = "es"
    browser.sign_in()
    assert '<html lang="es"' in browser.page.html
    assert '<html lang="ja"' in browser.submit(action="choose_language", locale="ja").html
    assert '<html lang="es"' in browser.submit(action="choose_language", locale="").html
    assert '<html lang="es"' in browser.submit(action="choose_language", locale="xx").html


def test_the_words_say_the_numbers() -> None:
    for text in (passwords.TOO_SHORT, password_strength.RULES):
        assert str(passwords.MIN_LENGTH) in text
    assert str(passwords.MAX_LENGTH) in passwords.TOO_LONG


def test_variables_are_escaped_in_each_language(app: Flask) -> None:
    template = """{{ _("to continue to %(client)s 100%%", client=name) }} {{ _("Sign in") }}"""
    template += "{% autoescape false %} {{ _('%(a)s', a=name) }} {{ _('&') }}{% endautoescape %}"
    for tag, title in [*TITLES.items(), ("en", "Sign in")] * 2:
        with app.test_request_context(headers={"Accept-Language": tag}):
            shown = render_template_string(template, name="<b>%(x)s")
        assert shown == f"to continue to &lt;b&gt;%(x)s 100% {title} <b>%(x)s &"


def test_a_name_turns_no_text_around_it(app: Flask) -> None:
    """Nor one in a title or an error message, where no markup can isolate it."""
    name = "evil\u202egnp.exe\u2066 \u05d0\u200f"
    template = (
        "<title>{{ name }} · {{ [name]|join('; ') }}</title>{% trans n=name|isolate %}Sign out of"
        " {{ n }}?{% endtrans %}{% macro m(x) %}<b>{{ x }}</b>{% endmacro %}{{ m(name) }}"
    )
    with app.test_request_context():
        page = render_template_string(template, name=name + "<i>")
    assert not set("\u202e\u2066") & set(page)
    assert page.count("evilgnp.exe \u05d0\u200f&lt;i&gt;") == 4
