"""Access tokens of upstream sign-ins, to be introspected; their sessions are found by `sid`

Only an addition: the version before runs on this schema.

Revision ID: 0021
Revises: 0020
Create Date: 2026-11-29 10:00:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade():
    op.add_column("upstream_sessions", sa.Column("sealed_access_token", sa.Text(), nullable=True))
    op.create_index("ix_upstream_sessions_sid", "upstream_sessions", ["sid"])


def downgrade():
    op.drop_index("ix_upstream_sessions_sid", table_name="upstream_sessions")
    op.drop_column("upstream_sessions", "sealed_access_token")
