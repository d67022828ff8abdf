"""The WSGI entry point: `gunicorn wsgi:app`, and where `flask` finds the application."""

import gc
import os
import sys

import click
from flask.cli import FlaskGroup

from sso import ROOT, create_app
from sso.settings import SettingsError

# gunicorn starts a worker again and again unless it ends with this code (Arbiter.APP_LOAD_ERROR).
_EXIT = 4 if os.environ.get("SERVER_SOFTWARE", "").startswith("gunicorn") else 1


def _is_for_commands() -> bool:
    """Whether `flask` itself asks, for its list of commands or one of them.

    `flask run`, `routes` and `shell` ask with a context of their own, and get the whole one.
    """
    context = click.get_current_context(silent=True)
    return context is not None and isinstance(context.command, FlaskGroup)


try:
    if _is_for_commands():
        gc.disable()  # nothing to be found while modules load; see sso.cli.commands.Command
        from sso import core  # here, so that the line above comes first

        app = core.create_app(os.environ, ROOT / "instance")
    else:
        app = create_app()
except SettingsError as error:
    print(*error.faults, sep="\n", file=sys.stderr)
    raise SystemExit(_EXIT) from None
