"""The metrics: what is counted, and the port on which the counts of all workers are read.

Labels have few values, all of them ours: nothing that a stranger sends becomes a time series, and
no id, name or secret is in one. One process of a server has the port; any of them can report for
all. It is not reachable through the public URL and holds no secret; it listens on 127.0.0.1 unless
`SSO_METRICS_ADDRESS` is set.
"""

import atexit
import errno
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from time import sleep

from flask import Flask
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    start_http_server,
    values,
)
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from sqlalchemy import event

from sso.config.client_fields import TOKEN_EXCHANGE
from sso.config.settings import Settings
from sso.extensions import db
from sso.metrics import gauges
from sso.observability import counters

# prometheus_client's own name: a folder that all processes of one server write to.
FOLDER = "PROMETHEUS_MULTIPROC_DIR"
BUCKETS = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
GRANTS = frozenset({"authorization_code", "refresh_token", TOKEN_EXCHANGE})
TOKEN_ERRORS = frozenset(
    {
        "invalid_request", "invalid_client", "invalid_grant", "unauthorized_client",
        "unsupported_grant_type", "invalid_scope", "invalid_target",
        "temporarily_unavailable", "server_error",
    }
)  # fmt: skip
SIGN_INS = {"signed_in": "success", "sign_in_failed": "failure"}
OTHER = "other"


class Counters:
    """The counters of this process; in a server of several, each writes to files of its own."""

    def __init__(self) -> None:
        shared = os.environ.get(FOLDER)
        values.ValueClass = values.MultiProcessValue() if shared else values.MutexValue
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "sso_http_requests", "Requests answered.", ("endpoint", "method", "status"),
            registry=registry,
        )  # fmt: skip
        self.seconds = Histogram(
            "sso_http_request_duration_seconds", "Time to answer a request.", ("endpoint",),
            registry=registry, buckets=BUCKETS,
        )  # fmt: skip
        self.events = Counter(
            "sso_security_events", "Security events of the audit trail.", ("event",),
            registry=registry,
        )  # fmt: skip
        self.sign_ins = Counter("sso_sign_ins", "Sign-ins.", ("outcome",), registry=registry)
        self.tokens = Counter(
            "sso_token_requests", "Answers of the token endpoint.", ("grant", "outcome"),
            registry=registry,
        )  # fmt: skip
        self.upstream_sign_ins = Counter(
            "sso_upstream_sign_ins", "Sign-ins through upstream providers.",
            ("provider", "outcome"), registry=registry,
        )  # fmt: skip
        self.connections = Gauge(
            "sso_database_connections", "Connections to the database.", ("state",),
            registry=registry, multiprocess_mode="livesum",
        )  # fmt: skip
        # Finding a child by its labels costs more than counting.
        self._children = cache(self._find_children)
        # A rate needs a zero to begin from.
        for outcome in SIGN_INS.values():
            self.sign_ins.labels(outcome)
        for grant in GRANTS:
            self.tokens.labels(grant, "ok")

    def request(self, endpoint: str, method: str, status: int, seconds: float) -> None:
        count, observe = self._children(endpoint, method, status)
        count()
        observe(seconds)

    def event(self, name: str) -> None:
        self.events.labels(name).inc()
        if name in SIGN_INS:
            self.sign_ins.labels(SIGN_INS[name]).inc()

    def token_request(self, grant: str | None, error: str | None) -> None:
        outcome = "ok" if error is None else error if error in TOKEN_ERRORS else OTHER
        self.tokens.labels(grant if grant in GRANTS else OTHER, outcome).inc()

    def upstream(self, provider: str, outcome: str) -> None:
        self.upstream_sign_ins.labels(provider, outcome).inc()

    def _find_children(
        self, endpoint: str, method: str, status: int
    ) -> tuple[Callable[[], None], Callable[[float], None]]:
        return (
            self.requests.labels(endpoint, method, str(status)).inc,
            self.seconds.labels(endpoint).observe,
        )


@cache
def start_counting() -> Counters:
    """The counters of this process and those that it forks; it counts from now on."""
    made = Counters()
    counters.use(made)
    return made


logger = logging.getLogger("sso.metrics")
_PREFIX = "sso-metrics-"
_TRY_AGAIN = 1.0  # seconds until another process has noticed that the port is free


def init_app(app: Flask) -> None:
    """Count."""
    counting = start_counting()
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
    if os.environ.get(FOLDER):
        found = CollectorRegistry()
        _Processes(found)
    else:
        found = CollectorRegistry()
        found.register(start_counting().registry)
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
    known = Path(os.environ.get(FOLDER, "")).name
    if known.startswith(f"{_PREFIX}{master}-"):
        return  # the configuration is read again at each reload
    folder = tempfile.mkdtemp(prefix=f"{_PREFIX}{master}-")
    os.environ[FOLDER] = folder

    def clean_up() -> None:
        if os.getpid() == master:  # workers are forked with this, too
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(clean_up)


class _Processes(MultiProcessCollector):
    """What all processes counted; one that has ended has nothing open."""

    def collect(self) -> Iterable[Metric]:
        # The scrape finds out, because not every server says when a worker is gone.
        for file in Path(os.environ[FOLDER]).glob("gauge_live*.db"):
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
