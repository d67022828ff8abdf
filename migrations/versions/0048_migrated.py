"""What was taken over from another server, so that a second migration brings only what changed

Only an addition: the version before runs on this schema.

Revision ID: 0048
Revises: 0047
Create Date: 2026-11-29 18:40:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0048"
down_revision = "0047"
branch_labels = None
depends_on = None


def upgrade():
    op.create_table(
        "migrated",
        sa.Column("kind", sa.String(10), nullable=False),
        sa.Column("key", sa.String(255), nullable=False),
        sa.Column("source", sa.String(100), nullable=False),
        sa.Column("taken", sa.JSON(), nullable=False),
        sa.Column("migrated_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("kind", "key", name=op.f("pk_migrated")),
    )


def downgrade():
    op.drop_table("migrated")
