"""What can be checked on this machine: files, database, schema, keys, worker."""

import stat
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path

from flask import current_app
from sqlalchemy import func, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from sso import clock, context
from sso.audit import rows as audit_events
from sso.config import overrides
from sso.config.reading import Reading
from sso.config.settings import SETTINGS
from sso.crypto import keys
from sso.database import postgresql, readiness
from sso.database import schema as database_schema
from sso.doctor.finding import Finding, Findings, ok, skipped, warning, wrong
from sso.extensions import db
from sso.jobs import reencryption
from sso.models import KeyState
from sso.process.program import COMMAND
from sso.store import heartbeats, logout_deliveries, mails, signing_keys
from sso.store import webhooks as stored_webhooks

MOST_SKEW = timedelta(seconds=5)
ROTATION_IS_LATE = timedelta(days=2)
WORKER_IS_LATE = timedelta(minutes=5)
WEBHOOK_IS_LATE = timedelta(hours=1)
SECRETS = frozenset(setting.name for setting in SETTINGS if setting.secret)


def file_modes(environ: Mapping[str, str], reading: Reading) -> Findings:
    """Only the owner can read secrets or write to their folder."""
    instance = Path(current_app.instance_path)
    places = [(instance, 0o022), (instance / "secret_key", 0o077)]
    places += [
        (Path(environ[source]), 0o027)
        for name, source in reading.sources.items()
        if source.endswith("_FILE") and name in SECRETS
    ]
    errors = [
        wrong("file modes", seen, hint)
        for path, forbidden in places
        for seen, hint in _too_open(path, forbidden)
    ]
    url = make_url(context.settings().database_url)
    if url.get_backend_name() == "sqlite" and url.database:
        # It holds no secret in clear, but personal data.
        errors += [
            warning("file modes", seen, hint) for seen, hint in _too_open(Path(url.database), 0o007)
        ]
    folder = context.settings().templates_dir
    if folder and not overrides.is_read_only(Path(folder)):
        errors += [
            warning("file modes", seen, hint)
            for path in (Path(folder), *Path(folder).rglob("*"))
            for seen, hint in _too_open(path, 0o022)
        ]
    yield from errors or [ok("file modes", "secrets are closed to others")]


def _too_open(path: Path, forbidden: int) -> Iterator[tuple[str, str]]:
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0
    if mode & forbidden:
        yield f"{path} has the mode {mode:o}: too open", f"chmod {mode & ~forbidden:o} {path}"


def database() -> Findings:
    """It is reachable, and its clock agrees with this machine's."""
    name = db.engine.dialect.name
    try:
        reported = db.session.scalar(select(func.now()))
    except SQLAlchemyError as error:
        reason = type(error).__name__
        hints = [hint for text, hint in _OF_POOLER.items() if text in str(error)]
        hint = hints[0] if hints else "check SSO_DATABASE_URL"
        yield wrong("database", f"{name} cannot be reached ({reason})", hint)
        return
    if readiness.is_read_only(db.session.connection()):
        hint = "name the primary, or all servers; see docs/how-to/postgresql.md"
        yield wrong("database", readiness.READ_ONLY, hint)
    else:
        yield ok("database", f"{name} answers")
    db.session.rollback()
    if name == "sqlite" or not isinstance(reported, datetime):
        yield skipped("clock and database", "an SQLite file has no clock of its own")
        return
    yield clock_finding("clock and database", reported, MOST_SKEW)


POOLED = "there is one: time limits are set in each transaction"
_OF_POOLER = {
    "statement pooling mode": "set pool_mode = transaction in PgBouncer's configuration",
    "unsupported startup parameter": "take `options` out of SSO_DATABASE_URL: PgBouncer refuses "
    "them. ALTER ROLE … SET sets them on the role",
}


def pooler() -> Findings:
    """What stands between this server and PostgreSQL passes on what the URL asks for."""
    if db.engine.dialect.name != "postgresql":
        return
    is_pooled = postgresql.is_pooled(db.session.connection())
    db.session.rollback()
    if not is_pooled:
        yield ok("pooler", "none")
    elif "options" in db.engine.url.query:
        yield warning(
            "pooler",
            "it ignores `options` in SSO_DATABASE_URL, except for time limits",
            "take them out; ALTER ROLE … SET sets them on the role",
        )
    else:
        yield ok("pooler", POOLED)


def clock_finding(name: str, reported: datetime, most: timedelta) -> Finding:
    """Compare another clock with ours."""
    skew = abs(clock.now() - reported).total_seconds()
    if skew > most.total_seconds():
        return wrong(
            name,
            f"they differ by {skew:.0f} s from this machine's; codes live for a minute",
            "keep every machine's clock with NTP (timedatectl set-ntp true)",
        )
    return ok(name, f"within {most.total_seconds():.0f} s of this machine's")


def schema() -> Findings:
    """The newest migration was applied."""
    if database_schema.is_current(db.session.connection()):
        yield ok("schema", "current")
    else:
        yield wrong(
            "schema",
            "the database schema does not match this version",
            f"run: {COMMAND} db upgrade",
        )
    db.session.rollback()


def signing_key_life() -> Findings:
    """Each algorithm has an active and a next key, which the secret key decrypts."""
    rows = signing_keys.every()
    db.session.rollback()
    for alg in keys.ALGORITHMS:
        for state in (KeyState.ACTIVE, KeyState.NEXT):
            if not any(row.alg == alg and row.state == state for row in rows):
                hint = f"run: {COMMAND} db upgrade"
                yield wrong("keys", f"there is no {state} key of {alg}", hint)
                return
    if not all(keys.can_decrypt(context.settings().secret_keys, row) for row in rows):
        yield wrong(
            "keys",
            "SSO_SECRET_KEY does not decrypt the signing keys",
            "give the secret key that the database was made with; it is kept apart from backups. "
            "To replace it, give it as SSO_SECRET_KEY_PREVIOUS; see docs/how-to/secret-key.md",
        )
        return
    age = max(clock.now() - (r.activated_at or r.created_at) for r in rows if r.state == "active")
    if age > timedelta(seconds=context.settings().key_lifetime) + ROTATION_IS_LATE:
        hint = f"{COMMAND} worker rotates them by SSO_KEY_LIFETIME: check that it runs"
        yield warning("keys", f"in use for {age.days} days", hint)
    else:
        yield ok("keys", f"active and next of {', '.join(keys.ALGORITHMS)}; in use {age.days} days")


def secret_key() -> Findings:
    """Everything is encrypted with the current secret key, and with it alone."""
    waiting = reencryption.waiting()
    has_previous = context.settings().secret_key_previous is not None
    if waiting:
        seen = f"still encrypted with another secret key: {', '.join(waiting)}"
        hint = f"run: {COMMAND} key reencrypt, with SSO_SECRET_KEY_PREVIOUS set"
        yield (warning if has_previous else wrong)("secret key", seen, hint)
    elif has_previous:
        seen = "nothing at rest needs SSO_SECRET_KEY_PREVIOUS any more"
        hint = "remove it: at once if it leaked, else once most browsers have come back"
        yield warning("secret key", seen, hint)
    else:
        yield ok("secret key", "everything is encrypted with SSO_SECRET_KEY")


def webhooks() -> Findings:
    """Their receivers take what is sent."""
    known = stored_webhooks.every()
    db.session.rollback()
    late = clock.now() - WEBHOOK_IS_LATE
    failing = 0
    for one in known:
        hint = f"see: {COMMAND} webhook deliveries {one.id}"
        if one.disabled_at:
            if not one.disabled_reason:
                continue  # by an operator
            why = f"disabled, {one.disabled_reason}"
            hint += f"; then: {COMMAND} webhook enable {one.id}"
        elif one.failing_since and one.failing_since < late:
            why = f"failing since {one.failing_since:%Y-%m-%d %H:%M} UTC"
        else:
            continue
        failing += 1
        yield warning("webhooks", f"{one.url}: {why}", hint)
    if not failing:
        yield ok("webhooks", f"{len(known)} registered, none of them fails")


def worker() -> Findings:
    """Nothing has been due for long, and a worker runs."""
    due = {
        "a mail": mails.outbox.due_since(),
        "a logout token": logout_deliveries.outbox.due_since(),
        "an audit event": audit_events.unchained_since(),
    }
    last = heartbeats.last(heartbeats.WORKER)
    db.session.rollback()
    late = [(since, what) for what, since in due.items() if since]
    since, what = min(late, default=(clock.now(), ""))
    if clock.now() - since > WORKER_IS_LATE:
        seen = f"{what} has been due since {since:%Y-%m-%d %H:%M} UTC, and nothing handles it"
        yield wrong("worker", seen, f"start: {COMMAND} worker")
    elif last is None:
        seen = "none has ever run: no mail or logout token is sent, nothing is purged"
        yield warning("worker", seen, f"start: {COMMAND} worker")
    elif clock.now() - last > WORKER_IS_LATE:
        seen = f"none has run since {last:%Y-%m-%d %H:%M} UTC"
        yield warning("worker", seen, f"start: {COMMAND} worker")
    else:
        yield ok("worker", "runs, and nothing has been due for long")
