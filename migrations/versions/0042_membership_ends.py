"""Memberships that end at a moment

Only additions: the version before runs on this schema, and does not end the memberships.

Revision ID: 0042
Revises: 0041
Create Date: 2026-11-29 15:40:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0042"
down_revision = "0041"
branch_labels = None
depends_on = None

INDEX = "ix_users_groups_due_at"
DUE = sa.text("groups_due_at IS NOT NULL")


def upgrade():
    op.add_column("users", sa.Column("group_ends", sa.JSON()))
    op.add_column("users", sa.Column("group_ends_told", sa.JSON()))
    op.add_column("users", sa.Column("groups_due_at", sa.DateTime(timezone=True)))
    op.create_index(INDEX, "users", ["groups_due_at"], postgresql_where=DUE, sqlite_where=DUE)


def downgrade():
    op.drop_index(INDEX, table_name="users")
    op.drop_column("users", "groups_due_at")
    op.drop_column("users", "group_ends_told")
    op.drop_column("users", "group_ends")
