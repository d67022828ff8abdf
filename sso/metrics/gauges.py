"""Gauges, read whenever the metrics are scraped. A line in `GAUGES` adds one.

`read` runs in an application context and returns a number, or numbers by label values.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from platform import python_version
from typing import Any

from flask import Flask
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from sso import clock, context
from sso.database import schema
from sso.extensions import db
from sso.models import KeyState
from sso.store import identities, keys, outbox, provisioning, webhooks
from sso.store.outbox import Outbox

logger = logging.getLogger("sso.metrics")
Reading = float | Mapping[tuple[str, ...], float]


@dataclass(frozen=True)
class Gauge:
    """One gauge: its name, what it means, the names of its labels, and how it is read."""

    name: str
    meaning: str
    read: Callable[[], Reading]
    labels: tuple[str, ...] = ()


class GaugeCollector(Collector):
    """Reads every gauge again; one that cannot be read is left out and counted as failed."""

    def __init__(self, app: Flask) -> None:
        self._app = app

    def collect(self) -> Iterator[GaugeMetricFamily]:
        failed = 0
        with self._app.app_context():
            for gauge in GAUGES:
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


def _build() -> Reading:
    try:
        return {(version("sso"), python_version()): 1}
    except PackageNotFoundError:
        return {("unknown", python_version()): 1}


def _database_up() -> Reading:
    try:
        db.session.execute(text("SELECT 1"))
    except SQLAlchemyError:
        return 0
    return 1


def _schema() -> Reading:
    return {(str(schema.revision(db.session.connection())),): 1}


def _current() -> Reading:
    return int(schema.is_current(db.session.connection()))


def _key_ages() -> Reading:
    return {
        (key.alg, key.state): (clock.now() - (key.activated_at or key.created_at)).total_seconds()
        for key in keys.every_signing_key()
        if key.state != KeyState.RETIRED
    }


def _worker() -> Reading:
    last = outbox.last_beat(outbox.WORKER)
    # Without a worker there is no sample: Prometheus' absent() detects that.
    return {(): (clock.now() - last).total_seconds()} if last else {}


def _directory_ages() -> Reading:
    """Return the age of the oldest recheck by directory."""
    now = clock.now()
    ages: dict[tuple[str, ...], float] = {}
    for provider in context.upstreams():
        if provider.recheck and not provider.REDIRECTS:
            due = identities.due_people(provider.id, now, 1)
            since = due[0].checked_at if due else None
            ages[(provider.id,)] = (now - since).total_seconds() if since else 0.0
    return ages


_OUTBOXES: dict[str, Outbox[Any]] = {
    "logout": outbox.LOGOUTS,
    "mail": outbox.MAILS,
    "scim": provisioning.outbox,
    "webhook": webhooks.outbox,
}


def _outbox_depths() -> Reading:
    return {(name,): outbox.waiting()[0] for name, outbox in _OUTBOXES.items()}


def _outbox_ages() -> Reading:
    oldest = {name: outbox.waiting()[1] for name, outbox in _OUTBOXES.items()}
    now = clock.now()
    return {(name,): (now - at).total_seconds() if at else 0.0 for name, at in oldest.items()}


GAUGES = (
    Gauge("sso_build_info", "What runs here.", _build, ("version", "python")),
    Gauge("sso_database_up", "Whether the database answers.", _database_up),
    Gauge("sso_schema_info", "The schema's revision.", _schema, ("revision",)),
    Gauge("sso_schema_current", "Whether the schema is this program's.", _current),
    Gauge(
        "sso_signing_key_age_seconds", "Age of the signing keys since they took this state.",
        _key_ages, ("alg", "state"),
    ),
    Gauge("sso_worker_seen_seconds", "Time since a worker last showed that it runs.", _worker),
    Gauge("sso_outbox_depth", "Messages that wait.", _outbox_depths, ("outbox",)),
    Gauge(
        "sso_directory_check_age_seconds",
        "Time since a directory was asked about the signed-in person who waits longest.",
        _directory_ages, ("provider",),
    ),
    Gauge(
        "sso_outbox_oldest_seconds", "How long the oldest has waited.", _outbox_ages, ("outbox",)
    ),
)  # fmt: skip
