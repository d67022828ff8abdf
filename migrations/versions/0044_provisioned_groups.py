"""The groups at an application that a person was added to

Only an addition: the version before runs on this schema.

Revision ID: 0044
Revises: 0043
Create Date: 2026-11-29 16:10:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0044"
down_revision = "0043"
branch_labels = None
depends_on = None


def upgrade():
    op.add_column("scim_resources", sa.Column("sent_groups", sa.JSON(), nullable=True))


def downgrade():
    op.drop_column("scim_resources", "sent_groups")
