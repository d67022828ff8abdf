"""A table for the access tokens of services

Only additions: the version before runs on this schema, and issues no such tokens.

Revision ID: 0026
Revises: 0025
Create Date: 2026-11-24 07:00:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade():
    op.create_table(
        "service_tokens",
        sa.Column("jti", sa.String(length=43), nullable=False),
        sa.Column("client_id", sa.String(length=48), nullable=False),
        sa.Column("audience", sa.String(length=255), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("access_digest", sa.String(length=80), nullable=False),
        sa.Column("dpop_jkt", sa.String(length=43), nullable=True),
        sa.Column("issued_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["client_id"],
            ["clients.client_id"],
            name=op.f("fk_service_tokens_client_id_clients"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("jti", name=op.f("pk_service_tokens")),
    )
    op.create_index(
        "ix_service_tokens_client_id_expires_at", "service_tokens", ["client_id", "expires_at"]
    )
    op.create_index(op.f("ix_service_tokens_expires_at"), "service_tokens", ["expires_at"])


def downgrade():
    op.drop_table("service_tokens")
