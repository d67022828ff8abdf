"""Who created an API token: it ends with that administrator

Tokens of before have no owner. Only an addition: the version before runs on this schema.

Revision ID: 0023
Revises: 0022
Create Date: 2026-11-23 21:00:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade():
    op.add_column("api_tokens", sa.Column("owner_id", sa.Uuid(), nullable=True))
    op.create_index("ix_api_tokens_owner_id", "api_tokens", ["owner_id"])


def downgrade():
    op.drop_index("ix_api_tokens_owner_id", table_name="api_tokens")
    op.drop_column("api_tokens", "owner_id")
