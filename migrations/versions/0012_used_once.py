"""identifiers that count only once

Only an addition: the version before runs on this schema.

Revision ID: 0012
Revises: 0011
Create Date: 2026-11-26 09:00:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade():
    op.create_table(
        "used_once",
        sa.Column("digest", sa.String(length=80), nullable=False),
        sa.Column("holder", sa.String(length=80), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_used_once")),
    )
    op.create_index(op.f("ix_used_once_expires_at"), "used_once", ["expires_at"])
    op.create_index(op.f("ix_used_once_holder_expires_at"), "used_once", ["holder", "expires_at"])


def downgrade():
    op.drop_table("used_once")
