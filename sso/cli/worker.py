"""`flask worker` and `flask purge`: background work."""

import logging
from datetime import timedelta
from threading import Event

import click
from flask import Flask
from flask.cli import ScriptInfo, pass_script_info, with_appcontext

from sso import context, create_app
from sso.audit import chain
from sso.cli.commands import Command, Failure, Service, json_option
from sso.cli.output import print_json, print_line, print_table, progress_bar
from sso.config import smtp
from sso.database import readiness
from sso.jobs import upkeep, worker
from sso.process import stop_signals
from sso.process.program import COMMAND

logger = logging.getLogger("sso.start")


@click.command("worker", cls=Service)
@click.option("--once", is_flag=True, help="Do what is due now, and exit.")
@json_option
@pass_script_info
@with_appcontext
def worker_command(info: ScriptInfo, once: bool, as_json: bool) -> None:
    """Run the background work: mail, logout tokens, purging, key rotation."""
    # Mail is rendered from templates, which the application for commands does not load.
    app = info.load_app()
    if "babel" not in app.extensions:
        app = create_app()
    if once:
        counts = {job.name: worker.run_once(app, job) for job in worker.JOBS}
        if as_json:
            print_json(counts)
        else:
            for name, count in counts.items():
                print_line(f"{name}: {'failed' if count is None else count}")
        if failed := [name for name, count in counts.items() if count is None]:
            raise Failure(f"failed, see the log: {', '.join(failed)}")
        return
    stop = Event()
    stop_signals.call(stop.set)
    readiness.examine(app)
    logger.info("worker started; %s", _where_mail_goes(app))
    worker.run(app, stop)


def _where_mail_goes(app: Flask) -> str:
    with app.app_context():
        url = context.settings().smtp_url
    if url is None:
        return "no mail server is configured: mail is written to the log"
    return f"mail goes to {smtp.parse(url).host}"


@click.command("purge", cls=Command)
@click.option(
    "--audit-days",
    type=click.IntRange(1),
    help="Days for which audit events are kept, instead of SSO_AUDIT_LIFETIME.",
)
@click.option(
    "--over-faults",
    is_flag=True,
    help="Delete old audit events although they were tampered with; "
    f"run {COMMAND} audit verify first.",
)
@json_option
@with_appcontext
def purge_command(audit_days: int | None, over_faults: bool, as_json: bool) -> None:
    """Delete expired rows while the service runs."""
    lifetime = timedelta(seconds=context.settings().audit_lifetime)
    keep = timedelta(days=audit_days) if audit_days else lifetime
    with progress_bar("Deleting expired rows", as_json) as report:
        counts = upkeep.purge(report=report)
        chain.append_to_chain()
        counts["audit_events"] = 0
        while deleted := chain.purge(keep, over_faults=over_faults):
            counts["audit_events"] += deleted
            if report:
                report(deleted)
    if as_json:
        print_json(counts)
    else:
        print_table(("TABLE", "DELETED"), list(counts.items()))
