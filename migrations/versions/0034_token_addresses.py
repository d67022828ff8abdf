"""The IP address that a token was requested from, so that people see where an agent was used

Only an addition: the version before runs on this schema, and leaves it empty.

Revision ID: 0034
Revises: 0033
Create Date: 2026-11-28 14:20:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None


def upgrade():
    op.add_column("tokens", sa.Column("address", sa.String(length=45), nullable=True))


def downgrade():
    with op.batch_alter_table("tokens") as table:
        table.drop_column("address")
