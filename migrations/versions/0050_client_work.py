"""What changes of clients leave for the worker, and indexes to end many grants of a client

Only additions: the version before runs on this schema, and ends all grants in one transaction.

Revision ID: 0050
Revises: 0049
Create Date: 2026-11-29 18:55:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0050"
down_revision = "0049"
branch_labels = None
depends_on = None


def upgrade():
    op.create_table(
        "client_work",
        sa.Column(
            "client_id",
            sa.String(255),
            sa.ForeignKey("clients.client_id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("kind", sa.String(10), primary_key=True),
        sa.Column("after", sa.Uuid()),
        sa.Column("done", sa.Integer(), nullable=False),
        sa.Column("total", sa.Integer()),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_index("ix_grants_client_id_id", "grants", ["client_id", "id"])
    op.drop_index("ix_grants_client_id", table_name="grants")
    op.create_index("ix_logout_deliveries_client_id_sid", "logout_deliveries", ["client_id", "sid"])
    op.drop_index("ix_logout_deliveries_client_id", table_name="logout_deliveries")


def downgrade():
    op.create_index("ix_logout_deliveries_client_id", "logout_deliveries", ["client_id"])
    op.drop_index("ix_logout_deliveries_client_id_sid", table_name="logout_deliveries")
    op.create_index("ix_grants_client_id", "grants", ["client_id"])
    op.drop_index("ix_grants_client_id_id", table_name="grants")
    op.drop_table("client_work")
