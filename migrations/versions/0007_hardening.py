"""narrower access tokens, a new seal of the audit chain, the worker's heartbeat

Only additions, nullable or with defaults: the version before runs on this schema. The index on
user_id alone goes, because the new one begins with the same column.

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

    op.add_column("audit_chain", sa.Column("resealed_number", sa.BigInteger(), nullable=True))
    op.add_column("audit_chain", sa.Column("resealed_old_seal", sa.String(64), nullable=True))
    op.add_column("audit_chain", sa.Column("resealed_new_seal", sa.String(64), nullable=True))
    op.create_table(
        "heartbeats",
        sa.Column("name", sa.String(length=20), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_heartbeats")),
    )


def downgrade():
    op.drop_table("heartbeats")
    with op.batch_alter_table("audit_chain") as batch_op:
        batch_op.drop_column("resealed_new_seal")
        batch_op.drop_column("resealed_old_seal")
        batch_op.drop_column("resealed_number")

    op.create_index("ix_grants_user_id", "grants", ["user_id"])
    op.drop_index("ix_grants_user_id_created_at", table_name="grants")
    with op.batch_alter_table("tokens") as batch_op:
        batch_op.drop_column("is_narrowed")
