"""The operator's own templates, mail texts and style: docs/reference/templates.md is the contract.

All of it is checked at the start, so that nobody who signs in meets an unknown name, a script that
the content security policy blocks, or an unclosed tag. Templates are checked without values: pages
render them outside of a sandbox, so each branch has to be right. What passes also renders in a
sandbox of Jinja, whatever the values are (tests/config/test_overrides.py).
"""

import hashlib
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from string import Formatter
from typing import Any

from jinja2 import Environment, TemplateSyntaxError, nodes

from sso.config import mail_texts
from sso.config.tables import ManyErrors, hint
from sso.i18n.languages import LANGUAGES

FUNCTIONS = ("_", "super", "language", "direction", "support_url")
FILTERS = ("e", "escape", "upper", "lower", "capitalize", "title", "trim")
BRAND = ("name", "logo")
_FUNCTION_CALLS = ", ".join(f"{name}()" for name in FUNCTIONS)
_OF_BRAND = tuple(f"brand.{name}" for name in BRAND)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_INLINE = _names("a abbr b bdi bdo br code em i img kbd small span strong sub sup time u wbr")
_TAGS = _INLINE | _names(
    "address aside blockquote dd details div dl dt figcaption figure h2 h3 hr li ol p section"
    " summary ul"
)
_IN_MAILS = _TAGS | _names("table tbody td th thead tr")
_VOID = _names("br hr img wbr")
_ATTRIBUTES = _names(
    "alt class datetime dir height href hreflang id lang rel role src target title width"
)
_CALLS = {"_": "one text in quotes, without %"}
_LINK = re.compile(r"(https://|mailto:|tel:|/(?!/)|#)")
# These stand for expressions while the HTML around them is checked.
_VALUE, _URL = "\ue000", "\ue001"
_UNQUOTED = re.compile(f"=\\s*[{_VALUE}{_URL}]")

_SIMPLE = (
    nodes.Output, nodes.TemplateData, nodes.Const, nodes.If, nodes.CondExpr, nodes.Compare,
    nodes.Operand, nodes.Not, nodes.And, nodes.Or, nodes.Concat,
)  # fmt: skip

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_QUOTED = re.compile(r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'")
_BLOCKED = re.compile(
    r"@import|@font-face|url\(\s*[\"']?\s*(?:[a-z][a-z0-9+.-]*:|//)", re.IGNORECASE
)


def errors_in_override(
    name: str,
    source: str,
    blocks: Sequence[str],
    variables: Sequence[str],
    defined: list[str],
) -> Iterator[str]:
    """Yield every error, with its line. `defined` receives the blocks that are overridden."""
    try:
        template = Environment(autoescape=True).parse(source)
    except TemplateSyntaxError as error:
        yield f"line {error.lineno}: {error.message}"
        return
    yield from _errors_at_the_top(name, template)
    for block in template.find_all(nodes.Block):
        if block.name not in blocks:
            yield f"line {block.lineno}: there is no block {block.name}; known: {', '.join(blocks)}"
            continue
        defined.append(block.name)
        for node in block.body:
            yield from _errors_of(node, variables)
        if not name.endswith(".txt"):
            yield from _html_errors(name, block)


def errors_in_style(source: str) -> Iterator[str]:
    """Yield what browsers would not load, and what would swallow the rules after it."""
    text = _COMMENT.sub(lambda match: "\n" * match[0].count("\n"), source)
    for number, line in enumerate(text.split("\n"), 1):
        for match in _BLOCKED.finditer(line):
            yield f"line {number}: the content security policy stops {match[0]}; remove it"
    bare = _QUOTED.sub("", text)
    if "/*" in bare:
        yield "a comment is not closed"
    elif bare.count("{") != bare.count("}"):
        yield "each { needs a }"


def _errors_at_the_top(name: str, template: nodes.Template) -> Iterator[str]:
    extends = [node for node in template.body if isinstance(node, nodes.Extends)]
    parent = f"sso/{name}"
    if not (len(extends) == 1 and extends[0].template == nodes.Const(parent)):
        yield f'it has to begin with {{% extends "{parent}" %}}'
    for node in template.body:
        is_space = isinstance(node, nodes.Output) and not _text_of(node).strip()
        if not (is_space or isinstance(node, nodes.Extends | nodes.Block)):
            yield f"line {node.lineno}: outside of blocks nothing is shown; move it into a block"


def _errors_of(node: nodes.Node, variables: Sequence[str]) -> Iterator[str]:
    """Yield the errors of an expression or a tag. What passes cannot fail when it is rendered."""
    at = f"line {node.lineno}:"
    if isinstance(node, nodes.Name):
        if node.name in FUNCTIONS:
            yield f"{at} {node.name} is a function: write {node.name}()"
        elif node.name not in (*variables, "brand"):
            names = ", ".join((*variables, *_OF_BRAND, _FUNCTION_CALLS))
            yield f"{at} {node.name} is not known here; known: {names}"
        elif node.name == "brand":
            yield f"{at} write {' or '.join(_OF_BRAND)}"
        return
    if isinstance(node, nodes.Getattr):
        if not (_is_named(node.node, "brand") and node.attr in BRAND):
            yield f"{at} .{node.attr} is not known; only {' and '.join(_OF_BRAND)} have a dot"
        return
    if isinstance(node, nodes.Call):
        name = node.node.name if isinstance(node.node, nodes.Name) else "this"
        if name not in FUNCTIONS:
            yield f"{at} {name}() is not known; known: {_FUNCTION_CALLS}"
        elif not _is_called_right(name, node):
            yield f"{at} {name}() takes {_CALLS.get(name, 'nothing')}"
        return
    if isinstance(node, nodes.Filter):
        if node.name not in FILTERS or node.args or node.kwargs:
            yield f"{at} the filter {node.name} is not known; known: {', '.join(FILTERS)}"
    elif not isinstance(node, _SIMPLE):
        yield f"{at} {type(node).__name__} cannot be used here; only text, values and if"
        return
    if isinstance(node, nodes.Compare) and any(
        operand.op not in ("eq", "ne") for operand in node.ops
    ):
        yield f"{at} compare with == or != only"
    for child in node.iter_child_nodes():
        yield from _errors_of(child, variables)


def _is_named(node: nodes.Node, name: str) -> bool:
    return isinstance(node, nodes.Name) and node.name == name


def _is_called_right(name: str, call: nodes.Call) -> bool:
    arguments = [*call.args, *call.kwargs, call.dyn_args, call.dyn_kwargs]
    constants = [node.value for node in call.args if isinstance(node, nodes.Const)]
    if name != "_":
        return not any(arguments)
    is_text = len(constants) == 1 and isinstance(constants[0], str) and "%" not in constants[0]
    return is_text and arguments == [*call.args, None, None] and len(call.args) == 1


def _text_of(node: nodes.Node, branch: int = 0) -> str:
    """Return the HTML of a node, with a character that nobody types in place of each value.

    `branch`: the number of the branch to take of each `if`.
    """
    if isinstance(node, nodes.TemplateData):
        return node.data
    if isinstance(node, nodes.Output):
        return "".join(_text_of(child, branch) for child in node.nodes)
    if isinstance(node, nodes.If):
        body = _branches(node)[min(branch, len(_branches(node)) - 1)]
        return "".join(_text_of(child, branch) for child in body)
    is_logo = isinstance(node, nodes.Getattr) and node.attr == "logo"
    is_url = isinstance(node, nodes.Call) and _is_named(node.node, "support_url")
    is_link = isinstance(node, nodes.Name) and node.name in ("link", "base_url")
    return _URL if is_logo or is_url or is_link else _VALUE


def _branches(node: nodes.If) -> list[list[nodes.Node]]:
    return [node.body, *(branch.body for branch in node.elif_), node.else_]


def _html_errors(name: str, block: nodes.Block) -> Iterator[str]:
    is_mail = name.startswith("mail/")
    allowed = _INLINE if block.name == "heading" else _IN_MAILS if is_mail else _TAGS
    count = max([1, *(len(_branches(statement)) for statement in block.find_all(nodes.If))])
    errors: list[str] = []
    for branch in range(count):
        reader = _Html(allowed, is_mail)
        text = "".join(_text_of(statement, branch) for statement in block.body)
        if "<!" in text or "<?" in text:
            errors.append("write comments as {# … #}: everyone sees those of HTML")
        reader.feed(text)
        if "<" in reader.rawdata:  # browsers and newer versions of Python drop this rest
            reader.handle_data(reader.rawdata)
        reader.close()
        errors += [*reader.errors, *(f"<{tag}> is not closed" for tag in reader.open)]
    for error in dict.fromkeys(errors):
        yield f"block {block.name}: {error}"


class _Html(HTMLParser):
    """Collects the errors of HTML that a page would not show as it is written."""

    def __init__(self, allowed: frozenset[str], is_mail: bool) -> None:
        super().__init__(convert_charrefs=False)
        self.allowed, self.is_mail = allowed, is_mail
        self.open: list[str] = []
        self.errors: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.allowed:
            self.errors.append(f"<{tag}> cannot be used here")
        if _UNQUOTED.search(self.get_starttag_text() or ""):
            self.errors.append(f"put the value in <{tag}> into quotes")
        for attribute, value in attrs:
            self._check(tag, attribute, value or "")
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in _VOID:
            return
        if self.open and self.open[-1] == tag:
            self.open.pop()
        else:
            self.errors.append(f"</{tag}> closes nothing, or the wrong tag")

    def handle_data(self, data: str) -> None:
        if "<" in data:
            self.errors.append("a tag is not complete; write &lt; for the sign itself")

    def _check(self, tag: str, attribute: str, value: str) -> None:
        if attribute == "style" and self.is_mail:
            return
        if attribute not in _ATTRIBUTES and not attribute.startswith("aria-"):
            self.errors.append(
                f"{attribute}= cannot be used in <{tag}>"
                + ("; the content security policy stops it" if attribute == "style" else "")
            )
        elif attribute in ("href", "src"):
            text = value.strip()
            is_own = text.startswith(_URL) or (text.startswith("/") and not text.startswith("//"))
            if _VALUE in text or _URL in text[1:]:  # a link with its secret is sent to nobody else
                self.errors.append(f"{attribute}= takes no such value; write the URL itself")
            elif attribute == "src" and not (is_own or (self.is_mail and _LINK.match(text))):
                self.errors.append(f"{attribute}= has to be a path of this server or brand.logo")
            elif not (text.startswith(_URL) or _LINK.match(text)):
                self.errors.append(f"{attribute}= has to begin with https://, mailto:, tel: or /")
        elif _VALUE in value and attribute not in ("alt", "title", "aria-label", "lang", "dir"):
            self.errors.append(f"{attribute}= takes fixed text only")


BUILT_IN = Path(__file__).resolve().parents[1] / "templates"
TEXTS = "mail/texts.toml"
STYLE = "custom.css"
_MAX_SIZE = 64 * 1024
_TEXT = ("heading", "intro", "help")
_ON_MAILS = ("subject", "name", "link", "action", "base_url", "button_color")

# The blocks of each template, and the variables in them beside those that are everywhere.
BLOCKS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "base.html": (("logo", "announcement", "footer"), ()),
    "sign_in.html": (_TEXT, ("client_name", "reauthenticate")),
    "second_factor.html": (_TEXT, ()),
    "sign_in_code.html": (_TEXT, ("client_name",)),
    "select_account.html": (_TEXT, ("client_name",)),
    "consent.html": (("heading", "help"), ("client_name",)),
    "terms.html": (_TEXT, ("client_name",)),
    "device.html": (_TEXT, ()),
    "device_confirm.html": (("heading", "help"), ("client_name",)),
    "device_done.html": (("help",), ()),
    "forbidden.html": (_TEXT, ("client_name",)),
    "sign_up.html": (_TEXT, ()),
    "complete_sign_up.html": (_TEXT, ("user_email",)),
    "forgotten_password.html": (_TEXT, ()),
    "new_password.html": (_TEXT, ("user_email", "invited")),
    "mail_sent.html": (("help",), ()),
    "error.html": (("help",), ("client_name",)),
    "sign_out.html": (("heading", "help"), ("client_name",)),
    "signed_out.html": (_TEXT, ()),
    "mail/message.html": (("header", "footer"), _ON_MAILS),
    "mail/message.txt": (("header", "footer"), _ON_MAILS),
}

_MADE_FOR = re.compile(r"\A\{?# made for ([0-9a-f]{8})\b")


@dataclass
class Overrides:
    """The checked files: templates by name, texts of mail by kind and language, rules of CSS."""

    templates: dict[str, str] = field(default_factory=dict)
    blocks: dict[str, list[str]] = field(default_factory=dict)
    texts: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    texts_source: str = ""
    style: str = ""


def checked(text: str) -> str:
    """Check SSO_TEMPLATES_DIR. Raises `ManyErrors` with all errors in the folder."""
    read(Path(text))
    return text


def read(folder: Path) -> Overrides:
    """Read all files in the folder. Raises `ManyErrors`."""
    overrides, errors = Overrides(), list(_unsafe(folder))
    for path in () if errors else sorted(_files(folder)):
        name = path.relative_to(folder).as_posix()
        names = [*BLOCKS, TEXTS, STYLE]
        if name not in names:
            remedy = hint(name, names, "remove it, or see the list")
            errors.append(f"{name}: no template of this name can be overridden; {remedy}")
            continue
        problems = list(_unsafe_file(path, folder))
        if not problems:
            try:
                source = path.read_text(encoding="utf-8")
            except (OSError, ValueError):
                problems = ["it cannot be read as UTF-8; check the file and its mode"]
            else:
                problems = list(_take(name, source, overrides))
        errors += [f"{name}: {error}" for error in problems]
    if errors:
        raise ManyErrors(errors)
    return overrides


def _unsafe(folder: Path) -> Iterator[str]:
    """Yield why others could write to the folder, and so ask people for their passwords."""
    if not folder.is_dir():
        yield "it is not a folder that this user can read; give the path of one"
        return
    real = folder.resolve()
    for path in (real, *real.parents):
        is_sticky = path.stat().st_mode & stat.S_ISVTX
        if _is_open(path) and (path == real or not is_sticky):
            yield f"everyone can write to {path}; run: chmod o-w {path}"


def is_read_only(path: Path) -> bool:
    """Return whether it is on a read-only mount, such as a ConfigMap, whatever its mode is."""
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def _is_open(path: Path) -> bool:
    return bool(path.stat().st_mode & stat.S_IWOTH) and not is_read_only(path)


def _files(folder: Path) -> Iterator[Path]:
    for place in (folder, folder / "mail"):
        for path in place.iterdir() if place.is_dir() else ():
            # Editors and Kubernetes create hidden files.
            if path.suffix in (".html", ".txt", ".toml", ".css") and not path.name.startswith("."):
                yield path


def _unsafe_file(path: Path, folder: Path) -> Iterator[str]:
    real = path.resolve()
    if not real.is_relative_to(folder.resolve()):
        yield "it is a link that leads out of the folder; copy the file into it"
    elif not real.is_file():
        yield "it is not a file"
    elif real.stat().st_size > _MAX_SIZE:
        yield f"it is larger than {_MAX_SIZE // 1024} kB"
    elif _is_open(real) or _is_open(real.parent):
        yield f"everyone can write to it; run: chmod -R o-w {folder}"


def _take(name: str, source: str, overrides: Overrides) -> Iterator[str]:
    if name == TEXTS:
        yield from _take_texts(source, overrides)
    elif name == STYLE:
        overrides.style = source
        yield from errors_in_style(source)
    else:
        blocks, variables = BLOCKS[name]
        defined = overrides.blocks[name] = []
        yield from errors_in_override(name, source, blocks, variables, defined)
        overrides.templates[name] = source


def _take_texts(source: str, overrides: Overrides) -> Iterator[str]:
    try:
        kinds = tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        yield f"it is not TOML: {error}"
        return
    overrides.texts_source = source
    for kind, languages in kinds.items():
        if kind not in mail_texts.TEXTS or not isinstance(languages, dict):
            remedy = hint(kind, mail_texts.TEXTS, f"known are {', '.join(mail_texts.TEXTS)}")
            yield f"[{kind}] is no kind of mail; {remedy}"
            continue
        for tag, text in languages.items():
            where = f"[{kind}.{tag}]"
            if tag not in LANGUAGES or not isinstance(text, dict):
                yield f"{where} is not one of the languages {', '.join(LANGUAGES)}"
                continue
            yield from (f"{where} {reason}" for reason in _text_errors(kind, text))
            overrides.texts[kind, tag] = text


def _text_errors(kind: str, text: dict[str, Any]) -> Iterator[str]:
    for name, value in text.items():
        if name == "paragraphs":
            fits = isinstance(value, list) and bool(value)
            parts = value if fits else []
        elif name in ("subject", "action"):
            fits, parts = True, [value]
        else:
            yield f"{name}: known are subject, paragraphs and action"
            continue
        if not fits or not all(isinstance(part, str) and part.strip() for part in parts):
            shape = "a list of texts" if name == "paragraphs" else "a text"
            yield f"{name}: give {shape}"
            continue
        if name != "paragraphs" and (len(value) > 200 or not value.isprintable()):
            yield f"{name}: give one line of at most 200 characters"
        yield from (f"{name}: {error}" for part in parts for error in _braces(kind, part))
    has_code = "{code}" in str(text.get("paragraphs", "{code}"))
    if "code" in mail_texts.TEXTS[kind].placeholders and not has_code:
        yield "paragraphs: they lack {code}, without which the mail is of no use"


def _braces(kind: str, text: str) -> Iterator[str]:
    names = (*mail_texts.EVERYWHERE, *mail_texts.TEXTS[kind].placeholders)
    try:
        parts = list(Formatter().parse(text))
    except ValueError:
        yield "a brace is open; write {{ and }} for braces themselves"
        return
    for _, name, spec, conversion in parts:
        if name is not None and (name not in names or spec or conversion):
            braces = ", ".join(f"{{{placeholder}}}" for placeholder in names)
            yield f"{{{name}}} is not known here; known are {braces}"


def made_for(source: str) -> str | None:
    """Return the `fingerprint` in the first line of a file, which says what it was made for."""
    match = _MADE_FOR.match(source)
    return match[1] if match else None


def fingerprint(name: str, blocks: list[str]) -> str:
    """Return a digest of the built-in text of these blocks, or "" if they are empty."""
    source = (BUILT_IN / name).read_text()
    bodies = (
        re.search(rf"{{% block {block} %}}(.*?){{% endblock %}}", source, re.DOTALL)
        for block in sorted(blocks)
    )
    texts = [match[1] if match else "" for match in bodies]
    return digest(*texts) if any(texts) else ""


def digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:8]
