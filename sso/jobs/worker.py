"""The worker: jobs beside requests, each at its own interval."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from threading import Event, Thread

from flask import Flask
from sqlalchemy.exc import SQLAlchemyError

from sso import audit, clock, context, database
from sso.audit import chain
from sso.crypto import keys
from sso.database import postgresql
from sso.extensions import db
from sso.jobs import logout_delivery, mail, scim_delivery, upkeep, webhook_delivery
from sso.services import signing_keys
from sso.store import expired, outbox
from sso.store import keys as stored_keys

logger = logging.getLogger("sso.jobs")


@dataclass(frozen=True)
class Job:
    """A job, and the seconds between its runs. `run` returns how many items it processed."""

    name: str
    seconds: float
    run: Callable[[], int]


def heartbeat() -> int:
    """Record that a worker runs, and commit."""
    outbox.beat(outbox.WORKER)
    db.session.commit()
    return 0


def rotate_aged_keys() -> int:
    """Rotate the keys if the oldest active one has reached its age, and commit.

    Returns how many keys became active. Of several workers, only one rotates.
    """
    settings = context.settings()
    oldest = stored_keys.oldest_activation()
    activated = []
    if oldest and clock.now() - oldest >= timedelta(seconds=settings.key_lifetime):
        try:
            activated = signing_keys.rotate(audit.SYSTEM, settings.secret_keys)
            db.session.commit()
        except signing_keys.RotationRefused as error:
            logger.info("signing keys are not rotated now: %s", error)
    db.session.rollback()
    return len(activated)


JOBS = (
    Job("deliver logout tokens", 1, logout_delivery.deliver_due),
    Job("deliver to webhooks", 1, webhook_delivery.deliver_due),
    *(Job(name, 1, run) for name, run in scim_delivery.RUNS),
    Job("send mails", 1, mail.deliver_due),
    Job("seal audit events", 1, chain.append_due),
    Job("ask directories again", 30, upkeep.recheck_directories),
    Job("ask upstream providers again", 10, upkeep.recheck_providers),
    Job("end what has an end", 10, upkeep.end_due),
    Job("end grants of changed clients", 2, upkeep.InTime()),
    Job("note when people were last active", 3600, upkeep.LastActive()),
    Job("purge", 3600, upkeep.Piecewise()),
    Job("purge what lives for minutes", 60, upkeep.Piecewise(expired.LIVING_MINUTES)),
    Job("purge audit events", 3600, chain.purge_due),
    Job("rotate keys", 3600, rotate_aged_keys),
    Job("show that it runs", 30, heartbeat),
)


def run(app: Flask, stop: Event) -> None:
    """Run every job at its interval, until `stop` is set.

    Each job has its own thread: an unresponsive mail server delays no logout token.
    """
    threads = [Thread(target=_keep_at, args=(app, job, stop), name=job.name) for job in JOBS]
    for thread in threads:
        thread.start()
    stop.wait()
    for thread in threads:
        thread.join()


def _keep_at(app: Flask, job: Job, stop: Event) -> None:
    while not stop.is_set():
        # While there is more to do, runs follow without a pause.
        busy = (run_once(app, job) or 0) > 0
        stop.wait(0.02 if busy else job.seconds)


def run_once(app: Flask, job: Job) -> int | None:
    """Run a job once; log an error and return `None` if it failed."""
    with app.app_context(), audit.acting_as(audit.SYSTEM):
        try:
            return job.run()
        except Exception as error:
            reason = str(error) if isinstance(error, keys.KeyUnavailable) else None
            if isinstance(error, SQLAlchemyError):
                reason = postgresql.transient_reason(error)
            if reason:
                logger.error("job failed: %s: %s", job.name, reason)
            else:
                logger.exception("job failed: %s", job.name)
            database.end_session()
            return None
