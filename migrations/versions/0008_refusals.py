"""refused requests, for `flask explain`

Only an addition: the version before runs on this schema.

Revision ID: 0008
Revises: 0007
Create Date: 2026-11-23 09:00:00

"""

import time

from alembic import op
import sqlalchemy as sa


revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def _lock(*tables):
    """Lock all of the tables, or none and try again (see 0007): a foreign key locks its target."""
    bind = op.get_bind()
    if bind.dialect.name != "postgresql":
        return
    bind.exec_driver_sql("SET LOCAL lock_timeout = '200ms'")
    for tries_left in reversed(range(100)):
        try:
            with bind.begin_nested():
                names = ", ".join(tables)
                bind.exec_driver_sql(f"LOCK TABLE {names} IN SHARE ROW EXCLUSIVE MODE")
            break
        except sa.exc.OperationalError:
            if not tries_left:
                raise
            time.sleep(0.1)  # let requests go on meanwhile
    bind.exec_driver_sql("SET LOCAL lock_timeout = '4s'")


def upgrade():
    _lock("users", "clients")
    op.create_table(
        "refusals",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("request_id", sa.String(length=64), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("bucket", sa.SmallInteger(), nullable=False),
        sa.Column("name", sa.String(length=60), nullable=False),
        sa.Column("endpoint", sa.String(length=40), nullable=True),
        sa.Column("client_id", sa.String(length=48), nullable=True),
        sa.Column("user_id", sa.Uuid(), nullable=True),
        sa.Column("details", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["client_id"],
            ["clients.client_id"],
            name=op.f("fk_refusals_client_id_clients"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["user_id"],
            ["users.id"],
            name=op.f("fk_refusals_user_id_users"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_refusals")),
    )
    for columns in (
        ["at"], ["request_id"], ["user_id"], ["bucket", "at"], ["client_id", "at"],
    ):  # fmt: skip
        op.create_index(op.f(f"ix_refusals_{'_'.join(columns)}"), "refusals", columns)


def downgrade():
    op.drop_table("refusals")
