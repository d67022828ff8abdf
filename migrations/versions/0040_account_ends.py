"""Accounts that end at a moment

Only additions: the version before runs on this schema, and does not end the accounts.

Revision ID: 0040
Revises: 0039
Create Date: 2026-11-29 15:20:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None

INDEX = "ix_users_ends_at"
ENDS = sa.text("ends_at IS NOT NULL AND disabled_at IS NULL")


def upgrade():
    op.add_column("users", sa.Column("ends_at", sa.DateTime(timezone=True)))
    op.add_column("users", sa.Column("end_announced_at", sa.DateTime(timezone=True)))
    op.create_index(INDEX, "users", ["ends_at"], postgresql_where=ENDS, sqlite_where=ENDS)


def downgrade():
    op.drop_index(INDEX, table_name="users")
    op.drop_column("users", "end_announced_at")
    op.drop_column("users", "ends_at")
