"""What can be checked on this machine: files and the database."""

import stat
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path

from flask import current_app
from sqlalchemy import func, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from sso import clock, context
from sso.checkup.finding import Finding, Findings, ok, skipped, warning, wrong
from sso.config import overrides
from sso.config.settings import SETTINGS, Reading
from sso.crypto import foreign_hashes
from sso.database import postgresql, readiness
from sso.extensions import db
from sso.i18n.message import Message
from sso.services.importing import MOST_SECONDS
from sso.store import imported_hashes

MOST_SKEW = timedelta(seconds=5)
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
    yield from errors or [ok("file modes", Message("secrets are closed to others"))]


def _too_open(path: Path, forbidden: int) -> Iterator[tuple[Message, str]]:
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0
    if mode & forbidden:
        seen = Message("%(path)s has the mode %(mode)s: too open", path=str(path), mode=f"{mode:o}")
        yield seen, f"chmod {mode & ~forbidden:o} {path}"


def database() -> Findings:
    """It is reachable, and its clock agrees with this machine's."""
    name = db.engine.dialect.name
    try:
        reported = db.session.scalar(select(func.now()))
    except SQLAlchemyError as error:
        seen = Message(
            "%(name)s cannot be reached (%(reason)s)", name=name, reason=type(error).__name__
        )
        hints = [hint for text, hint in _OF_POOLER.items() if text in str(error)]
        hint = hints[0] if hints else Message("check SSO_DATABASE_URL")
        yield wrong("database", seen, hint)
        return
    if readiness.is_read_only(db.session.connection()):
        page = "docs/how-to/postgresql.md"
        hint = Message("name the primary, or all servers; see %(page)s", page=page)
        yield wrong("database", readiness.READ_ONLY, hint)
    else:
        yield ok("database", Message("%(where)s answers", where=name))
    db.session.rollback()
    if name == "sqlite" or not isinstance(reported, datetime):
        seen = Message("an SQLite file has no clock of its own")
        yield skipped("clock and database", seen)
        return
    yield clock_finding("clock and database", reported, MOST_SKEW)


def imported_passwords() -> Findings:
    """Check how much CPU time imported hashes add to each wrong password."""
    methods = imported_hashes.methods()
    db.session.rollback()
    if not methods:
        yield ok("imported passwords", Message("no hashes of other systems are left"))
        return
    seconds = foreign_hashes.seconds(methods)
    listed = ", ".join(sorted(method[1:] for method in methods))
    seen = Message(
        "every wrong password takes %(milliseconds)d ms more (%(methods)s)",
        milliseconds=round(seconds * 1000),
        methods=listed,
    )
    if seconds > MOST_SECONDS:
        page = "docs/how-to/move-here.md"
        hint = Message("it ends when their users have signed in; see %(page)s", page=page)
        yield warning("imported passwords", seen, hint)
    else:
        yield ok("imported passwords", seen)


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
    """What stands between this server and PostgreSQL passes on what the URL asks for."""
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
    """Compare another clock with ours."""
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
