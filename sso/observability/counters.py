"""What is counted, with prometheus_client; nothing at all until `start` is called.

Labels have few values, all of them ours: nothing that a stranger sends becomes a time series, and
no id, name or secret is in one.
"""

import os
from collections.abc import Callable
from functools import cache

# prometheus_client's own name: a folder that all processes of one server write to.
FOLDER = "PROMETHEUS_MULTIPROC_DIR"
BUCKETS = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
GRANTS = frozenset({"authorization_code", "refresh_token"})
TOKEN_ERRORS = frozenset(
    {
        "invalid_request", "invalid_client", "invalid_grant", "unauthorized_client",
        "unsupported_grant_type", "invalid_scope", "temporarily_unavailable", "server_error",
    }
)  # fmt: skip
SIGN_INS = {"signed_in": "success", "sign_in_failed": "failure"}
OTHER = "other"


class Counters:
    """The counters of this process; in a server of several, each writes to files of its own."""

    def __init__(self) -> None:
        # Here, because most programs count nothing, and commands are not to wait for it.
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, values

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
        self.connections = Gauge(
            "sso_database_connections", "Connections to the database.", ("state",),
            registry=registry, multiprocess_mode="livesum",
        )  # fmt: skip
        # Finding a child by its labels costs more than counting.
        self.request = cache(self._request)
        # A rate needs a zero to begin from.
        for outcome in SIGN_INS.values():
            self.sign_ins.labels(outcome)
        for grant in GRANTS:
            self.tokens.labels(grant, "ok")

    def _request(
        self, endpoint: str, method: str, status: int
    ) -> tuple[Callable[[], None], Callable[[float], None]]:
        return (
            self.requests.labels(endpoint, method, str(status)).inc,
            self.seconds.labels(endpoint).observe,
        )


_counters: Counters | None = None


def start() -> Counters:
    """Count from now on, in this process and those that it forks."""
    global _counters
    _counters = _counters or Counters()
    return _counters


def request(endpoint: str, method: str, status: int, seconds: float) -> None:
    """An answered request. The caller bounds the labels."""
    if _counters:
        count, observe = _counters.request(endpoint, method, status)
        count()
        observe(seconds)


def event(name: str) -> None:
    """A security event, by the name that our source gives it."""
    if _counters:
        _counters.events.labels(name).inc()
        if name in SIGN_INS:
            _counters.sign_ins.labels(SIGN_INS[name]).inc()


def token_request(grant: str | None, error: str | None) -> None:
    """An answer of the token endpoint; `error` is `None` when it gave tokens."""
    if _counters:
        outcome = "ok" if error is None else error if error in TOKEN_ERRORS else OTHER
        _counters.tokens.labels(grant if grant in GRANTS else OTHER, outcome).inc()
