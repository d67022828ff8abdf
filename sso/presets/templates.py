"""The templates of presets: what they may name, and which values they write without quoting."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from jinja2 import StrictUndefined, TemplateError, meta, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from sso.presets.errors import PresetError
from sso.presets.quoting import FILTERS, Unquotable

URL_PARTS = frozenset({"url", "origin", "host", "hostname_port", "path", "port", "scheme"})
SERVER = frozenset({"issuer", "issuer_host", "discovery", "endpoints"})
CLIENT = frozenset({
    "client_id", "client_secret", "client_name", "service_name", "scope", "id_token_alg",
})  # fmt: skip
# What needs no quoting: addresses of few characters, and what we made ourselves.
_INERT = URL_PARTS | SERVER | {"client_id", "client_secret", "scope", "id_token_alg"}

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


@cache
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
    """Follows values into the text: pairs of a name and the outermost filter that quotes it.

    A variable of the template stands for what it was made of.
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
            return set().union(*(self.of(one) for one in (*node.body, *node.else_)))
        if isinstance(node, nodes.Filter) and node.name in FILTERS:
            quoted_by = quoted_by or node.name
        if option := _option(node):
            return {(option, quoted_by)}
        if isinstance(node, nodes.Name):
            if node.name in self._variables:
                return {(name, quoted_by or by) for name, by in self._variables[node.name]}
            return set() if node.name in _INERT else {(node.name, quoted_by)}
        return self._of_children(node, quoted_by)

    def _set(self, target: nodes.Node, found: set[tuple[str, str]]) -> None:
        for one in (target, *target.find_all(nodes.Name)):
            if isinstance(one, nodes.Name):
                self._variables.setdefault(one.name, set()).update(found)

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
