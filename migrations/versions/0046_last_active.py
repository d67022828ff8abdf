"""When people were last active

Only an addition: the version before runs on this schema, and does not note it. The worker fills the
column from the sessions that there are, in batches (`store.sessions.fill_last_active`).

Revision ID: 0046
Revises: 0045
Create Date: 2026-11-29 18:40:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0046"
down_revision = "0045"
branch_labels = None
depends_on = None

INDEX = "ix_users_last_active_at"
ACTIVE = sa.text("last_active_at IS NOT NULL")


def upgrade():
    op.add_column("users", sa.Column("last_active_at", sa.DateTime(timezone=True)))
    op.create_index(
        INDEX, "users", ["last_active_at", "id"], postgresql_where=ACTIVE, sqlite_where=ACTIVE
    )


def downgrade():
    op.drop_index(INDEX, table_name="users")
    op.drop_column("users", "last_active_at")
