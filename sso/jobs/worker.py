"""The worker: what has to be done beside requests, each job in its own rhythm."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event

from flask import Flask

from sso.extensions import db
from sso.jobs import logout_delivery

logger = logging.getLogger("sso.jobs")


@dataclass(frozen=True)
class Job:
    """A job, and the seconds between two runs of it. It tells how much it did."""

    name: str
    seconds: float
    run: Callable[[], int]


JOBS = (Job("deliver logout tokens", 1, logout_delivery.deliver_due),)


def run(app: Flask, stop: Event) -> None:
    """Do every job when its time has come, until told to stop."""
    due = dict.fromkeys((job.name for job in JOBS), 0.0)
    while not stop.is_set():
        for job in JOBS:
            if due[job.name] <= time.monotonic():
                # As long as there is more to do, it goes on without a pause.
                busy = run_once(app, job) > 0
                due[job.name] = time.monotonic() + (0 if busy else job.seconds)
        stop.wait(max(0.02, min(due.values()) - time.monotonic()))


def run_once(app: Flask, job: Job) -> int:
    """One run; a fault is logged and the next run tries again."""
    with app.app_context():
        try:
            return job.run()
        except Exception:
            logger.exception("job failed: %s", job.name)
            db.session.rollback()
            return 0
