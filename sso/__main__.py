"""`sso …`, or `python -m sso …`: the same commands as `flask …`, from any folder."""

import os
import sys
from typing import TYPE_CHECKING

import click
from flask.cli import FlaskGroup

from sso.config import settings
from sso.process import program

if TYPE_CHECKING:
    from sso import wsgi
else:  # it builds the application
    wsgi = program.late_module("sso.wsgi")


def main() -> None:
    """Run a command. The file in SSO_ENV_FILE adds settings that the environment lacks."""
    path = os.environ.pop("SSO_ENV_FILE", "")
    if _needs_settings(sys.argv[1:]):
        settings.read_environment_file(path)
    group = FlaskGroup(
        name="sso",
        help="A single sign-on server that you run yourself.",
        create_app=lambda: wsgi.app,
        load_dotenv=False,
        add_version_option=False,
    )
    group.params.clear()  # Flask's --app and --env-file
    click.version_option(package_name="sso", message="%(version)s")(group)
    group.main(prog_name="sso")


def _needs_settings(arguments: list[str]) -> bool:
    is_asking = not arguments or {"--help", "--version"} & set(arguments)
    return not is_asking and "_SSO_COMPLETE" not in os.environ


if __name__ == "__main__":
    main()
