"""Codes of access that was allowed for once: they give no refresh token

The version before runs on this schema; it gives a refresh token.

Revision ID: 0032
Revises: 0031
Create Date: 2026-11-28 14:00:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade():
    op.add_column(
        "authorization_codes",
        sa.Column("once", sa.Boolean(), server_default=sa.false(), nullable=False),
    )


def downgrade():
    with op.batch_alter_table("authorization_codes") as table:
        table.drop_column("once")
