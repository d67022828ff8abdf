"""When directories were asked about people, and whom they have barred

Only an addition: the version before runs on this schema.

Revision ID: 0019
Revises: 0018
Create Date: 2026-11-28 11:00:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade():
    for name in ("checked_at", "barred_at"):
        op.add_column("identities", sa.Column(name, sa.DateTime(timezone=True), nullable=True))
    op.create_index("ix_identities_checked_at", "identities", ["provider", "checked_at"])


def downgrade():
    op.drop_index("ix_identities_checked_at", table_name="identities")
    for name in ("barred_at", "checked_at"):
        op.drop_column("identities", name)
