"""How Alembic reaches the application's engine and tables (run through `flask db …`)."""

from alembic import context
from flask import current_app

from sso.extensions import Base
from sso.extensions import UtcDateTime

extension = current_app.extensions["migrate"]


def render_item(type_, obj, autogen_context):
    """A migration stands for itself: it names no type of the application's."""
    if type_ == "type" and isinstance(obj, UtcDateTime):
        return "sa.DateTime(timezone=True)"
    return False


def include_object(obj, name, type_, reflected, compare_to):
    """All but what finds members of groups: each database has its own (migrations 0015, 0022)."""
    return name not in ("ix_users_groups", "memberships")


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
            is_postgresql = connection.dialect.name == "postgresql"
            if is_postgresql:
                for limit in ("statement_timeout", "lock_timeout"):
                    connection.exec_driver_sql(f"SET LOCAL {limit} = 0")
            lock = "SELECT pg_advisory_xact_lock(7336715)" if is_postgresql else "BEGIN IMMEDIATE"
            connection.exec_driver_sql(lock)
            if is_postgresql:
                # A wait for a table would stop all requests behind it: rather fail, and try again.
                connection.exec_driver_sql("SET LOCAL lock_timeout = '4s'")
            context.run_migrations()


if context.is_offline_mode():
    raise SystemExit("Migrations run against a database; --sql is not supported.")
run_migrations_online()
