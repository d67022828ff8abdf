"""single sign-out: absolute end of sessions, unticked scopes, logout deliveries

Only additions, with defaults: the version before runs on this schema.

Revision ID: 0002
Revises: 0001
Create Date: 2026-11-21 07:30:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade():
    op.add_column(
        "browser_sessions", sa.Column("ends_at", sa.DateTime(timezone=True), nullable=True)
    )
    op.add_column(
        "browser_sessions",
        sa.Column("remembered", sa.Boolean(), server_default=sa.false(), nullable=False),
    )
    op.add_column("consents", sa.Column("declined", sa.Text(), server_default="", nullable=False))
    op.create_table(
        "logout_deliveries",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("client_id", sa.String(length=48), nullable=False),
        sa.Column("sub", sa.String(length=36), nullable=False),
        sa.Column("sid", sa.String(length=36), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("next_attempt_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("delivered_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_fault", sa.String(length=200), nullable=True),
        sa.ForeignKeyConstraint(
            ["client_id"],
            ["clients.client_id"],
            name=op.f("fk_logout_deliveries_client_id_clients"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_logout_deliveries")),
    )
    for column in ("client_id", "created_at", "next_attempt_at"):
        op.create_index(op.f(f"ix_logout_deliveries_{column}"), "logout_deliveries", [column])


def downgrade():
    op.drop_table("logout_deliveries")
    for table, column in (
        ("consents", "declined"),
        ("browser_sessions", "remembered"),
        ("browser_sessions", "ends_at"),
    ):
        with op.batch_alter_table(table) as batch:
            batch.drop_column(column)
