"""Whether somebody whose permission has limits disabled an account or an application

Only additions: the version before runs on this schema.

Revision ID: 0056
Revises: 0055
Create Date: 2026-11-30 07:10:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0056"
down_revision = "0055"
branch_labels = None
depends_on = None

_TABLES = ("users", "clients")


def upgrade():
    for table in _TABLES:
        column = sa.Column(
            "disabled_within_limits", sa.Boolean(), server_default=sa.false(), nullable=False
        )
        op.add_column(table, column)


def downgrade():
    for table in _TABLES:
        op.drop_column(table, "disabled_within_limits")
