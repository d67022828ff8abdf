"""The templates of presets: what they may name, and which values they write without quoting."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateError, meta, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from sso.presets.errors import PresetError
from sso.presets.quoting import FILTERS, Unquotable

URL_PARTS = frozenset({"url", "origin", "host", "hostname_port", "path", "port", "scheme"})
SERVER = frozenset({"issuer", "issuer_host", "discovery", "endpoints"})
CLIENT = frozenset({"client_id", "client_secret", "client_name", "service_name", "scope"})
# What needs no quoting: addresses of few characters, and what we made ourselves.
_INERT = URL_PARTS | SERVER | {"client_id", "client_secret", "scope"}

_environment = ImmutableSandboxedEnvironment(
    undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True
)
_environment.filters |= FILTERS
_environment.globals.clear()


@dataclass(frozen=True)
class Uses:
    """What a template names; an option as `options.NAME`.

    `unquoted`: written as it is; `filters`: what quotes the rest.
    """

    names: frozenset[str]
    unquoted: frozenset[str]
    filters: frozenset[str]


def uses(text: str) -> Uses:
    """Raises `ValueError` where a template cannot be understood."""
    try:
        tree = _environment.parse(text)
        names = meta.find_undeclared_variables(tree)
    except TemplateError as error:
        raise ValueError(str(error)) from None
    options = [found for one in tree.find_all(nodes.Expr) if (found := _option(one))]
    mentions = [one for one in tree.find_all(nodes.Name) if one.name == "options"]
    if len(mentions) == len(options):  # else somewhere all of them at once
        names.discard("options")
    names.update(options)
    written: set[str] = set()
    filters: set[str] = set()
    for block in list(tree.find_all(nodes.AssignBlock)):
        block.body = []  # what it makes gets into the text by the name that it is given
    for output in tree.find_all(nodes.Output):
        for name, quoted_by in _written(output):
            if name not in _INERT:
                (filters if quoted_by else written).add(quoted_by or name)
    return Uses(frozenset(names), frozenset(written), frozenset(filters))


def _option(node: nodes.Node) -> str | None:
    if isinstance(node, nodes.Getattr | nodes.Getitem) and isinstance(node.node, nodes.Name):
        if node.node.name != "options":
            return None
        if isinstance(node, nodes.Getattr):
            return f"options.{node.attr}"
        return f"options.{node.arg.value}" if isinstance(node.arg, nodes.Const) else "options.*"
    return None


def _written(node: nodes.Node, quoted_by: str = "") -> Iterator[tuple[str, str]]:
    """The names whose value gets into the text, each with the outermost filter that quotes it."""
    if isinstance(node, nodes.Compare | nodes.Test | nodes.Not):
        return  # true or false
    if isinstance(node, nodes.Filter) and node.name in FILTERS:
        quoted_by = quoted_by or node.name
    if option := _option(node):
        yield option, quoted_by
    elif isinstance(node, nodes.Name):
        yield node.name, quoted_by
    else:
        for child in node.iter_child_nodes(exclude=("test",)):
            yield from _written(child, quoted_by)


def render(text: str, variables: Mapping[str, Any]) -> str:
    """Fill in a template. Raises `PresetError` for values that the format cannot hold."""
    try:
        return Template.render(_environment.from_string(text), variables)
    except Unquotable as error:
        raise PresetError([str(error)]) from None
