"""What an operator's template can hold: few expressions, and HTML that pages can show.

Otherwise the people who sign in would be the first to meet an unknown name, a script that the
content security policy blocks, or an unclosed tag.
"""

import re
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser

from jinja2 import Environment, TemplateSyntaxError, nodes

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


def errors_in(
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


def style_errors(source: str) -> Iterator[str]:
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
