"""`flask worker`: the work beside requests."""

import logging
from threading import Event

import click
from flask import Flask, current_app
from flask.cli import with_appcontext

from sso import context, create_app
from sso.cli.commands import Command, Failure, json_option
from sso.cli.output import print_json, print_line
from sso.config import smtp
from sso.database import readiness
from sso.jobs import worker
from sso.process import stop_signals

logger = logging.getLogger("sso.start")


@click.command("worker", cls=Command)
@click.option("--once", is_flag=True, help="Do what is due now, and end.")
@json_option
@with_appcontext
def worker_command(once: bool, as_json: bool) -> None:
    """Deliver what waits in the outboxes, until told to stop. Run one on every node or more."""
    # Mails are written from templates, which the application for commands has not.
    app = current_app._get_current_object()  # type: ignore[attr-defined]  # the proxy's own
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
