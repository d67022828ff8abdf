"""The branding that administration has set

Only an addition: the version before runs on this schema, and shows the branding of its environment.

Revision ID: 0049
Revises: 0048
Create Date: 2026-11-29 18:40:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0049"
down_revision = "0048"
branch_labels = None
depends_on = None


def upgrade():
    op.create_table(
        "branding",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("fields", sa.JSON(), nullable=False),
        sa.Column("logo_type", sa.String(length=20)),
        sa.Column("logo_digest", sa.String(length=64)),
        sa.Column("logo", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_branding")),
    )


def downgrade():
    op.drop_table("branding")
