"""Where requests, events and tokens are counted; nothing is, until `metrics` gives the counters.

So commands, which count nothing, do not load prometheus_client.
"""

from typing import Protocol


class Counters(Protocol):
    """What counts; see `sso.metrics.server`."""

    def request(self, endpoint: str, method: str, status: int, seconds: float) -> None: ...
    def event(self, name: str) -> None: ...
    def token_request(self, grant: str | None, error: str | None) -> None: ...
    def upstream(self, provider: str, outcome: str) -> None: ...


_counters: Counters | None = None


def use(counters: Counters) -> None:
    """Count from now on, in this process and those that it forks."""
    global _counters
    _counters = counters


def request(endpoint: str, method: str, status: int, seconds: float) -> None:
    """An answered request. The caller bounds the labels."""
    if _counters:
        _counters.request(endpoint, method, status, seconds)


def event(name: str) -> None:
    """A security event, by the name that our source gives it."""
    if _counters:
        _counters.event(name)


def token_request(grant: str | None, error: str | None) -> None:
    """An answer of the token endpoint; `error` is `None` when it gave tokens."""
    if _counters:
        _counters.token_request(grant, error)


def upstream(provider: str, outcome: str) -> None:
    """A sign-in through an upstream provider: `ok`, `refused` or `unavailable`."""
    if _counters:
        _counters.upstream(provider, outcome)
