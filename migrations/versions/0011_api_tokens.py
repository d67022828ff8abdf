"""API tokens

Only an addition: the version before runs on this schema.

Revision ID: 0011
Revises: 0010
Create Date: 2026-11-26 09:00:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_MOMENT = sa.DateTime(timezone=True)


def upgrade():
    op.create_table(
        "api_tokens",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("digest", sa.String(length=80), nullable=False),
        sa.Column("scope", sa.String(length=500), nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("expires_at", _MOMENT, nullable=False),
        sa.Column("revoked_at", _MOMENT, nullable=True),
        sa.Column("last_used_at", _MOMENT, nullable=True),
        sa.Column("last_used_address", sa.String(length=45), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_tokens")),
        sa.UniqueConstraint("digest", name=op.f("uq_api_tokens_digest")),
    )
    op.create_index(op.f("ix_api_tokens_expires_at"), "api_tokens", ["expires_at"])


def downgrade():
    op.drop_table("api_tokens")
