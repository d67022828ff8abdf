"""The metrics port, and what a server calls so that all its workers count together.

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
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from time import sleep

from flask import Flask
from prometheus_client import CollectorRegistry, Metric, start_http_server
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from sqlalchemy import event

from sso.config.settings import Settings
from sso.extensions import db
from sso.metrics import counters, gauges

logger = logging.getLogger("sso.metrics")
_PREFIX = "sso-metrics-"
_TRY_AGAIN = 1.0  # seconds until another process has noticed that the port is free


def init_app(app: Flask) -> None:
    """Count."""
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
    place = (settings.metrics_address, settings.metrics_port)
    threading.Thread(target=_serve, args=(app, *place), name="metrics", daemon=True).start()


def registry(app: Flask) -> CollectorRegistry:
    """Everything that is reported: what all processes counted, and what is read now."""
    if os.environ.get(counters.FOLDER):
        found = CollectorRegistry()
        _Processes(found)
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


class _Processes(MultiProcessCollector):
    """What all processes counted; one that has ended has nothing open."""

    def collect(self) -> Iterable[Metric]:
        # The scrape finds out, because not every server says when a worker is gone.
        for file in Path(os.environ[counters.FOLDER]).glob("gauge_live*.db"):
            pid = int(file.stem.rpartition("_")[2])
            if not _is_alive(pid):
                with suppress(FileNotFoundError):  # another scrape was faster
                    mark_process_dead(pid)
        found: Iterable[Metric] = super().collect()
        return found


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
