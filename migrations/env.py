"""How Alembic reaches the application's engine and tables (run through `flask db …`)."""

import itertools
import time

from alembic import context
from flask import current_app
from sqlalchemy import inspect
from sqlalchemy.exc import OperationalError

from sso.extensions import Base
from sso.extensions import UtcDateTime

extension = current_app.extensions["migrate"]

# What requests read and write together, in their order.
BUSY_TABLES = ("clients", "users", "grants", "authorization_codes", "tokens")
# SQLSTATE of PostgreSQL: a lock that could not be had in time, a deadlock.
LOCKED = ("55P03", "40P01")
# Shorter than PostgreSQL's deadlock_timeout: in a deadlock with a request, the migration gives way.
LOCK_TIMEOUT = "400ms"
# Longer than it, after some attempts: PostgreSQL then cancels an autovacuum that holds the table.
LONGER_TIMEOUT, SHORT_ATTEMPTS = "2s", 10
PATIENCE = 30  # seconds


def render_item(type_, obj, autogen_context):
    """A migration stands for itself: it names no type of the application's."""
    if type_ == "type" and isinstance(obj, UtcDateTime):
        return "sa.DateTime(timezone=True)"
    return False


def include_object(obj, name, type_, reflected, compare_to):
    """All but what each database has its own of, or one alone (migrations 0015, 0022, 0053)."""
    return name not in ("ix_users_groups", "memberships", "ix_users_trigrams")


def run_migrations_online() -> None:
    def leave_out_empty_revisions(context, revision, directives) -> None:
        if (
            getattr(context.config.cmd_opts, "autogenerate", False)
            and directives[0].upgrade_ops.is_empty()
        ):
            directives[:] = []

    arguments = {
        **extension.configure_args,
        "render_item": render_item,
        "include_object": include_object,
    }
    arguments.setdefault("process_revision_directives", leave_out_empty_revisions)
    # Another database than the application's: the target of a copy.
    engine = context.config.attributes.get("engine", extension.db.engine)
    # Requests go on between two attempts. An attempt that fails leaves nothing behind.
    end = time.monotonic() + PATIENCE
    for attempt in itertools.count():
        timeout = LOCK_TIMEOUT if attempt < SHORT_ATTEMPTS else LONGER_TIMEOUT
        try:
            _run(engine, arguments, timeout)
        except OperationalError as error:
            # Another node's migration may have ended this session (0030).
            is_passing = (
                error.connection_invalidated or getattr(error.orig, "sqlstate", None) in LOCKED
            )
            if not is_passing or time.monotonic() > end:
                raise
            time.sleep(0.3)
        else:
            return


def _run(engine, arguments, timeout) -> None:
    with engine.connect() as connection:
        # On SQLite, too, all migrations are one transaction: Alembic would else commit after each,
        # and let another process in between.
        context.configure(
            connection=connection,
            target_metadata=Base.metadata,
            transactional_ddl=True,
            **arguments,
        )
        with context.begin_transaction():
            # Two nodes may upgrade at once: the second waits, and then finds nothing to do.
            if connection.dialect.name == "postgresql":
                for limit in ("statement_timeout", "lock_timeout"):
                    connection.exec_driver_sql(f"SET LOCAL {limit} = 0")
                connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7336715)")
                # A wait for a table stops all requests behind it: rather fail, and try again.
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{timeout}'")
                _lock(connection)
            else:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            context.run_migrations()


def _lock(connection) -> None:
    """Lock the busy tables before the first change, so that no request holds half of them."""
    try:
        target = context.get_revision_argument()
    except KeyError:  # a command that only looks
        return
    if target == context.get_context().get_current_revision():
        return
    tables = [name for name in BUSY_TABLES if inspect(connection).has_table(name)]
    if tables:
        connection.exec_driver_sql(f"LOCK TABLE {', '.join(tables)} IN ACCESS EXCLUSIVE MODE")


if context.is_offline_mode():
    raise SystemExit("Migrations run against a database; --sql is not supported.")
run_migrations_online()
