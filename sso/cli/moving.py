"""`flask backup`, `flask restore`, `flask db copy`."""

from collections.abc import Mapping
from pathlib import Path

import click
from flask.cli import with_appcontext
from sqlalchemy.engine import make_url

from sso import audit, context, database
from sso.audit.events import Event
from sso.cli.commands import Command, Failure, json_option
from sso.cli.output import print_json, print_line, print_table
from sso.cli.references import ReferenceFault, resolve
from sso.config import setting_checks
from sso.jobs import moving

_file = click.argument("path", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))


@click.command("backup", cls=Command)
@_file
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@json_option
@with_appcontext
def backup_command(path: Path, force: bool, as_json: bool) -> None:
    """Write everything into FILE, an SQLite database, while the service goes on.

    SSO_SECRET_KEY is not in it: keep that elsewhere, and as safely.
    """
    try:
        counts = moving.backup(path, force)
    except moving.MoveRefused as error:
        raise Failure(str(error)) from None
    except OSError as error:
        raise Failure(f"{path} cannot be written: {error.strerror}") from None
    audit.event(Event.BACKUP_MADE, file=path)
    _show({"file": str(path), "rows": counts}, counts, as_json)
    if not as_json:
        print_line(f"{path} holds it all but SSO_SECRET_KEY; keep that elsewhere.")


@click.command("restore", cls=Command)
@_file
@json_option
@with_appcontext
def restore_command(path: Path, as_json: bool) -> None:
    """Fill the database, which has to be empty, from FILE, with the same SSO_SECRET_KEY.

    If there is another one now, give that of the backup as SSO_SECRET_KEY_PREVIOUS, and then run:
    flask key reencrypt
    """
    try:
        counts = moving.restore(path, context.settings().secret_keys)
    except moving.MoveRefused as error:
        raise Failure(str(error)) from None
    context.forget_keys()
    audit.event(Event.BACKUP_RESTORED, file=path)
    _show({"file": str(path), "rows": counts}, counts, as_json)


@click.command("copy", cls=Command)
@click.argument("target", metavar="URL|env:NAME|file:PATH")
@json_option
@with_appcontext
def copy_command(target: str, as_json: bool) -> None:
    """Copy everything into another, empty database; stop the server before.

    A URL with a password is better given by env:NAME or file:PATH: others see command lines.
    """
    try:
        text = resolve(target) if target.startswith(("env:", "file:")) else target
        url = make_url(setting_checks.database_url(text))
    except ReferenceFault as error:
        raise Failure(str(error)) from None
    except ValueError as error:
        raise Failure(f"the target is not valid: {error}") from None
    if url == make_url(context.settings().database_url):
        raise Failure("the target is the database that is in use")
    engine = database.open_engine(text)
    try:
        counts = moving.copy_into(engine)
    except moving.MoveRefused as error:
        raise Failure(str(error)) from None
    finally:
        engine.dispose()
    shown = url.render_as_string(hide_password=True)
    audit.event(Event.DATABASE_COPIED, target=shown)
    _show({"target": shown, "rows": counts}, counts, as_json)
    if not as_json:
        print_line(f"Now set SSO_DATABASE_URL to {shown}; SSO_SECRET_KEY stays as it is.")


def _show(value: object, counts: Mapping[str, int], as_json: bool) -> None:
    if as_json:
        print_json(value)
    else:
        print_table(("TABLE", "ROWS"), list(counts.items()))
