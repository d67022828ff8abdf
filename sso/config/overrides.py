"""The operator's own templates, mail texts and style: docs/reference/templates.md is the contract.

All of it is checked at the start: few expressions, and HTML that pages can show. Otherwise the
people who sign in would be the first to meet an unknown name, a script that the content security
policy blocks, or an unclosed tag.
"""

import hashlib
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from html.parser import HTMLParser
from pathlib import Path
from string import Formatter
from typing import Any

from jinja2 import Environment, TemplateSyntaxError, nodes

from sso.config.tables import ManyErrors
from sso.i18n.languages import LANGUAGES

FUNCTIONS = ("_", "super", "language", "direction", "support_url")
FILTERS = ("e", "escape", "upper", "lower", "capitalize", "title", "trim")
BRAND = ("name", "logo")
_OF_BRAND = tuple(f"brand.{one}" for one in BRAND)


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
# What stands for an expression while the HTML around it is looked at.
_SHOWN, _URL = "\ue000", "\ue001"
_UNQUOTED = re.compile(f"=\\s*[{_SHOWN}{_URL}]")

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
    """Every fault, with its line. `defined` receives the blocks that the template overrides."""
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
    """What browsers would not load, or what would swallow the rules after it."""
    text = _COMMENT.sub(lambda found: "\n" * found[0].count("\n"), source)
    for number, line in enumerate(text.split("\n"), 1):
        for found in _BLOCKED.finditer(line):
            yield f"line {number}: the content security policy stops {found[0]}; remove it"
    bare = _QUOTED.sub("", text)
    if "/*" in bare:
        yield "a comment is not closed"
    elif bare.count("{") != bare.count("}"):
        yield "each { needs a }"


def _errors_at_the_top(name: str, template: nodes.Template) -> Iterator[str]:
    parents = [one for one in template.body if isinstance(one, nodes.Extends)]
    wanted = f"sso/{name}"
    if not (len(parents) == 1 and parents[0].template == nodes.Const(wanted)):
        yield f'it has to begin with {{% extends "{wanted}" %}}'
    for one in template.body:
        is_space = isinstance(one, nodes.Output) and not _text_of(one).strip()
        if not (is_space or isinstance(one, nodes.Extends | nodes.Block)):
            yield f"line {one.lineno}: outside of blocks nothing is shown; move it into a block"


def _errors_of(node: nodes.Node, variables: Sequence[str]) -> Iterator[str]:
    """What an expression or a tag must not be. Nothing that is let through can fail later."""
    at = f"line {node.lineno}:"
    if isinstance(node, nodes.Name):
        if node.name in FUNCTIONS:
            yield f"{at} {node.name} is a function: write {node.name}()"
        elif node.name not in (*variables, "brand"):
            known = ", ".join((*variables, *_OF_BRAND, *(f"{one}()" for one in FUNCTIONS)))
            yield f"{at} {node.name} is not known here; known: {known}"
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
            yield f"{at} {name}() is not known; known: {', '.join(f'{f}()' for f in FUNCTIONS)}"
        elif not _is_called_right(name, node):
            yield f"{at} {name}() takes {_CALLS.get(name, 'nothing')}"
        return
    if isinstance(node, nodes.Filter):
        if node.name not in FILTERS or node.args or node.kwargs:
            yield f"{at} the filter {node.name} is not known; known: {', '.join(FILTERS)}"
    elif not isinstance(node, _SIMPLE):
        yield f"{at} {type(node).__name__} cannot be used here; only text, values and if"
        return
    if isinstance(node, nodes.Operand) and node.op not in ("eq", "ne"):
        yield f"{at} compare with == or != only"
    for child in node.iter_child_nodes():
        yield from _errors_of(child, variables)


def _is_named(node: nodes.Node, name: str) -> bool:
    return isinstance(node, nodes.Name) and node.name == name


def _is_called_right(name: str, call: nodes.Call) -> bool:
    given = [*call.args, *call.kwargs, call.dyn_args, call.dyn_kwargs]
    texts = [one.value for one in call.args if isinstance(one, nodes.Const)]
    if name != "_":
        return not any(given)
    is_text = len(texts) == 1 and isinstance(texts[0], str) and "%" not in texts[0]
    return is_text and given == [*call.args, None, None] and len(call.args) == 1


def _text_of(node: nodes.Node, branch: int = 0) -> str:
    """The HTML of a node; what is shown of values is a character that nobody types.

    `branch`: which one of each `if`.
    """
    if isinstance(node, nodes.TemplateData):
        return node.data
    if isinstance(node, nodes.Output):
        return "".join(_text_of(one, branch) for one in node.nodes)
    if isinstance(node, nodes.If):
        taken = _branches(node)[min(branch, len(_branches(node)) - 1)]
        return "".join(_text_of(one, branch) for one in taken)
    is_logo = isinstance(node, nodes.Getattr) and node.attr == "logo"
    is_url = isinstance(node, nodes.Call) and _is_named(node.node, "support_url")
    is_link = isinstance(node, nodes.Name) and node.name in ("link", "base_url")
    return _URL if is_logo or is_url or is_link else _SHOWN


def _branches(node: nodes.If) -> list[list[nodes.Node]]:
    return [node.body, *(one.body for one in node.elif_), node.else_]


def _html_errors(name: str, block: nodes.Block) -> Iterator[str]:
    is_mail = name.startswith("mail/")
    allowed = _INLINE if block.name == "heading" else _IN_MAILS if is_mail else _TAGS
    count = max([1, *(len(_branches(one)) for one in block.find_all(nodes.If))])
    errors: list[str] = []
    for branch in range(count):
        reader = _Html(allowed, is_mail)
        text = "".join(_text_of(one, branch) for one in block.body)
        if "<!" in text or "<?" in text:
            errors.append("write comments as {# … #}: everyone sees those of HTML")
        reader.feed(text)
        if "<" in reader.rawdata:  # what is left: browsers, and newer Pythons, drop it
            reader.handle_data(reader.rawdata)
        reader.close()
        errors += [*reader.errors, *(f"<{tag}> is not closed" for tag in reader.open)]
    for error in dict.fromkeys(errors):
        yield f"block {block.name}: {error}"


class _Html(HTMLParser):
    """Collects what a page would not show as it is written."""

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
            is_ours = text.startswith(_URL) or (text.startswith("/") and not text.startswith("//"))
            if _SHOWN in text or _URL in text[1:]:  # a link with its secret goes nowhere else
                self.errors.append(f"{attribute}= takes no such value; write the URL itself")
            elif attribute == "src" and not (is_ours or (self.is_mail and _LINK.match(text))):
                self.errors.append(f"{attribute}= has to be a path of this server or brand.logo")
            elif not (text.startswith(_URL) or _LINK.match(text)):
                self.errors.append(f"{attribute}= has to begin with https://, mailto:, tel: or /")
        elif _SHOWN in value and attribute not in ("alt", "title", "aria-label", "lang", "dir"):
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
    "select_account.html": (_TEXT, ("client_name",)),
    "consent.html": (("heading", "help"), ("client_name",)),
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

# What can stand in braces in the texts of each kind of mail, beside {service} and {address}.
PLACEHOLDERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("verify", "change_email", "reset"), ()),
    "invite": ("until",),
    "sign_up": (),
    "directory_password": ("provider",),
    "known_address": (),
    "email_change_asked": ("new_address",),
    "email_changed": ("new_address",),
    "account_deleted": (),
    "password_changed": (),
    "new_browser": ("browser", "network", "time"),
    "factor_added": ("factor",),
    "factor_removed": ("factor",),
    "identity_added": ("provider", "account"),
    "identity_removed": ("provider", "account"),
    "recovery_code_used": ("left",),
    "recovery_codes_made": (),
    "second_step_missing": ("browser", "network", "time"),
    "enrolment_code": ("code",),
}
_MADE_FOR = re.compile(r"\A\{?# made for ([0-9a-f]{8})\b")


@dataclass
class Overrides:
    """Checked: templates by name, the texts of mails by kind and language, rules of CSS."""

    templates: dict[str, str] = field(default_factory=dict)
    blocks: dict[str, list[str]] = field(default_factory=dict)
    texts: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    texts_source: str = ""
    style: str = ""


def checked(text: str) -> str:
    """The folder as given. Raises `ManyErrors`, one for each fault in it."""
    read(Path(text))
    return text


def read(folder: Path) -> Overrides:
    """Everything in the folder. Raises `ManyErrors`."""
    found, errors = Overrides(), list(_unsafe(folder))
    for path in () if errors else sorted(_files(folder)):
        name = path.relative_to(folder).as_posix()
        known = [*BLOCKS, TEXTS, STYLE]
        if name not in known:
            close = get_close_matches(name, known, n=1)
            errors.append(
                f"{name}: no template of this name can be overridden"
                + (f"; did you mean {close[0]}?" if close else "; remove it, or see the list")
            )
            continue
        faults = list(_unsafe_file(path, folder))
        if not faults:
            try:
                source = path.read_text(encoding="utf-8")
            except (OSError, ValueError):
                faults = ["it cannot be read as UTF-8; check the file and its mode"]
            else:
                faults = list(_take(name, source, found))
        errors += [f"{name}: {fault}" for fault in faults]
    if errors:
        raise ManyErrors(errors)
    return found


def _unsafe(folder: Path) -> Iterator[str]:
    """Anyone who can write here can ask for passwords: it must be as safe as the program."""
    if not folder.is_dir():
        yield "it is not a folder that this user can read; give the path of one"
        return
    real = folder.resolve()
    for one in (real, *real.parents):
        is_sticky = one.stat().st_mode & stat.S_ISVTX
        if _is_open(one) and (one == real or not is_sticky):
            yield f"everyone can write to {one}; run: chmod o-w {one}"


def is_read_only(path: Path) -> bool:
    """Whether it is mounted so, as a ConfigMap of Kubernetes is, whose modes say otherwise."""
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def _is_open(path: Path) -> bool:
    return bool(path.stat().st_mode & stat.S_IWOTH) and not is_read_only(path)


def _files(folder: Path) -> Iterator[Path]:
    for place in (folder, folder / "mail"):
        for path in place.iterdir() if place.is_dir() else ():
            # Editors and Kubernetes leave hidden ones.
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


def _take(name: str, source: str, found: Overrides) -> Iterator[str]:
    if name == TEXTS:
        yield from _take_texts(source, found)
    elif name == STYLE:
        found.style = source
        yield from errors_in_style(source)
    else:
        blocks, variables = BLOCKS[name]
        defined = found.blocks[name] = []
        yield from errors_in_override(name, source, blocks, variables, defined)
        found.templates[name] = source


def _take_texts(source: str, found: Overrides) -> Iterator[str]:
    try:
        kinds = tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        yield f"it is not TOML: {error}"
        return
    found.texts_source = source
    for kind, languages in kinds.items():
        if kind not in PLACEHOLDERS or not isinstance(languages, dict):
            close = get_close_matches(kind, PLACEHOLDERS, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(PLACEHOLDERS)}"
            yield f"[{kind}] is no kind of mail; {hint}"
            continue
        for tag, text in languages.items():
            where = f"[{kind}.{tag}]"
            if tag not in LANGUAGES or not isinstance(text, dict):
                yield f"{where} is not one of the languages {', '.join(LANGUAGES)}"
                continue
            for fault in _text_errors(kind, text):
                yield f"{where} {fault}"
            found.texts[kind, tag] = text


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
        if not fits or not all(isinstance(one, str) and one.strip() for one in parts):
            wanted = "a list of texts" if name == "paragraphs" else "a text"
            yield f"{name}: give {wanted}"
            continue
        if name != "paragraphs" and (len(value) > 200 or not value.isprintable()):
            yield f"{name}: give one line of at most 200 characters"
        yield from (f"{name}: {fault}" for one in parts for fault in _braces(kind, one))
    if kind == "enrolment_code" and "{code}" not in str(text.get("paragraphs", "{code}")):
        yield "paragraphs: they lack {code}, without which the mail is of no use"


def _braces(kind: str, text: str) -> Iterator[str]:
    known = ("service", "address", *PLACEHOLDERS[kind])
    try:
        parts = list(Formatter().parse(text))
    except ValueError:
        yield "a brace is open; write {{ and }} for braces themselves"
        return
    for _, name, spec, conversion in parts:
        if name is not None and (name not in known or spec or conversion):
            shown = ", ".join(f"{{{one}}}" for one in known)
            yield f"{{{name}}} is not known here; known are {shown}"


def made_for(source: str) -> str | None:
    """What a file says in its first line that it was made for: a `fingerprint`."""
    found = _MADE_FOR.match(source)
    return found[1] if found else None


def fingerprint(name: str, blocks: list[str]) -> str:
    """A digest of these blocks as they are built in: it differs once one of them changes.

    "" if they are all empty.
    """
    source = (BUILT_IN / name).read_text()
    bodies = (
        re.search(rf"{{% block {block} %}}(.*?){{% endblock %}}", source, re.DOTALL)
        for block in sorted(blocks)
    )
    texts = [found[1] if found else "" for found in bodies]
    return digest(*texts) if any(texts) else ""


def digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:8]
