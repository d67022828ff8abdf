"""The metrics' own port. Of the processes of a server one has it; any of them can tell for all.

Nothing of it is reachable through the public address, and nothing in it is a secret; it listens on
127.0.0.1 unless `SSO_METRICS_ADDRESS` says otherwise.
"""

import errno
import logging
import os
import threading
from time import sleep

from flask import Flask
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.multiprocess import MultiProcessCollector
from sqlalchemy import event

from sso.config.settings import Settings
from sso.extensions import db
from sso.metrics import own_gauges
from sso.metrics.gauges import GaugeCollector
from sso.observability import counters

logger = logging.getLogger("sso.metrics")
_TRY_AGAIN = 1.0  # seconds until another process has noticed that the port is free


def init_app(app: Flask) -> None:
    """Count, when `SSO_METRICS_PORT` is set."""
    settings: Settings = app.extensions["sso.settings"]
    if settings.metrics_port is None:
        return
    counting = counters.start()
    own_gauges.init_app()
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
    """Everything that is told: what all processes counted, and what is read now."""
    if os.environ.get(counters.FOLDER):
        found = CollectorRegistry()
        MultiProcessCollector(found)
    else:
        found = CollectorRegistry()
        found.register(counters.start().registry)
    found.register(GaugeCollector(app))
    return found


def _serve(app: Flask, address: str, port: int) -> None:
    told = registry(app)
    while True:
        try:
            start_http_server(port, address, told)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                logger.error("metrics: %s port %s: %s", address, port, error.strerror)
                return
            sleep(_TRY_AGAIN)
        else:
            logger.info("metrics on %s port %s", address, port)
            return
