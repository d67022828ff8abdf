"""What is counted, with prometheus_client.

Labels have few values, all of them ours: nothing that a stranger sends becomes a time series, and
no id, name or secret is in one.
"""

import os
from collections.abc import Callable
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, values

from sso.observability import counters

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
def start() -> Counters:
    """The counters of this process and those that it forks; it counts from now on."""
    made = Counters()
    counters.use(made)
    return made
