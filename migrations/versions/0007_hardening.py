"""known browsers that can be forgotten; sign-ins and consents that satisfy one request alone

Only additions: the version before runs on this schema, and leaves the columns as they are.

Revision ID: 0007
Revises: 0006
Create Date: 2026-11-22 04:00:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade():
    op.add_column(
        "users", sa.Column("device_version", sa.Integer(), server_default="0", nullable=False)
    )
    op.add_column(
        "browser_sessions",
        sa.Column("decisions_used_until", sa.DateTime(timezone=True), nullable=True),
    )


def downgrade():
    with op.batch_alter_table("browser_sessions") as batch_op:
        batch_op.drop_column("decisions_used_until")
    with op.batch_alter_table("users") as batch_op:
        batch_op.drop_column("device_version")
