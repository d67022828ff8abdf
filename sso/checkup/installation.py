"""The schema, the keys, the worker and the webhooks."""

from datetime import datetime, timedelta

from sso import clock, context
from sso.audit import rows as audit_events
from sso.checkup.finding import Findings, at, ok, run, warning, wrong
from sso.crypto import keys
from sso.database import schema as database_schema
from sso.extensions import db
from sso.i18n.message import Message, Quote
from sso.models import KeyState
from sso.process.program import COMMAND
from sso.store import keys as stored_keys
from sso.store import outbox
from sso.store import webhooks as stored_webhooks

ROTATION_IS_LATE = timedelta(days=2)
WORKER_IS_LATE = timedelta(minutes=5)
WEBHOOK_IS_LATE = timedelta(hours=1)


def schema() -> Findings:
    """The newest migration was applied."""
    if database_schema.is_current(db.session.connection()):
        yield ok("schema", Message("current"))
    else:
        yield wrong(
            "schema",
            Message("the database schema does not match this version"),
            run(f"{COMMAND} db upgrade"),
        )
    db.session.rollback()


def signing_key_life() -> Findings:
    """Each algorithm has an active and a next key, which the secret key decrypts."""
    rows = stored_keys.every_signing_key()
    db.session.rollback()
    for alg in keys.ALGORITHMS:
        for state, seen in (
            (KeyState.ACTIVE, Message("there is no active key of %(alg)s", alg=alg)),
            (KeyState.NEXT, Message("there is no next key of %(alg)s", alg=alg)),
        ):
            if not any(row.alg == alg and row.state == state for row in rows):
                yield wrong("keys", seen, run(f"{COMMAND} db upgrade"))
                return
    if not all(keys.can_decrypt(context.settings().secret_keys, row) for row in rows):
        yield wrong(
            "keys",
            Message("SSO_SECRET_KEY does not decrypt the signing keys"),
            Message(
                "give the secret key that the database was made with; it is kept apart from "
                "backups. To replace it, give it as SSO_SECRET_KEY_PREVIOUS; see %(page)s",
                page="docs/how-to/secret-key.md",
            ),
        )
        return
    age = max(clock.now() - (r.activated_at or r.created_at) for r in rows if r.state == "active")
    if age > timedelta(seconds=context.settings().key_lifetime) + ROTATION_IS_LATE:
        hint = Message(
            "%(command)s rotates them by SSO_KEY_LIFETIME: check that it runs",
            command=f"{COMMAND} worker",
        )
        yield warning("keys", Message("in use for %(days)s days", days=age.days), hint)
    else:
        seen = Message(
            "active and next of %(algorithms)s; in use %(days)s days",
            algorithms=", ".join(keys.ALGORITHMS),
            days=age.days,
        )
        yield ok("keys", seen)


def webhooks() -> Findings:
    """Their receivers take what is sent."""
    known = stored_webhooks.every()
    db.session.rollback()
    late = clock.now() - WEBHOOK_IS_LATE
    failing = 0
    for one in known:
        see = f"{COMMAND} webhook deliveries {one.id}"
        hint = Message("see: %(command)s", command=see)
        if one.disabled_at:
            if not one.disabled_reason:
                continue  # by an operator
            why = Message("disabled, %(reason)s", reason=_reason(one.disabled_reason))
            enable = f"{COMMAND} webhook enable {one.id}"
            hint = Message("see: %(command)s; then: %(then)s", command=see, then=enable)
        elif one.failing_since and one.failing_since < late:
            why = Message("failing since %(time)s", time=_minute(one.failing_since))
        else:
            continue
        failing += 1
        yield warning("webhooks", at(one.url, why), hint)
    if not failing:
        seen = Message("%(count)s registered, none of them fails", count=len(known))
        yield ok("webhooks", seen)


def _reason(text: str) -> str:
    """What `jobs.webhook_delivery` stored."""
    kind, _, what = text.partition(" since ")
    if kind == "failing":
        return Message("failing since %(time)s", time=what)
    status = text.removeprefix("it answered ")
    return Message("it answered %(status)s", status=status) if status.isdigit() else Quote(text)


def worker() -> Findings:
    """Nothing has been due for long, and a worker runs."""
    due = {
        Message("a mail"): outbox.MAILS.due_since(),
        Message("a logout token"): outbox.LOGOUTS.due_since(),
        Message("an audit event"): audit_events.unchained_since(),
    }
    last = outbox.last_beat(outbox.WORKER)
    db.session.rollback()
    late = [(since, what) for what, since in due.items() if since]
    oldest = min(late, default=None)
    start = Message("start: %(command)s", command=f"{COMMAND} worker")
    if oldest and clock.now() - oldest[0] > WORKER_IS_LATE:
        seen = Message(
            "%(what)s has been due since %(time)s, and nothing handles it",
            what=oldest[1],
            time=_minute(oldest[0]),
        )
        yield wrong("worker", seen, start)
    elif last is None:
        seen = Message("none has ever run: no mail or logout token is sent, nothing is purged")
        yield warning("worker", seen, start)
    elif clock.now() - last > WORKER_IS_LATE:
        seen = Message("none has run since %(time)s", time=_minute(last))
        yield warning("worker", seen, start)
    else:
        yield ok("worker", Message("runs, and nothing has been due for long"))


def _minute(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"
