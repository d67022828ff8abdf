"""The roles of APIs, by group

Only additions: the version before runs on this schema, and issues tokens without roles.

Revision ID: 0031
Revises: 0030
Create Date: 2026-11-28 13:30:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade():
    op.add_column("apis", sa.Column("roles", sa.JSON(), server_default="[]", nullable=False))
    op.add_column(
        "apis",
        sa.Column("roles_shape", sa.String(length=10), server_default="list", nullable=False),
    )


def downgrade():
    with op.batch_alter_table("apis") as table:
        table.drop_column("roles_shape")
        table.drop_column("roles")
