"""The methods of imported passwords

Only an addition: the version before runs on this schema.

Revision ID: 0017
Revises: 0016
Create Date: 2026-11-28 10:00:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade():
    op.create_table(
        "imported_hashes",
        sa.Column("method", sa.String(length=60), nullable=False),
        sa.Column("imported_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("method", name=op.f("pk_imported_hashes")),
    )
    op.create_index(op.f("ix_imported_hashes_imported_at"), "imported_hashes", ["imported_at"])


def downgrade():
    op.drop_table("imported_hashes")
