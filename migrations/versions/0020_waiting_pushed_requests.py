"""Until when a pushed request waits for the user

Only an addition: the version before runs on this schema.

Revision ID: 0020
Revises: 0019
Create Date: 2026-11-29 00:00:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade():
    column = sa.Column("waits_until", sa.DateTime(timezone=True), nullable=True)
    op.add_column("pushed_requests", column)


def downgrade():
    op.drop_column("pushed_requests", "waits_until")
