"""What clients know people by, in the logout tokens that wait

Only an addition: the version before runs on this schema.

Revision ID: 0057
Revises: 0056
Create Date: 2026-11-30 06:50:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0057"
down_revision = "0056"
branch_labels = None
depends_on = None


def upgrade():
    op.add_column("logout_deliveries", sa.Column("subject", sa.String(length=255), nullable=True))


def downgrade():
    op.drop_column("logout_deliveries", "subject")
