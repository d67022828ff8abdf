"""The templates of presets: which names they may use, how values are quoted and texts translated.

A filter writes a text as a value of a file format, and refuses a text that the format cannot hold.
Line breaks and invisible characters never reach it (see `installation.text_problem`).

Texts that people read are translated, unlike names of files and commands. Their catalog is
`presets`, apart from that of the pages: only a few pages need it.
"""

import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from xml.sax.saxutils import escape

from jinja2 import StrictUndefined, TemplateError, meta, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from sso.config.urls import SAML_LOGOUT, SAML_METADATA, SAML_SIGN_ON
from sso.i18n.message import Message
from sso.presets.preset_file import Preset, PresetError

_BARE = re.compile(r"[A-Za-z0-9_./:@+,-]+")


class Unquotable(ValueError):
    """The format has no way to write this text that all its parsers understand."""


def _unless(pattern: str, value: str, file_format: Message) -> None:
    if match := re.search(pattern, value):
        raise Unquotable(
            Message(
                "%(value)s cannot be written in %(format)s because of %(sign)s",
                value=repr(value),
                format=file_format,
                sign=repr(match[0]),
            )
        )


def quote_json(value: Any) -> str:
    """Quote for JSON, YAML, TOML and JavaScript. Nothing is escaped: TOML has no surrogates."""
    return json.dumps(value, ensure_ascii=False)


def quote_php(value: str) -> str:
    """Quote for PHP and Ruby: neither expands anything between apostrophes."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def quote_python(value: Any) -> str:
    return repr(value)


def quote_hcl(value: str) -> str:
    """Quote as JSON, and escape Terraform's templates."""
    return quote_json(value).replace("${", "$${").replace("%{", "%%{")


def quote_apache(value: str) -> str:
    """Quote for Apache, which expands variables also in quotes."""
    _unless(r"[$%]\{", value, Message("an Apache configuration"))
    return quote_json(value)


def quote_ini(value: str) -> str:
    """Quote for INI files; refuse everything that some parsers unescape or expand."""
    _unless(r'["\\`]|%\(|\$(__\w+)?\{', value, Message("an INI file"))
    is_bare = re.fullmatch(r"[\w.(\[][^;#]*", value) and value == value.strip()
    return value if is_bare else f'"{value}"'


def quote_env(value: str) -> str:
    """Quote for shells, systemd, Docker Compose and dotenv libraries."""
    if _BARE.fullmatch(value):
        return value
    _unless(r"\\", value, Message("an environment file"))
    if "'" not in value:
        return f"'{value}'"
    _unless(r'["$`]', value, Message("an environment file, together with an apostrophe,"))
    return f'"{value}"'


def quote_xml(value: str) -> str:
    return escape(value, {'"': "&quot;", "'": "&apos;"})


FILTERS: Mapping[str, Callable[[Any], str]] = {
    "json": quote_json,
    "shell": shlex.quote,
    "php": quote_php,
    "python": quote_python,
    "hcl": quote_hcl,
    "apache": quote_apache,
    "ini": quote_ini,
    "env": quote_env,
    "xml": quote_xml,
}


URL_PARTS = frozenset({"url", "origin", "host", "hostname_port", "path", "port", "scheme"})
# Of this server as an identity provider; the first is its entity ID, too.
SAML_URLS = {"metadata_url": SAML_METADATA, "sso_url": SAML_SIGN_ON, "slo_url": SAML_LOGOUT}
SERVER = frozenset({"issuer", "issuer_host", "discovery", "endpoints", *SAML_URLS})
CLIENT = frozenset({
    "client_id", "client_secret", "client_name", "service_name", "scope", "id_token_alg",
    "certificate",
})  # fmt: skip
# These need no quoting: URLs have few characters, and the rest is made by us. The certificate has
# lines of base64; where they have to be one value, its test fails without a filter.
_INERT = URL_PARTS | SERVER | {"client_id", "client_secret", "scope", "id_token_alg", "certificate"}

_environment = ImmutableSandboxedEnvironment(
    undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True
)
_environment.filters |= FILTERS
_environment.globals.clear()


@dataclass(frozen=True)
class Uses:
    """The names that a template uses; an option is `options.NAME`.

    `unquoted`: the names without a filter that quotes. `filters`: those of the others.
    """

    names: frozenset[str]
    unquoted: frozenset[str]
    filters: frozenset[str]


@cache
def uses(text: str) -> Uses:
    """Return the names that a template uses. Raises `ValueError` for syntax errors."""
    try:
        tree = _environment.parse(text)
        names = meta.find_undeclared_variables(tree)
    except TemplateError as error:
        raise ValueError(str(error)) from None
    options = [option for node in tree.find_all(nodes.Expr) if (option := _option(node))]
    mentions = [node for node in tree.find_all(nodes.Name) if node.name == "options"]
    if len(mentions) == len(options):  # else all options are used somewhere
        names.discard("options")
    names.update(options)
    written = _Writing().of(tree)
    return Uses(
        frozenset(names),
        frozenset(name for name, quoted_by in written if not quoted_by),
        frozenset(quoted_by for _, quoted_by in written if quoted_by),
    )


def _option(node: nodes.Node) -> str | None:
    if isinstance(node, nodes.Getattr | nodes.Getitem) and isinstance(node.node, nodes.Name):
        if node.node.name != "options":
            return None
        if isinstance(node, nodes.Getattr):
            return f"options.{node.attr}"
        return f"options.{node.arg.value}" if isinstance(node.arg, nodes.Const) else "options.*"
    return None


class _Writing:
    """Finds the names that are written, each with the outermost filter that quotes it.

    A variable of the template stands for the names in its value.
    """

    def __init__(self) -> None:
        self._variables: dict[str, set[tuple[str, str]]] = {"loop": set()}

    def of(self, node: nodes.Node, quoted_by: str = "") -> set[tuple[str, str]]:
        if isinstance(node, nodes.Compare | nodes.Test | nodes.Not):
            return set()  # true or false
        if isinstance(node, nodes.Assign | nodes.AssignBlock):
            self._set(node.target, self._of_children(node, ""))
            return set()
        if isinstance(node, nodes.For):
            self._set(node.target, self.of(node.iter))
            return set().union(*(self.of(child) for child in (*node.body, *node.else_)))
        if isinstance(node, nodes.Filter) and node.name in FILTERS:
            quoted_by = quoted_by or node.name
        if option := _option(node):
            return {(option, quoted_by)}
        if isinstance(node, nodes.Name):
            if node.name in self._variables:
                return {(name, quoted_by or by) for name, by in self._variables[node.name]}
            return set() if node.name in _INERT else {(node.name, quoted_by)}
        return self._of_children(node, quoted_by)

    def _set(self, target: nodes.Node, names: set[tuple[str, str]]) -> None:
        for node in (target, *target.find_all(nodes.Name)):
            if isinstance(node, nodes.Name):
                self._variables.setdefault(node.name, set()).update(names)

    def _of_children(self, node: nodes.Node, quoted_by: str) -> set[tuple[str, str]]:
        children = node.iter_child_nodes(exclude=("test", "target"))
        return set().union(*(self.of(child, quoted_by) for child in children))


def render(text: str, variables: Mapping[str, Any]) -> str:
    """Fill in a template. Raises `PresetError` for values that the format cannot hold."""
    if "{" not in text:  # most titles, in each language: nothing to compile and keep
        return text
    try:
        return _compiled(text).render(variables)
    except Unquotable as error:
        raise PresetError([error.args[0]]) from None


_compiled = cache(_environment.from_string)


_FILE_NAME = re.compile(r"\S*[./]\S*")


def translated(preset: Preset, translate: Callable[[str], str]) -> Preset:
    """Return a preset in another language. Its templates are not filled in yet."""

    def words(text: str) -> str:
        return text if not text or _FILE_NAME.fullmatch(text) else translate(text)

    return replace(
        preset,
        summary=words(preset.summary),
        options={
            name: replace(option, help=words(option.help))
            for name, option in preset.options.items()
        },
        setup=tuple(
            replace(block, title=words(block.title), where=words(block.where))
            for block in preset.setup
        ),
        notes=tuple(replace(note, text=words(note.text)) for note in preset.notes),
    )


def texts(preset: Preset) -> list[str]:
    """Return the texts of a preset that a catalog has."""
    messages: list[str] = []

    def keep(text: str) -> str:
        messages.append(text)
        return text

    translated(preset, keep)
    return messages
