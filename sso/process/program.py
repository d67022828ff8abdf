"""This program: where it runs from, what its command is called, and what it imports late.

`late_module`, `late_functions` and `late_function` import a module when it is first used. Servers
save the memory of what few installations need, and commands the time to load it; a comment says how
much. What an installation does need is imported by the master, which shares it with its workers
(`sso.server.common`). `sso.models` imports its tables late, too, as PEP 562 has it.

Type checkers see the import itself: `if TYPE_CHECKING: import x`, `else: x = late_module("x")`.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, cast


def checkout() -> Path | None:
    """Return the project's folder, if this runs from its source and not from a wheel."""
    folder = Path(__file__).resolve().parents[2]
    # Some packages install their pyproject.toml among the packages.
    is_installed = folder.name in ("site-packages", "dist-packages")
    return folder if not is_installed and (folder / "pyproject.toml").is_file() else None


def command() -> str:
    """Return `sso`, or `flask`, which finds the application only in the project's folder."""
    return "sso" if Path(sys.argv[0]).name == "sso" or not checkout() else "flask"


COMMAND = command()


class _Module:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


class _Functions(_Module):
    def __getattr__(self, attribute: str) -> Any:
        return late_function(f"{self._name}:{attribute}")


class _Function:
    def __init__(self, target: str) -> None:
        self._target = target

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return resolve_name(self._target)(*arguments, **named)

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]  # the documentation has it
        return cast("str | None", resolve_name(self._target).__doc__)


def late_module(name: str) -> Any:
    """Return a stand-in for a module, which is imported when one of its names is looked up."""
    return _Module(name)


def late_functions(name: str) -> Any:
    """Return a stand-in for a module of functions, for tables: it is imported by the first call."""
    return _Functions(name)


def late_function(target: str) -> Callable[..., Any]:
    """Return `module:function`; its module is imported when it is called."""
    return _Function(target)
