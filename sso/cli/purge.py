"""`flask purge`: deletes what has expired."""

from datetime import timedelta

import click
from flask.cli import with_appcontext

from sso.cli.commands import Command, json_option
from sso.cli.output import print_json, print_table
from sso.jobs import audit_chain, purge


@click.command("purge", cls=Command)
@click.option(
    "--audit-days",
    type=click.IntRange(1),
    default=400,
    show_default=True,
    help="Days for which audit events are kept.",
)
@json_option
@with_appcontext
def purge_command(audit_days: int, as_json: bool) -> None:
    """Delete what has expired and can no longer be asked about, while the service goes on."""
    counts = purge.purge()
    audit_chain.seal()
    counts["audit_events"] = audit_chain.purge(timedelta(days=audit_days))
    if as_json:
        print_json(counts)
    else:
        print_table(("TABLE", "DELETED"), list(counts.items()))
