"""Attributes of people that the operator defines

Only additions: the version before runs on this schema, and ignores them.

Revision ID: 0037
Revises: 0036
Create Date: 2026-11-29 12:00:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None


def upgrade():
    op.create_table(
        "attributes",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("title", sa.String(length=200), nullable=False),
        sa.Column("type", sa.String(length=10), nullable=False),
        sa.Column("choices", sa.JSON(), nullable=False),
        sa.Column("readers", sa.JSON(), nullable=False),
        sa.Column("writers", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_attributes")),
    )
    op.add_column("users", sa.Column("attributes", sa.JSON(), server_default="{}", nullable=False))


def downgrade():
    op.drop_column("users", "attributes")
    op.drop_table("attributes")
