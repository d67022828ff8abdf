"""Gauges that are read when somebody asks. One line adds one:

    gauges.add("sso_invitations_open", "Invitations not yet taken up.", invitations.count_open)
    gauges.add_outbox("mail", mails.backlog)

`read` runs in an application context and gives a number, or numbers by label values; that of an
outbox gives how many messages wait, and for how many seconds the oldest of them has.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from flask import Flask
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from sso.extensions import db

logger = logging.getLogger("sso.metrics")
Reading = float | Mapping[tuple[str, ...], float]


@dataclass(frozen=True)
class Gauge:
    """One gauge: its name, what it means, the names of its labels, and how it is read."""

    name: str
    meaning: str
    read: Callable[[], Reading]
    labels: tuple[str, ...] = ()


_gauges: dict[str, Gauge] = {}


def add(name: str, meaning: str, read: Callable[[], Reading], labels: tuple[str, ...] = ()) -> None:
    """Publish a gauge. Raises `ValueError` when the name is taken by another one."""
    if _gauges.get(name, Gauge(name, meaning, read, labels)).read is not read:
        raise ValueError(f"there is already a gauge {name}")
    _gauges[name] = Gauge(name, meaning, read, labels)


def add_outbox(outbox: str, read: Callable[[], tuple[float, float]]) -> None:
    """Publish depth and age of an outbox. Raises `ValueError` when the name is taken."""
    if _outboxes.get(outbox, read) is not read:
        raise ValueError(f"there is already an outbox {outbox}")
    _outboxes[outbox] = read


def _outbox_depths() -> Reading:
    return {(name,): read()[0] for name, read in _outboxes.items()}


def _outbox_ages() -> Reading:
    return {(name,): read()[1] for name, read in _outboxes.items()}


_outboxes: dict[str, Callable[[], tuple[float, float]]] = {}
add("sso_outbox_depth", "Messages that wait.", _outbox_depths, ("outbox",))
add("sso_outbox_oldest_seconds", "How long the oldest has waited.", _outbox_ages, ("outbox",))


class GaugeCollector(Collector):
    """Reads every gauge again; one that can't be read is left out and counted as failed."""

    def __init__(self, app: Flask) -> None:
        self._app = app

    def collect(self) -> Iterator[GaugeMetricFamily]:
        failed = 0
        with self._app.app_context():
            for gauge in list(_gauges.values()):
                try:
                    yield _family(gauge)
                except Exception as error:
                    failed += 1
                    logger.warning("gauge %s: %s", gauge.name, type(error).__name__)
                finally:
                    db.session.rollback()
        yield GaugeMetricFamily("sso_gauges_failed", "Gauges that could not be read.", value=failed)


def _family(gauge: Gauge) -> GaugeMetricFamily:
    reading = gauge.read()
    family = GaugeMetricFamily(gauge.name, gauge.meaning, labels=gauge.labels)
    values = reading if isinstance(reading, Mapping) else {(): reading}
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family
