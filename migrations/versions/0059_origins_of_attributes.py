"""Who set the values of attributes of people

Only an addition: the version before runs on this schema.

Revision ID: 0059
Revises: 0058
Create Date: 2026-11-30 09:40:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0059"
down_revision = "0058"
branch_labels = None
depends_on = None


def upgrade():
    op.add_column("users", sa.Column("attribute_origins", sa.JSON(), nullable=True))


def downgrade():
    op.drop_column("users", "attribute_origins")
