"""The metrics port, and what gunicorn's configuration calls so that all workers count together.

One process of a server has the port; any of them can report for all. It is not reachable through
the public URL and holds no secret; it listens on 127.0.0.1 unless `SSO_METRICS_ADDRESS` is set.
"""

import atexit
import errno
import logging
import os
import shutil
import tempfile
import threading
from pathlib import Path
from time import sleep
from typing import Any

from flask import Flask
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from sqlalchemy import event

from sso.config.settings import Settings
from sso.extensions import db
from sso.metrics import counters, gauges

logger = logging.getLogger("sso.metrics")
_PREFIX = "sso-metrics-"
_TRY_AGAIN = 1.0  # seconds until another process has noticed that the port is free


def init_app(app: Flask) -> None:
    """Count, when `SSO_METRICS_PORT` is set."""
    settings: Settings = app.extensions["sso.settings"]
    if settings.metrics_port is None:
        return
    counting = counters.start()
    with app.app_context():
        pool = db.engine.pool
    for state, begin, end in (("open", "connect", "close"), ("in_use", "checkout", "checkin")):
        gauge = counting.connections.labels(state)
        event.listen(pool, begin, lambda *_, gauge=gauge: gauge.inc())
        event.listen(pool, end, lambda *_, gauge=gauge: gauge.dec())


def serve(app: Flask) -> None:
    """Answer on the port, or wait until the process that does is gone. Call it after a fork."""
    settings: Settings = app.extensions["sso.settings"]
    if settings.metrics_port is not None:
        place = (settings.metrics_address, settings.metrics_port)
        threading.Thread(target=_serve, args=(app, *place), name="metrics", daemon=True).start()


def registry(app: Flask) -> CollectorRegistry:
    """Everything that is reported: what all processes counted, and what is read now."""
    if os.environ.get(counters.FOLDER):
        found = CollectorRegistry()
        MultiProcessCollector(found)
    else:
        found = CollectorRegistry()
        found.register(counters.start().registry)
    found.register(gauges.GaugeCollector(app))
    return found


def _serve(app: Flask, address: str, port: int) -> None:
    reported = registry(app)
    while True:
        try:
            start_http_server(port, address, reported)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                logger.error("metrics: %s port %s: %s", address, port, error.strerror)
                return
            sleep(_TRY_AGAIN)
        else:
            logger.info("metrics on %s port %s", address, port)
            return


def prepare() -> None:
    """Make the folder that the workers share; the master calls it before it loads the application.

    Each master has its own: one that replaces another (USR2) begins again.
    """
    if not any(os.environ.get(name) for name in ("SSO_METRICS_PORT", "SSO_METRICS_PORT_FILE")):
        return
    master = os.getpid()
    known = Path(os.environ.get(counters.FOLDER, "")).name
    if known.startswith(f"{_PREFIX}{master}-"):
        return  # the configuration is read again at each reload
    folder = tempfile.mkdtemp(prefix=f"{_PREFIX}{master}-")
    os.environ[counters.FOLDER] = folder

    def clean_up() -> None:
        if os.getpid() == master:  # workers are forked with this, too
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(clean_up)


def post_worker_init(worker: Any) -> None:
    """A worker is ready; one whose application could not be loaded has a stand-in for it."""
    if isinstance(worker.wsgi, Flask):
        serve(worker.wsgi)


def child_exit(_: Any, worker: Any) -> None:
    """A worker is gone, and with it what it had open."""
    if os.environ.get(counters.FOLDER):
        mark_process_dead(worker.pid)
