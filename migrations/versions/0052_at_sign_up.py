"""Whether an attribute is asked for at sign-up

Only an addition: the version before runs on this schema, and asks for none.

Revision ID: 0052
Revises: 0051
Create Date: 2026-11-29 19:40:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0052"
down_revision = "0051"
branch_labels = None
depends_on = None


def upgrade():
    column = sa.Column("at_sign_up", sa.String(length=10), nullable=False, server_default="no")
    op.add_column("attributes", column)


def downgrade():
    op.drop_column("attributes", "at_sign_up")
