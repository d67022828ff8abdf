"""This program: its folder, the name of its command, and modules that are imported late.

Most servers never need the modules of `late_module` and `late_functions`. They are imported at
their first use, which saves memory at the start; a comment says how much. The master imports the
modules that most installations use, and shares them with its workers.

Type checkers see the import itself: `if TYPE_CHECKING: import x`, `else: x = late_module("x")`.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
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


def late_module(name: str) -> Any:
    """Return a module that is imported when one of its names is looked up."""
    return _Module(name)


def late_functions(name: str) -> Any:
    """Return a module that is imported when one of its functions is called: for tables."""
    return _Functions(name)
