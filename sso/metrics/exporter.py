"""The metrics: the counters, and the port on which the counts of all workers are read.

Labels have few values, all from our code: nothing that a stranger sends becomes a time series, and
no label has an id, a name or a secret. One process of a server has the port and reports for all.
The port is not reachable through the public URL; it listens on 127.0.0.1 unless
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

from sso.config.client_fields import DEVICE_CODE, JWT_BEARER, TOKEN_EXCHANGE
from sso.config.settings import Settings
from sso.extensions import db
from sso.metrics import gauges
from sso.observability import counters

# The variable of prometheus_client: a folder that all processes of one server write to.
FOLDER = "PROMETHEUS_MULTIPROC_DIR"
BUCKETS = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
GRANTS = {
    "authorization_code": "authorization_code",
    "refresh_token": "refresh_token",
    "client_credentials": "client_credentials",
    DEVICE_CODE: "device_code",
    TOKEN_EXCHANGE: "token_exchange",
    JWT_BEARER: "jwt_bearer",
}
TOKEN_ERRORS = frozenset(
    {
        "invalid_request", "invalid_client", "invalid_grant", "unauthorized_client",
        "unsupported_grant_type", "invalid_scope", "temporarily_unavailable", "server_error",
        "invalid_target", "authorization_pending", "slow_down", "access_denied", "expired_token",
    }
)  # fmt: skip
SIGN_INS = {"signed_in": "success", "sign_in_failed": "failure"}
OTHER = "other"


class Counters:
    """The counters of this process; each process of a server writes to its own files."""

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
        # A rate needs a zero to begin with.
        for outcome in SIGN_INS.values():
            self.sign_ins.labels(outcome)
        for grant in GRANTS.values():
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
        self.tokens.labels(GRANTS.get(grant or "", OTHER), outcome).inc()

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
    """Begin to count in this process and in those that it forks; return the counters."""
    started = Counters()
    counters.use(started)
    return started


logger = logging.getLogger("sso.metrics")
_PREFIX = "sso-metrics-"
_TRY_AGAIN = 1.0  # seconds until another process has noticed that the port is free


def init_app(app: Flask) -> None:
    """Begin to count, also the connections of the application's pool."""
    counting = start_counting()
    with app.app_context():
        pool = db.engine.pool
    for state, begin, end in (("open", "connect", "close"), ("in_use", "checkout", "checkin")):
        gauge = counting.connections.labels(state)
        event.listen(pool, begin, lambda *_, gauge=gauge: gauge.inc())
        event.listen(pool, end, lambda *_, gauge=gauge: gauge.dec())


def serve(app: Flask) -> None:
    """Answer on the port in a thread, once no other process does. Call it after a fork."""
    settings: Settings = app.extensions["sso.settings"]
    place = (settings.metrics_address, settings.metrics_port)
    threading.Thread(target=_serve, args=(app, *place), name="metrics", daemon=True).start()


def registry(app: Flask) -> CollectorRegistry:
    """Return a registry of everything: the counts of all processes, and the gauges."""
    registry = CollectorRegistry()
    if os.environ.get(FOLDER):
        _Processes(registry)
    else:
        registry.register(start_counting().registry)
    registry.register(gauges.GaugeCollector(app))
    return registry


def _serve(app: Flask, ip_address: str, port: int) -> None:
    collectors = registry(app)
    while True:
        try:
            start_http_server(port, ip_address, collectors)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                logger.error("metrics: %s port %s: %s", ip_address, port, error.strerror)
                return
            sleep(_TRY_AGAIN)
        else:
            logger.info("metrics on %s port %s", ip_address, port)
            return


def prepare() -> None:
    """Create the folder that the workers share; the master does so before it loads the application.

    Each master has its own folder: one that replaces another (USR2) begins from zero.
    """
    master = os.getpid()
    folder_name = Path(os.environ.get(FOLDER, "")).name
    if folder_name.startswith(f"{_PREFIX}{master}-"):
        return  # the configuration is read again at each reload
    folder = tempfile.mkdtemp(prefix=f"{_PREFIX}{master}-")
    os.environ[FOLDER] = folder

    def clean_up() -> None:
        if os.getpid() == master:  # forked workers inherit this
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(clean_up)


class _Processes(MultiProcessCollector):
    """The counts of all processes; one that has ended has no open connections."""

    def collect(self) -> Iterable[Metric]:
        # Checked at each scrape, because not every server reports that a worker has ended.
        for file in Path(os.environ[FOLDER]).glob("gauge_live*.db"):
            pid = int(file.stem.rpartition("_")[2])
            if not _is_alive(pid):
                with suppress(FileNotFoundError):  # another scrape was faster
                    mark_process_dead(pid)
        metrics: Iterable[Metric] = super().collect()
        return metrics


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
