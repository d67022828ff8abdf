"""The schema, the keys, the worker and the webhooks."""

from datetime import timedelta

from sso import clock, context
from sso.audit import rows as audit_events
from sso.checkup.finding import Findings, ok, warning, wrong
from sso.crypto import keys
from sso.database import schema as database_schema
from sso.extensions import db
from sso.models import KeyState
from sso.process.program import COMMAND
from sso.store import heartbeats, logout_deliveries, mails, signing_keys
from sso.store import webhooks as stored_webhooks

ROTATION_IS_LATE = timedelta(days=2)
WORKER_IS_LATE = timedelta(minutes=5)
WEBHOOK_IS_LATE = timedelta(hours=1)


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
