"""Where this program runs from, and the name that hints give to its commands."""

import sys
from pathlib import Path


def checkout() -> Path | None:
    """The project's folder, if this runs from its source and not from a wheel."""
    folder = Path(__file__).resolve().parents[2]
    # Some packages install a pyproject.toml of theirs among the packages.
    is_installed = folder.name in ("site-packages", "dist-packages")
    return folder if not is_installed and (folder / "pyproject.toml").is_file() else None


def command() -> str:
    """`sso`, or `flask`, which finds the application only in the project's folder."""
    return "sso" if Path(sys.argv[0]).name == "sso" or not checkout() else "flask"


COMMAND = command()
