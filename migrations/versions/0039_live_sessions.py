"""List the live sessions of everyone

Only an index: the version before runs on this schema.

Revision ID: 0039
Revises: 0038
Create Date: 2026-11-29 15:20:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None

INDEX = "ix_browser_sessions_live"
NOT_ENDED = sa.text("ended_at IS NULL")


def upgrade():
    op.create_index(
        INDEX,
        "browser_sessions",
        ["created_at", "id"],
        postgresql_where=NOT_ENDED,
        sqlite_where=NOT_ENDED,
    )


def downgrade():
    op.drop_index(INDEX, table_name="browser_sessions")
