"""`flask purge`: deletes what has expired."""

import click
from flask.cli import with_appcontext

from sso.cli.commands import Command, json_option
from sso.cli.output import print_json, print_table
from sso.jobs import purge


@click.command("purge", cls=Command)
@json_option
@with_appcontext
def purge_command(as_json: bool) -> None:
    """Delete what has expired and can no longer be asked about, while the service goes on."""
    counts = purge.purge()
    if as_json:
        print_json(counts)
    else:
        print_table(("TABLE", "DELETED"), list(counts.items()))
