"""`flask backup`, `flask restore`, `flask db`: Flask-Migrate's commands and `flask db copy`."""

from collections.abc import Mapping
from copy import copy
from pathlib import Path
from typing import Any

import click
from flask import current_app
from flask.cli import with_appcontext
from flask_migrate.cli import db as migrate_group
from sqlalchemy.engine import make_url

from sso import audit, context, database
from sso.audit.events import Event
from sso.cli.commands import Command, Failure, confirm, json_option, resolve, yes_option
from sso.cli.output import print_json, print_line, print_table, progress_bar
from sso.config import connections
from sso.database import schema
from sso.extensions import db
from sso.jobs import backup
from sso.services import signing_keys
from sso.store import migrations

_file = click.argument("path", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))


@click.command("backup", cls=Command)
@_file
@click.option("--force", is_flag=True, help="Replace an existing file.")
@json_option
@with_appcontext
def backup_command(path: Path, force: bool, as_json: bool) -> None:
    """Back everything up to FILE, an SQLite database, while the service runs.

    SSO_SECRET_KEY is not in it. Store that elsewhere, as safely.
    """
    try:
        with progress_bar("Backing up", as_json) as report:
            counts = backup.write(path, force, report)
    except OSError as error:
        raise Failure(f"{path} cannot be written: {error.strerror}") from None
    audit.event(Event.BACKUP_MADE, file=path, bytes=path.stat().st_size)
    _show({"file": str(path), "rows": counts}, counts, as_json)
    if not as_json:
        print_line(f"{path} holds it all but SSO_SECRET_KEY; keep that elsewhere.")


@click.command("restore", cls=Command)
@_file
@json_option
@with_appcontext
def restore_command(path: Path, as_json: bool) -> None:
    """Restore a backup into an empty database, with the same SSO_SECRET_KEY.

    If the secret key has changed since, set the backup's as SSO_SECRET_KEY_PREVIOUS, and run `key
    reencrypt` afterwards.
    """
    with progress_bar("Restoring", as_json) as report:
        counts = backup.restore(path, context.settings().secret_keys, report)
    context.forget_keys()
    audit.event(Event.BACKUP_RESTORED, file=path)
    _show({"file": str(path), "rows": counts}, counts, as_json)


@click.command("copy", cls=Command)
@click.argument("target", metavar="URL|env:NAME|file:PATH")
@json_option
@with_appcontext
def copy_command(target: str, as_json: bool) -> None:
    """Copy everything to another, empty database; stop the server first.

    Other users of this machine see command lines: give a URL with a password as env:NAME or
    file:PATH.
    """
    try:
        text = resolve(target) if target.startswith(("env:", "file:")) else target
        url = make_url(connections.checked_database_url(text))
    except ValueError as error:
        raise Failure(f"the target is not valid: {error}") from None
    if url == make_url(context.settings().database_url):
        raise Failure("the target is the database that is in use")
    engine = database.open_engine(url)
    try:
        with progress_bar("Copying", as_json) as report:
            counts = backup.copy_into(engine, report)
    finally:
        engine.dispose()
    shown_url = url.render_as_string(hide_password=True)
    audit.event(Event.DATABASE_COPIED, target=shown_url)
    _show({"target": shown_url, "rows": counts}, counts, as_json)
    if not as_json:
        print_line(f"Now set SSO_DATABASE_URL to {shown_url}; SSO_SECRET_KEY stays as it is.")


def _show(value: object, counts: Mapping[str, int], as_json: bool) -> None:
    if as_json:
        print_json(value)
    else:
        print_table(("TABLE", "ROWS"), list(counts.items()))


_UPGRADE, _DOWNGRADE = (migrate_group.commands[name] for name in ("upgrade", "downgrade"))


@click.command("upgrade", cls=Command, params=[*_UPGRADE.params], help=_UPGRADE.help)
@json_option
@with_appcontext
def upgrade_command(as_json: bool, **options: Any) -> None:
    _UPGRADE.callback(**options)
    if options["sql"]:
        return
    # Only the newest schema is sure to have the table of keys.
    is_newest = options["revision"] in ("head", "heads")
    are_keys_made = is_newest and signing_keys.ensure(context.settings().secret_keys)
    db.session.commit()
    context.forget_keys()
    if as_json:
        print_json({"revision": _revision(), "keys_made": are_keys_made})
    else:
        keys = "made the first signing keys" if are_keys_made else "the signing keys are there"
        print_line(f"The database is at {_revision()}" + (f"; {keys}." if is_newest else "."))


@click.command("downgrade", cls=Command, params=[*_DOWNGRADE.params])
@yes_option
@with_appcontext
def downgrade_command(yes: bool, **options: Any) -> None:
    """Go back to an older schema; back up first: data that only the newer one has is lost."""
    confirm(
        f"Take back what came after the schema {options['revision']}, with all rows of it "
        f"(the database is at {_revision()})?",
        yes,
    )
    _DOWNGRADE.callback(**options)
    print_line(f"The database is at {_revision()}.")


def _revision() -> str | None:
    with db.engine.connect() as connection:
        return schema.revision(connection)


@with_appcontext
def _bind(**options: Any) -> None:
    migrations.bind(current_app)
    migrate_group.callback(**options)


def _hidden(command: click.Command) -> click.Command:
    """Hide a command that makes migrations, which operators do not need."""
    hidden = copy(command)
    hidden.hidden = True
    return hidden


# A copy: the group of Flask-Migrate itself is shared with other programs.
group: click.Group = copy(migrate_group)
group.callback = _bind
group.commands = {
    **{name: _hidden(command) for name, command in migrate_group.commands.items()},
    **{name: migrate_group.commands[name] for name in ("current", "history", "check")},
    "upgrade": upgrade_command,
    "downgrade": downgrade_command,
    "copy": copy_command,
}
