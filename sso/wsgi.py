"""The WSGI entry point: `gunicorn sso.wsgi:app`, and where `flask` finds the application."""

import os
import sys

import click
from flask.cli import FlaskGroup

from sso import command_line, create_app, create_core
from sso.errors import SettingsError

# gunicorn starts a worker again and again unless it ends with this code (Arbiter.APP_LOAD_ERROR).
_EXIT = 4 if os.environ.get("SERVER_SOFTWARE", "").startswith("gunicorn") else 1


def _is_for_commands() -> bool:
    """Return whether `flask` itself asks, for its list of commands or one of them.

    `flask run`, `routes` and `shell` ask with a context of their own, and get the whole one.
    """
    context = click.get_current_context(silent=True)
    return context is not None and isinstance(context.command, FlaskGroup)


try:
    if _is_for_commands():
        with command_line.loading():
            app = create_core()
    else:
        app = create_app()
except SettingsError as error:
    print(*error.errors, sep="\n", file=sys.stderr)
    raise SystemExit(_EXIT) from None
