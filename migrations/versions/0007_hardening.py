"""access tokens narrower than their grant; an index to count a user's newest grants

Only additions, with defaults: the version before runs on this schema. The index on user_id alone
goes, because the new one begins with the same column.

Revision ID: 0007
Revises: 0006
Create Date: 2026-11-22 09:00:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade():
    op.add_column(
        "tokens",
        sa.Column("is_narrowed", sa.Boolean(), server_default=sa.false(), nullable=False),
    )
    op.create_index("ix_grants_user_id_created_at", "grants", ["user_id", "created_at"])
    op.drop_index("ix_grants_user_id", table_name="grants")


def downgrade():
    op.create_index("ix_grants_user_id", "grants", ["user_id"])
    op.drop_index("ix_grants_user_id_created_at", table_name="grants")
    with op.batch_alter_table("tokens") as batch_op:
        batch_op.drop_column("is_narrowed")
