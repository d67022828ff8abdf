"""audit trail: events, and the ends of their chain

Only additions: the version before runs on this schema.

Revision ID: 0005
Revises: 0003
Create Date: 2026-11-21 07:55:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade():
    op.create_table(
        "audit_chain",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("anchor_number", sa.BigInteger(), nullable=False),
        sa.Column("anchor_seal", sa.String(length=64), nullable=False),
        sa.Column("head_number", sa.BigInteger(), nullable=False),
        sa.Column("head_seal", sa.String(length=64), nullable=False),
        sa.Column("seal", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_chain")),
    )
    op.create_table(
        "audit_events",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("name", sa.String(length=60), nullable=False),
        sa.Column("user_id", sa.String(length=36), nullable=True),
        sa.Column("client_id", sa.String(length=48), nullable=True),
        sa.Column("address", sa.String(length=45), nullable=True),
        sa.Column("browser", sa.String(length=200), nullable=True),
        sa.Column("fields", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=True),
        sa.Column("seal", sa.String(length=64), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_events")),
        sa.UniqueConstraint("number", name=op.f("uq_audit_events_number")),
    )
    op.create_index(
        "ix_audit_events_unsealed",
        "audit_events",
        ["at", "id"],
        postgresql_where=sa.text("number IS NULL"),
        sqlite_where=sa.text("number IS NULL"),
    )
    op.create_index(op.f("ix_audit_events_at"), "audit_events", ["at"])
    for column in ("user_id", "client_id", "name"):
        op.create_index(op.f(f"ix_audit_events_{column}_at"), "audit_events", [column, "at"])


def downgrade():
    op.drop_table("audit_events")
    op.drop_table("audit_chain")
