"""`flask purge`: deletes what has expired."""

from datetime import timedelta

import click
from flask.cli import with_appcontext

from sso import context
from sso.cli.commands import Command, json_option
from sso.cli.output import print_json, print_table
from sso.jobs import audit_chain, purge


@click.command("purge", cls=Command)
@click.option(
    "--audit-days",
    type=click.IntRange(1),
    help="Days for which audit events are kept, instead of SSO_AUDIT_LIFETIME.",
)
@click.option(
    "--over-faults",
    is_flag=True,
    help="Cut old audit events off although they were tampered with; see flask audit verify first.",
)
@json_option
@with_appcontext
def purge_command(audit_days: int | None, over_faults: bool, as_json: bool) -> None:
    """Delete what has expired and can no longer be asked about, while the service goes on."""
    counts = purge.purge()
    audit_chain.seal()
    lifetime = timedelta(seconds=context.settings().audit_lifetime)
    keep = timedelta(days=audit_days) if audit_days else lifetime
    counts["audit_events"] = sum(iter(lambda: audit_chain.purge(keep, over_faults=over_faults), 0))
    if as_json:
        print_json(counts)
    else:
        print_table(("TABLE", "DELETED"), list(counts.items()))
