"""Count requests, events and tokens, once `metrics` has set the counters.

Commands count nothing, and so do not load prometheus_client.
"""

from typing import Protocol


class Counters(Protocol):
    """The counters; see `sso.metrics.exporter`."""

    def request(self, endpoint: str, method: str, status: int, seconds: float) -> None: ...
    def event(self, name: str) -> None: ...
    def token_request(self, grant: str | None, error: str | None) -> None: ...
    def upstream(self, provider: str, outcome: str) -> None: ...


_counters: Counters | None = None


def use(counters: Counters) -> None:
    """Count with these counters from now on, in this process and in those that it forks."""
    global _counters
    _counters = counters


def request(endpoint: str, method: str, status: int, seconds: float) -> None:
    """Count an answered request. The caller bounds the labels."""
    if _counters:
        _counters.request(endpoint, method, status, seconds)


def event(name: str) -> None:
    """Count a security event, by its name in our source."""
    if _counters:
        _counters.event(name)


def token_request(grant: str | None, error: str | None) -> None:
    """Count an answer of the token endpoint; `error` is `None` if it has tokens."""
    if _counters:
        _counters.token_request(grant, error)


def upstream(provider: str, outcome: str) -> None:
    """Count a sign-in through an upstream provider: `ok`, `refused` or `unavailable`."""
    if _counters:
        _counters.upstream(provider, outcome)
