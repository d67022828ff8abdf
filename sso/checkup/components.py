"""The installation: schema, keys, worker, webhooks, files, templates, Redis and the mail server."""

import smtplib
import ssl
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from flask import current_app
from sqlalchemy import func, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from sso import clock, context
from sso.audit import chain
from sso.audit import rows as audit_events
from sso.audit.chain import ChainBroken
from sso.checkup.finding import Finding, Findings, at, ok, run, skipped, warning, wrong
from sso.config import mail_texts, overrides, smtp
from sso.config.overrides import BUILT_IN, STYLE, TEXTS, Overrides
from sso.config.settings import SETTINGS
from sso.config.tables import Reading
from sso.crypto import foreign_hashes, keys, secrets
from sso.database import postgresql, readiness
from sso.database import schema as database_schema
from sso.extensions import db
from sso.i18n import N_
from sso.i18n.message import Message, Quote, joined
from sso.mfa import totp
from sso.models import KeyState
from sso.process.program import COMMAND
from sso.ratelimit import storage
from sso.services import roles
from sso.services.importing import MOST_SECONDS
from sso.store import clients, factors, outbox, password_hashes
from sso.store import keys as stored_keys
from sso.store import provisioning as stored_provisioning
from sso.store import webhooks as stored_webhooks

ROLES = "roles"
ROTATION_IS_LATE = timedelta(days=2)
WORKER_IS_LATE = timedelta(minutes=5)
WEBHOOK_IS_LATE = timedelta(hours=1)


def schema() -> Findings:
    """Check that the newest migration was applied."""
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
    """Check that each algorithm has an active and a next key that the secret key decrypts."""
    rows = stored_keys.every_signing_key()
    db.session.rollback()
    for alg in keys.ALGORITHMS:
        for state, message in (
            (KeyState.ACTIVE, Message("there is no active key of %(alg)s", alg=alg)),
            (KeyState.NEXT, Message("there is no next key of %(alg)s", alg=alg)),
        ):
            if not any(row.alg == alg and row.state == state for row in rows):
                yield wrong("keys", message, run(f"{COMMAND} db upgrade"))
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
    active = [row for row in rows if row.state == KeyState.ACTIVE and row.alg != keys.SAML]
    age = max(clock.now() - (row.activated_at or row.created_at) for row in active)
    if age > timedelta(seconds=context.settings().key_lifetime) + ROTATION_IS_LATE:
        hint = Message(
            "%(command)s rotates them by SSO_KEY_LIFETIME: check that it runs",
            command=f"{COMMAND} worker",
        )
        yield warning("keys", Message("in use for %(days)s days", days=age.days), hint)
    else:
        message = Message(
            "active and next of %(algorithms)s; in use %(days)s days",
            algorithms=", ".join(keys.ALGORITHMS),
            days=age.days,
        )
        yield ok("keys", message)


def webhooks() -> Findings:
    """Check that no webhook has been failing for long."""
    rows = stored_webhooks.every()
    db.session.rollback()
    late = clock.now() - WEBHOOK_IS_LATE
    failing = 0
    for webhook in rows:
        command = f"{COMMAND} webhook deliveries {webhook.id}"
        hint = Message("see: %(command)s", command=command)
        if webhook.disabled_at:
            if not webhook.disabled_reason:
                continue  # by an operator
            message = Message("disabled, %(reason)s", reason=webhook_fault(webhook.disabled_reason))
            enable = f"{COMMAND} webhook enable {webhook.id}"
            hint = Message("see: %(command)s; then: %(then)s", command=command, then=enable)
        elif webhook.failing_since and webhook.failing_since < late:
            message = Message("failing since %(time)s", time=_minute(webhook.failing_since))
        else:
            continue
        failing += 1
        yield warning("webhooks", at(webhook.url, message), hint)
    if not failing:
        message = Message("%(count)s registered, none of them fails", count=len(rows))
        yield ok("webhooks", message)


def provisioning() -> Findings:
    """Check that no application's SCIM service has been failing for long."""
    rows = stored_provisioning.every()
    counts = {row.client_id: stored_provisioning.counts(row.client_id) for row in rows}
    db.session.rollback()
    late = clock.now() - WEBHOOK_IS_LATE
    failing = 0
    for row in rows:
        given_up = counts[row.client_id][2]
        if row.failing_since and row.failing_since < late:
            message = Message("failing since %(time)s", time=_minute(row.failing_since))
        elif given_up:
            message = Message("%(count)s people are not there as they are here", count=given_up)
        else:
            continue
        failing += 1
        hint = Message("see: %(command)s", command=f"{COMMAND} scim show {row.client_id}")
        yield warning("provisioning", at(row.client_id, message), hint)
    if not failing:
        message = Message("%(count)s registered, none of them fails", count=len(rows))
        yield ok("provisioning", message)


def webhook_fault(text: str) -> str:
    """Translate the reason that `jobs.webhook_delivery` stored."""
    kind, _, what = text.partition(" since ")
    if kind == "failing":
        return Message("failing since %(time)s", time=what)
    status = text.removeprefix("it answered ")
    return Message("it answered %(status)s", status=status) if status.isdigit() else Quote(text)


def worker() -> Findings:
    """Check that a worker runs and nothing has been due for long."""
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
        message = Message(
            "%(what)s has been due since %(time)s, and nothing handles it",
            what=oldest[1],
            time=_minute(oldest[0]),
        )
        yield wrong("worker", message, start)
    elif last is None:
        message = Message("none has ever run: no mail or logout token is sent, nothing is purged")
        yield warning("worker", message, start)
    elif clock.now() - last > WORKER_IS_LATE:
        message = Message("none has run since %(time)s", time=_minute(last))
        yield warning("worker", message, start)
    else:
        yield ok("worker", Message("runs, and nothing has been due for long"))


def _minute(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"


MOST_SKEW = timedelta(seconds=5)
SECRETS = frozenset(setting.name for setting in SETTINGS if setting.secret)


def file_modes(environ: Mapping[str, str], reading: Reading) -> Findings:
    """Check that only the owner can read secrets or write to their folder."""
    instance = Path(current_app.instance_path)
    places = [(instance, 0o022), (instance / "secret_key", 0o077)]
    places += [
        (Path(environ[source]), 0o027)
        for name, source in reading.sources.items()
        if source.endswith("_FILE") and name in SECRETS
    ]
    errors = [
        wrong("file modes", message, hint)
        for path, forbidden in places
        for message, hint in _too_open(path, forbidden)
    ]
    url = make_url(context.settings().database_url)
    if url.get_backend_name() == "sqlite" and url.database:
        # It holds no secret in clear, but personal data.
        errors += [
            warning("file modes", message, hint)
            for message, hint in _too_open(Path(url.database), 0o007)
        ]
    folder = context.settings().templates_dir
    if folder and not overrides.is_read_only(Path(folder)):
        errors += [
            warning("file modes", message, hint)
            for path in (Path(folder), *Path(folder).rglob("*"))
            for message, hint in _too_open(path, 0o022)
        ]
    yield from errors or [ok("file modes", Message("secrets are closed to others"))]


def _too_open(path: Path, forbidden: int) -> Iterator[tuple[Message, str]]:
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0
    if mode & forbidden:
        message = Message(
            "%(path)s has the mode %(mode)s: too open", path=str(path), mode=f"{mode:o}"
        )
        yield message, f"chmod {mode & ~forbidden:o} {path}"


def database() -> Findings:
    """Check that the database is reachable and its clock agrees with this machine's."""
    name = db.engine.dialect.name
    try:
        reported = db.session.scalar(select(func.now()))
    except SQLAlchemyError as error:
        message = Message(
            "%(name)s cannot be reached (%(reason)s)", name=name, reason=type(error).__name__
        )
        hints = [hint for text, hint in _OF_POOLER.items() if text in str(error)]
        hint = hints[0] if hints else Message("check SSO_DATABASE_URL")
        yield wrong("database", message, hint)
        return
    if readiness.is_read_only(db.session.connection()):
        page = "docs/how-to/postgresql.md"
        hint = Message("name the primary, or all servers; see %(page)s", page=page)
        yield wrong("database", readiness.READ_ONLY, hint)
    else:
        yield ok("database", Message("%(where)s answers", where=name))
    db.session.rollback()
    if name == "sqlite" or not isinstance(reported, datetime):
        message = Message("an SQLite file has no clock of its own")
        yield skipped("clock and database", message)
        return
    yield clock_finding("clock and database", reported, MOST_SKEW)


def imported_passwords() -> Findings:
    """Check how much CPU time imported hashes add to each wrong password."""
    methods = password_hashes.foreign_hash_methods()
    db.session.rollback()
    if not methods:
        yield ok("imported passwords", Message("no hashes of other systems are left"))
        return
    seconds = foreign_hashes.seconds(methods)
    listed = ", ".join(sorted(method[1:] for method in methods))
    message = Message(
        "every wrong password takes %(milliseconds)d ms more (%(methods)s)",
        milliseconds=round(seconds * 1000),
        methods=listed,
    )
    if seconds > MOST_SECONDS:
        page = "docs/how-to/move-here.md"
        hint = Message("it ends when their users have signed in; see %(page)s", page=page)
        yield warning("imported passwords", message, hint)
    else:
        yield ok("imported passwords", message)


POOLED = Message("there is one: time limits are set in each transaction")
_OF_POOLER = {
    "statement pooling mode": Message(
        "set pool_mode = transaction in PgBouncer's configuration",
    ),
    "unsupported startup parameter": Message(
        "take `options` out of SSO_DATABASE_URL: PgBouncer refuses them. ALTER ROLE … SET sets "
        "them on the role",
    ),
}


def pooler() -> Findings:
    """Check that a connection pooler passes on the options in the database URL."""
    if db.engine.dialect.name != "postgresql":
        return
    is_pooled = postgresql.is_pooled(db.session.connection())
    db.session.rollback()
    if not is_pooled:
        yield ok("pooler", Message("none"))
    elif "options" in db.engine.url.query:
        yield warning(
            "pooler",
            Message("it ignores `options` in SSO_DATABASE_URL, except for time limits"),
            Message("take them out; ALTER ROLE … SET sets them on the role"),
        )
    else:
        yield ok("pooler", POOLED)


def clock_finding(name: str, reported: datetime, most: timedelta) -> Finding:
    """Compare another clock with this machine's."""
    skew = abs(clock.now() - reported).total_seconds()
    if skew > most.total_seconds():
        return wrong(
            name,
            Message(
                "they differ by %(seconds)s s from this machine's; codes live for a minute",
                seconds=f"{skew:.0f}",
            ),
            Message(
                "keep every machine's clock with NTP (%(command)s)",
                command="timedatectl set-ntp true",
            ),
        )
    seconds = f"{most.total_seconds():.0f}"
    return ok(name, Message("within %(seconds)s s of this machine's", seconds=seconds))


BATCH = 100


def secret_key(most: int | None = None) -> Findings:
    """Check that everything is encrypted with the current secret key, and with it alone.

    `most`: how many authenticator apps are checked; a million takes a minute.
    """
    stale = waiting(most)
    is_partial = most is not None and factors.count_totp_secrets() > most
    db.session.rollback()
    has_previous = context.settings().secret_key_previous is not None
    if stale:
        names = joined(N_("%(one)s, %(other)s"), stale)
        message = Message("still encrypted with another secret key: %(what)s", what=names)
        hint = Message(
            "run: %(command)s, with SSO_SECRET_KEY_PREVIOUS set", command=f"{COMMAND} key reencrypt"
        )
        yield (warning if has_previous else wrong)("secret key", message, hint)
    elif has_previous and is_partial:
        message = Message(
            "SSO_SECRET_KEY_PREVIOUS is set; only %(count)s authenticator apps were checked",
            count=most,
        )
        hint = Message(
            "run: %(command)s, which checks all of them and says whether it is needed",
            command=f"{COMMAND} doctor",
        )
        yield warning("secret key", message, hint)
    elif has_previous:
        message = Message("nothing at rest needs SSO_SECRET_KEY_PREVIOUS any more")
        hint = Message("remove it: at once if it leaked, else once most browsers have come back")
        yield warning("secret key", message, hint)
    elif is_partial:
        message = Message(
            "everything is encrypted with SSO_SECRET_KEY; only %(count)s authenticator apps were "
            "checked",
            count=most,
        )
        yield ok("secret key", message)
    else:
        yield ok("secret key", Message("everything is encrypted with SSO_SECRET_KEY"))


def waiting(most: int | None = None) -> list[Message]:
    """List what is still encrypted or authenticated with an older secret key. Change nothing.

    `most`: see `secret_key`.
    """
    newest = context.settings().secret_key
    stale = []
    if not all(keys.can_decrypt(newest, row) for row in stored_keys.every_signing_key()):
        stale.append(Message("signing keys"))
    if not _are_apps_current(most):
        stale.append(Message("authenticator apps"))
    if not all(
        secrets.can_decrypt_webhook_secret(newest, row.sealed_secret)
        for row in stored_webhooks.every()
    ):
        stale.append(Message("secrets of webhooks"))
    tokens = [row.sealed_token for row in stored_provisioning.every() if row.sealed_token]
    if not all(secrets.can_decrypt_scim_token(newest, token) for token in tokens):
        stale.append(Message("tokens for SCIM services"))
    try:
        if chain.is_rekeying_due():
            stale.append(Message("the audit trail"))
    except ChainBroken:
        command = f"{COMMAND} audit verify"
        stale.append(Message("the audit trail (see: %(command)s)", command=command))
    db.session.rollback()
    return stale


def _are_apps_current(most: int | None) -> bool:
    last = None
    for checked in count(0, BATCH):
        rows = factors.totp_secret_batch(last, BATCH)
        if not all(totp.is_current(row) for row in rows):
            return False
        if len(rows) < BATCH or (most is not None and checked + BATCH >= most):
            break
        last = rows[-1].user_id
    return True


_NAME = "templates"


def templates() -> Findings:
    """Check that each override was made for the built-in text of this version."""
    folder = context.settings().templates_dir
    if folder is None:
        yield ok(_NAME, Message("all are built in"))
        return
    own = overrides.read(Path(folder))
    yield from _compared(own)
    if not (own.templates or own.texts or own.style):
        message = Message("there is none in %(folder)s", folder=folder)
        yield warning(_NAME, message, Message("remove SSO_TEMPLATES_DIR, or add some"))


def _compared(own: Overrides) -> Iterator[Finding]:
    for name, source in own.templates.items():
        blocks = own.blocks[name]
        current = overrides.fingerprint(name, blocks)
        yield _finding(f"{name} ({', '.join(blocks)})", source, current, str(BUILT_IN / name))
    if own.texts:
        kinds = sorted({kind for kind, _ in own.texts})
        current = overrides.digest(*(repr(mail_texts.TEXTS[kind]) for kind in kinds))
        place = mail_texts.__file__
        yield _finding(f"{TEXTS} ({', '.join(kinds)})", own.texts_source, current, place)
    if own.style:
        message = Message("follows the built-in style sheet; look at the pages")
        yield ok(_NAME, at(STYLE, message))


def _finding(what: str, source: str, current: str, place: str) -> Finding:
    made_for = overrides.made_for(source)
    if not current:
        return ok(_NAME, at(what, Message("replaces nothing that is built in")))
    if made_for == current:
        return ok(_NAME, at(what, Message("made for this version")))
    mark = f"# made for {current}"
    mark = mark if what.startswith(TEXTS) else f"{{{mark} #}}"
    if made_for:
        message = Message("what is built in has changed since")
    else:
        message = Message("it does not say what it was made for")
    hint = Message(
        "compare it with %(place)s, then let its first line be: %(mark)s", place=place, mark=mark
    )
    return warning(_NAME, at(what, message), hint)


TIMEOUT = 10  # seconds


def rate_limits() -> Findings:
    """Check that Redis answers, if it is configured."""
    url = context.settings().redis_url
    if url is None:
        message = Message("SSO_REDIS_URL is not set: each process limits rates by itself")
        yield skipped("redis", message)
        return
    is_replica = False
    redis = storage.connect(url, TIMEOUT)
    connection: Any = redis.storage
    errors = storage.errors_of(redis)
    try:
        connection.ping()
        with suppress(*errors):  # the user may not ask
            is_replica = connection.role()[0] in (b"slave", "slave")
    except errors as error:
        message = Message("no answer (%(reason)s)", reason=type(error).__name__)
        yield wrong("redis", message, Message("check SSO_REDIS_URL and that Redis runs"))
    else:
        if is_replica:
            sentinel = "redis+sentinel://host:26379/service"
            hint = Message("give the URL of the primary, or %(sentinel)s", sentinel=sentinel)
            yield wrong("redis", Message("it is a replica, which takes no writes"), hint)
        else:
            yield ok("redis", Message("answers"))
    finally:
        connection.close()


def roles_of_applications() -> Findings:
    """Check that the operator's roles are limited to applications that there are."""
    named = roles.limiting_clients()
    if not named:
        return
    missing = sorted(named - {*clients.ids()})
    db.session.rollback()
    for client_id in missing:
        yield warning(
            ROLES,
            Message(
                "SSO_ADMIN_ROLE_APPLICATIONS names %(client)s, which no application has as its "
                "client ID",
                client=client_id,
            ),
            Message("see: %(command)s", command=f"{COMMAND} client list"),
        )
    if not missing:
        yield ok(ROLES, Message("limited to applications that there are"))


def no_mail_server() -> Findings:
    """Say what it means that no mail server is configured."""
    if context.settings().smtp_url is not None:
        return
    if context.settings().mail_codes == "on":
        yield warning(
            "mail",
            Message("SSO_SMTP_URL is not set: no code to sign in with reaches anybody"),
            Message("set SSO_SMTP_URL, or SSO_MAIL_CODES to off"),
        )
    if any(client.require_mfa for client in clients.every()):
        yield warning(
            "mail",
            Message(
                "SSO_SMTP_URL is not set: a password alone is enough to add the first second "
                "factor, which an application requires"
            ),
            Message("set SSO_SMTP_URL, so that a code is mailed before"),
        )
    elif context.settings().mail_codes != "on":
        yield skipped("mail", Message("SSO_SMTP_URL is not set: mail goes to the log"))


def mail() -> Findings:
    """Check that the mail server accepts our credentials, if it is configured. Send no mail."""
    url = context.settings().smtp_url
    if url is None:
        yield from no_mail_server()
        return
    server = smtp.parse(url)
    try:
        with smtp.connected(server) as connection:
            connection.noop()
            secure = isinstance(connection.sock, ssl.SSLSocket)
    except (OSError, smtplib.SMTPException) as error:
        reason = error.args[0] if isinstance(error, smtp.NoTls) else type(error).__name__
        message = Message("the mail server refuses (%(reason)s)", reason=reason)
        yield wrong("mail", message, Message("check SSO_SMTP_URL"))
        return
    if server.user is not None and not secure:
        hint = Message("use %(scheme)s, or a mail server with STARTTLS", scheme="smtps://")
        yield warning("mail", Message("name and password go over the network in clear"), hint)
    elif secure:
        yield ok("mail", Message("%(host)s takes mail over TLS", host=server.host))
    else:
        yield ok("mail", Message("%(host)s takes mail", host=server.host))
