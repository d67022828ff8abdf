"""The gauges that every installation has: build, schema, keys, database."""

from importlib.metadata import PackageNotFoundError, version
from platform import python_version

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from sso import clock
from sso.database import schema
from sso.database.readiness import schema_is_current
from sso.extensions import db
from sso.metrics import gauges
from sso.models import KeyState
from sso.store import heartbeats, logout_deliveries, mails, signing_keys


def init_app() -> None:
    gauges.add("sso_build_info", "What runs here.", _build, ("version", "python"))
    gauges.add("sso_database_up", "Whether the database answers.", _database_up)
    gauges.add("sso_schema_info", "The schema's revision.", _schema, ("revision",))
    gauges.add("sso_schema_current", "Whether the schema is this program's.", _current)
    gauges.add(
        "sso_signing_key_age_seconds", "Age of the signing keys since they took this state.",
        _key_ages, ("alg", "state"),
    )  # fmt: skip
    gauges.add("sso_worker_seen_seconds", "Time since a worker last showed that it runs.", _worker)
    gauges.add_outbox("logout", _logouts)
    gauges.add_outbox("mail", _mails)


def _build() -> gauges.Reading:
    try:
        return {(version("sso"), python_version()): 1}
    except PackageNotFoundError:
        return {("unknown", python_version()): 1}


def _database_up() -> gauges.Reading:
    try:
        db.session.execute(text("SELECT 1"))
    except SQLAlchemyError:
        return 0
    return 1


def _schema() -> gauges.Reading:
    found = schema.revision(db.session.connection())
    return {(str(found),): 1}


def _current() -> gauges.Reading:
    return int(schema_is_current())


def _key_ages() -> gauges.Reading:
    return {
        (key.alg, key.state): (clock.now() - (key.activated_at or key.created_at)).total_seconds()
        for key in signing_keys.every()
        if key.state != KeyState.RETIRED
    }


def _worker() -> gauges.Reading:
    last = heartbeats.last(heartbeats.WORKER)
    # Without a worker there is no sample: Prometheus' absent() finds that.
    return {(): (clock.now() - last).total_seconds()} if last else {}


def _logouts() -> tuple[float, float]:
    count, oldest = logout_deliveries.outbox.waiting()
    return count, (clock.now() - oldest).total_seconds() if oldest else 0.0


def _mails() -> tuple[float, float]:
    count, oldest = mails.outbox.waiting()
    return count, (clock.now() - oldest).total_seconds() if oldest else 0.0
