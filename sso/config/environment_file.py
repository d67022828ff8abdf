"""The file with the settings of the systemd units, for the command `sso`."""

import os
import shlex
import stat
from pathlib import Path

import click

DEFAULT = "/etc/sso/environment"


def read(given: str) -> None:
    """Set the variables that the environment lacks.

    A file that cannot be used is an error: a command would work on another database.
    """
    path = Path(given or DEFAULT)
    try:
        with path.open(encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_mode & stat.S_IROTH:
                click.echo(f"Warning: {path} is readable by everyone: chmod o-r {path}", err=True)
            values = parse(file.read())
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError) and not given:
            return
        reason = error.strerror if isinstance(error, OSError) else error
        hint = ""
        if isinstance(error, PermissionError):
            hint = "; run this as the service's user: sudo -u sso sso …"
        raise SystemExit(f"Error: {path} cannot be used: {reason}{hint}") from None
    for name, value in values.items():
        os.environ.setdefault(name, value)


def parse(text: str) -> dict[str, str]:
    """The lines NAME=value of a file that systemd reads, too (EnvironmentFile=).

    Raises `ValueError` for what is none.
    """
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, mark, value = line.strip().partition("=")
        if not name or name[0] in "#;":
            continue
        if not mark or not name.isidentifier():
            raise ValueError(f"line {number} is not NAME=value")
        quoted = value.startswith(("'", '"'))
        found[name] = "".join(shlex.split(value)) if quoted else value.strip()
    return found
