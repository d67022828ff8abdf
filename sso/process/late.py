"""Modules that are imported when something of them is first used: most servers never need them.

Each saves memory at the start; a comment says how much. What most installations use is imported by
the master, which shares it with its workers.

Type checkers see the import itself: `if TYPE_CHECKING: import x`, `else: x = late.module("x")`.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, cast


class _Module:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


class _Function:
    def __init__(self, module: str, name: str) -> None:
        self._place = module, name

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._load()(*arguments, **named)

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]  # the documentation has it
        return self._load().__doc__

    def _load(self) -> Callable[..., Any]:
        module, name = self._place
        return cast(Callable[..., Any], getattr(import_module(module), name))


class _Functions(_Module):
    def __getattr__(self, attribute: str) -> _Function:
        return _Function(self._name, attribute)


def module(name: str) -> Any:
    """Imported when one of its names is looked up."""
    return _Module(name)


def functions(name: str) -> Any:
    """Imported when one of its functions is called: for tables."""
    return _Functions(name)
