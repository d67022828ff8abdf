"""what ends grants, sign-ins and known browsers; a new seal of the audit chain; a heartbeat

Only additions, nullable or with defaults: the version before runs on this schema. The index on
user_id alone goes, because the new one begins with the same column.

Revision ID: 0007
Revises: 0006
Create Date: 2026-11-22 09:00:00

"""

import time

from alembic import op
import sqlalchemy as sa


revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def _time(name):
    return sa.Column(name, sa.DateTime(timezone=True), nullable=True)


def _number(name):
    return sa.Column(name, sa.Integer(), server_default="0", nullable=False)


def _lock(*tables):
    """Lock all of the tables, or none and try again: never hold one while waiting for another.

    Requests that are under way hold locks on some of them and go on to the others, in no one
    order. A wait in between would be a deadlock, and an error for the request that waits.
    """
    bind = op.get_bind()
    if bind.dialect.name != "postgresql":
        return
    bind.exec_driver_sql("SET LOCAL lock_timeout = '200ms'")
    for tries_left in reversed(range(100)):
        try:
            with bind.begin_nested():
                bind.exec_driver_sql(f"LOCK TABLE {', '.join(tables)} IN ACCESS EXCLUSIVE MODE")
            break
        except sa.exc.OperationalError:
            if not tries_left:
                raise
            time.sleep(0.1)  # let requests go on meanwhile
    bind.exec_driver_sql("SET LOCAL lock_timeout = '4s'")


def upgrade():
    _lock("users", "browser_sessions", "grants", "tokens", "mail_tokens", "audit_chain")
    op.add_column(
        "tokens",
        sa.Column("is_narrowed", sa.Boolean(), server_default=sa.false(), nullable=False),
    )
    op.create_index("ix_grants_user_id_created_at", "grants", ["user_id", "created_at"])
    op.drop_index("ix_grants_user_id", table_name="grants")

    op.add_column("users", _number("device_version"))
    op.add_column("users", _time("email_changed_at"))
    op.add_column("browser_sessions", _time("decisions_used_until"))
    op.add_column("browser_sessions", _time("second_factor_at"))
    op.add_column("browser_sessions", _time("enrolment_allowed_at"))
    op.add_column("mail_tokens", _number("failures"))

    op.add_column("audit_chain", sa.Column("resealed_number", sa.BigInteger(), nullable=True))
    op.add_column("audit_chain", sa.Column("resealed_old_seal", sa.String(64), nullable=True))
    op.add_column("audit_chain", sa.Column("resealed_new_seal", sa.String(64), nullable=True))
    op.create_table(
        "heartbeats",
        sa.Column("name", sa.String(length=20), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_heartbeats")),
    )


def downgrade():
    op.drop_table("heartbeats")
    for table, columns in (
        ("audit_chain", ("resealed_new_seal", "resealed_old_seal", "resealed_number")),
        ("mail_tokens", ("failures",)),
        ("browser_sessions", ("enrolment_allowed_at", "second_factor_at", "decisions_used_until")),
        ("users", ("email_changed_at", "device_version")),
        ("tokens", ("is_narrowed",)),
    ):
        with op.batch_alter_table(table) as batch_op:
            for column in columns:
                batch_op.drop_column(column)

    op.create_index("ix_grants_user_id", "grants", ["user_id"])
    op.drop_index("ix_grants_user_id_created_at", table_name="grants")
