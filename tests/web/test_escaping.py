"""No template shows what somebody typed as HTML: proven from the source of all templates."""

import ast
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from flask import Flask
from jinja2 import nodes

from sso.models import User
from tests.support.actors import Browser
from tests.support.each import each
from tests.support.factories import make_client

PACKAGE = Path(__file__).resolve().parents[2] / "sso"
TEMPLATES = sorted((PACKAGE / "templates").rglob("*.html"))
# What is not escaped, by template and expression, and why.
SAFE = {("totp_setup.html", "qr_code"): "our own SVG, made of squares alone"}
# Where a link or a form leads, if `url_for`, `asset` or `step` does not make it, and why.
TARGETS = {
    "action": "made by url_for, or a redirect URI that is registered",
    "again_url": "made by url_for",
    "back": "made by url_for",
    "back[1]": "an application's registered URL",
    "back_url": "a redirect URI that is registered",
    "brand.logo": "a file of the operator's",
    "brand.logo or asset('favicon.svg')": "a file of the operator's, or of ours",
    "client.home_url": "home_url_error accepts http and https alone",
    "export_url": "made by url_for",
    "domains_export_url": "made by url_for",
    "exports.csv": "made by url_for",
    "exports.jsonl": "made by url_for",
    "follow": "made by url_for",
    "home": "the application's registered origin (proxy_error.html)",
    "home_url": "our own",
    "link": "a mailed link, below our own URL",
    "one.link": "made by url_for",
    "link[1]": "made by url_for",
    "logo": "made by url_for",
    "next_url": "made by url_for",
    "page_url": "made by url_for",
    "pages.next": "made by url_for",
    "pages.previous": "made by url_for",
    "picture_url(user)": "our own, with a name that is checked",
    "place": "our own, before a path of ours (proxy_error.html)",
    "stop": "made by url_for",
    "support_url()": "of the settings: https or mailto",
    "terms_url()": "of the settings: https",
    "switch_url": "made by url_for",
    "uri": "otpauth, for an authenticator app",
    "url": "of the settings (base.html), of a provider's metadata (signing_out.html), or url_for",
}
# Styles of mails, and attributes that a block of the template itself makes.
STYLED = {("mail/message.html", "button_color"): "a color of the settings, checked as one"}
ATTRIBUTES = {
    ("admin/_macros.html", "described"): "set in the template, escaped there",
    ("_attributes.html", "described"): "set in the template, escaped there",
}
OWN = re.compile(r"(?:url_for|asset|step)\([^{}]*\)(?: if \w+ else (?:url_for|step)\([^{}]*\))?")
STYLED_FILES = {name for name, _ in STYLED}
LEADS = {"href", "src", "action", "formaction", "data", "poster", "background", "cite", "ping"}
# The names of Python's files whose Markup is not a literal, and how many there are.
MADE_IN_PYTHON = {
    "i18n/languages.py": 2,
}

_CODE = re.compile(r"\{#.*?#\}|\{%.*?%\}|\{\{(.*?)\}\}", re.DOTALL)


def name_of(template: Path) -> str:
    return str(template.relative_to(PACKAGE / "templates"))


class _Places(HTMLParser):
    """Where the values stand in a page; each is replaced by its number between two marks."""

    def __init__(self, name: str, source: str) -> None:
        super().__init__(convert_charrefs=False)
        self.name = name
        self.values: list[str] = []
        self.faults: list[str] = []
        self.targets: list[str] = []
        self.feed(_CODE.sub(self._mark, source))
        self.close()

    def _mark(self, match: re.Match[str]) -> str:
        if match[1] is None:
            return " " if "\n" in match[0] else ""
        self.values.append(match[1].strip())
        return f"⟦{len(self.values) - 1}⟧"

    def _value(self, text: str) -> str:
        return re.sub(r"⟦(\d+)⟧", lambda match: "{{ " + self.values[int(match[1])] + " }}", text)

    def _all(self, text: str, allowed: dict[tuple[str, str], str]) -> bool:
        numbers = re.findall(r"⟦(\d+)⟧", text)
        return all((self.name, self.values[int(number)]) in allowed for number in numbers)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        text = self.get_starttag_text() or ""
        if re.search(r"=\s*[^\"'\s>]*⟦", re.sub(r"=\s*(\"[^\"]*\"|'[^']*')", "", text)):
            self.faults.append(f"unquoted: {self._value(text)}")
        for name, value in attrs:
            self._attribute(tag, name, value or "")

    handle_startendtag = handle_starttag

    def _attribute(self, tag: str, name: str, value: str) -> None:
        shown = self._value(f'<{tag} {name}="{value}">')
        if name.startswith("on") or name == "srcdoc":
            self.faults.append(shown)
        if name == "style" and (self.name not in STYLED_FILES or not self._all(value, STYLED)):
            self.faults.append(shown)
        if "⟦" in name and not self._all(name, ATTRIBUTES):
            self.faults.append(shown)
        if name in LEADS:
            if match := re.match(r"\s*⟦(\d+)⟧", value):
                self.targets.append(self.values[int(match[1])])
            elif re.match(r"\s*(?:javascript|data|vbscript):", value, re.IGNORECASE):
                self.faults.append(shown)

    def handle_data(self, data: str) -> None:
        if self.cdata_elem and data.strip():
            self.faults.append(f"<{self.cdata_elem}>{self._value(data)}")

    def handle_comment(self, data: str) -> None:
        if "⟦" in data:
            self.faults.append(f"<!--{self._value(data)}-->")


def faults_of(app: Flask, name: str, source: str) -> Iterator[str]:
    tree = app.jinja_env.parse(source)
    for node in tree.find_all(
        (nodes.Filter, nodes.EvalContextModifier, nodes.MarkSafe, nodes.Name, nodes.FilterBlock)
    ):
        if isinstance(node, nodes.Filter) and node.name in ("safe", "xmlattr"):
            text = node.node.name if isinstance(node.node, nodes.Name) else "?"
            if (name, text) not in SAFE:
                yield f"{text}|{node.name}"
        elif isinstance(node, nodes.EvalContextModifier | nodes.MarkSafe):
            yield f"autoescape in line {node.lineno}"
        elif isinstance(node, nodes.Name) and node.name == "Markup":
            yield "Markup"
    places = _Places(name, source)
    yield from places.faults
    for target in places.targets:
        if target not in TARGETS and not OWN.fullmatch(target):
            yield f"leads to {{{{ {target} }}}}"


@each("template", TEMPLATES)
def test_every_value_is_escaped_where_it_stands(app: Flask, template: Path) -> None:
    assert app.jinja_env.autoescape(name_of(template))  # type: ignore[operator]
    assert not list(faults_of(app, name_of(template), template.read_text()))


@pytest.mark.parametrize(
    "source",
    [
        "<p>{{ name|safe }}</p>", "{% autoescape false %}{{ name }}{% endautoescape %}",
        "<p title={{ name }}>", "<p title=a{{ name }}>", '<a href="{{ name }}">',
        "<a href='javascript:x({{ name }})'>", '<p onclick="x({{ name }})">', "<p {{ name }}=1>",
        "<script>{{ name }}</script>", "<style>a { color: {{ name }} }</style>",
        '<p style="color: {{ name }}">', "<!-- {{ name }} -->", "{{ Markup(name) }}",
        "{% filter safe %}{{ name }}{% endfilter %}", '<iframe srcdoc="{{ name }}">',
        "<input{{ attrs|xmlattr }}>", '<button formaction="{{ name }}">',
    ],
)  # fmt: skip
def test_each_fault_is_detected(app: Flask, source: str) -> None:
    assert list(faults_of(app, "consent.html", source))


def test_the_exceptions_are_needed(app: Flask) -> None:
    source = "".join(template.read_text() for template in TEMPLATES)
    assert all(f"{{{{ {value}|safe }}}}" in source for _, value in SAFE)
    targets = {one for path in TEMPLATES for one in _Places("", path.read_text()).targets}
    assert set(TARGETS) <= targets
    for name, value in STYLED | ATTRIBUTES:
        assert f"{{{{ {value} }}}}" in (PACKAGE / "templates" / name).read_text()


def test_python_makes_html_of_literals_alone() -> None:
    made: dict[str, int] = {}
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "Markup" in text else ():
            if (
                isinstance(node, ast.Call)
                and getattr(node.func, "id", getattr(node.func, "attr", "")) == "Markup"
                and not all(isinstance(one, ast.Constant) for one in node.args)
            ):
                name = str(path.relative_to(PACKAGE))
                made[name] = made.get(name, 0) + 1
    assert made == MADE_IN_PYTHON


def test_what_an_application_is_called_is_text(app: Flask, browser: Browser, user: User) -> None:
    name = "<img src=x onerror=alert(1)>"
    client = make_client(app, name=name)
    pages = [browser.authorize(client), browser.sign_in()]
    browser.allow()
    pages += [browser.open("/api/auth/account"), browser.authorize(client, prompt="consent")]
    for page in pages:
        assert "onerror=alert" in page.html
        assert "<img src=x" not in page.html
