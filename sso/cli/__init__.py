"""The command line: `flask client`, `user`, `key`, `db`, `settings`, `purge`.

Commands own their transaction: they commit once, at the end, or change nothing.
"""

from flask import Flask

from sso.cli import audit as audit_commands
from sso.cli import clients, migrations, signing_keys, users
from sso.cli import invitations as _invitations  # noqa: F401 (adds to users.group)
from sso.cli import user_access as _more_of_users  # noqa: F401 (adds to users.group)
from sso.cli import user_factors as _factors_of_users  # noqa: F401 (adds to users.group)
from sso.cli.declaring import apply_command, export_command
from sso.cli.moving import backup_command, restore_command
from sso.cli.purge import purge_command
from sso.cli.show_settings import settings_command
from sso.cli.worker import worker_command

__all__ = ["init_app"]


def init_app(app: Flask) -> None:
    """Register all commands; `command_line` calls it when the first is asked for."""
    app.cli.add_command(clients.group)
    app.cli.add_command(users.group)
    app.cli.add_command(signing_keys.group)
    app.cli.add_command(audit_commands.group)
    app.cli.add_command(purge_command)
    app.cli.add_command(worker_command)
    app.cli.add_command(backup_command)
    app.cli.add_command(restore_command)
    app.cli.add_command(export_command)
    app.cli.add_command(apply_command)
    # Also an entry point (see show_settings); here for those who run it uninstalled.
    app.cli.add_command(settings_command)
    migrations.init_app(app)
