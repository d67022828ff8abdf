"""An index of the mails that wait or failed, for their list

The version before runs on this schema.

Revision ID: 0033
Revises: 0032
Create Date: 2026-11-28 17:10:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

_UNSENT = sa.text(
    "delivered_at IS NULL AND (next_attempt_at IS NOT NULL OR last_fault IS NOT NULL)"
)


def upgrade():
    op.create_index(
        "ix_mails_unsent",
        "mails",
        ["created_at", "id"],
        sqlite_where=_UNSENT,
        postgresql_where=_UNSENT,
    )


def downgrade():
    op.drop_index("ix_mails_unsent", table_name="mails")
