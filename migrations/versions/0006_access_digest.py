"""access tokens known by their digest: a row vouches for the very text that was issued

Only an addition: the version before runs on this schema, and leaves the column empty.

Revision ID: 0006
Revises: 0005
Create Date: 2026-11-21 09:55:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade():
    op.add_column("tokens", sa.Column("access_digest", sa.String(length=80), nullable=True))


def downgrade():
    with op.batch_alter_table("tokens") as batch_op:
        batch_op.drop_column("access_digest")
