"""Hashes of client secrets that other servers made, and user handles of their passkeys

Only additions: the version before runs on this schema. It refuses clients that have not used their
secret here yet, and passkeys with another handle.

Revision ID: 0054
Revises: 0053
Create Date: 2026-11-29 23:35:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0054"
down_revision = "0053"
branch_labels = None
depends_on = None


def upgrade():
    op.create_table(
        "client_secret_hashes",
        sa.Column(
            "client_id",
            sa.String(255),
            sa.ForeignKey("clients.client_id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("digest", sa.String(80), primary_key=True),
        sa.Column("hash", sa.String(200), nullable=False),
        sa.Column("replaced_by", sa.String(80)),
    )
    op.add_column("passkeys", sa.Column("user_handle", sa.String(100)))


def downgrade():
    op.drop_column("passkeys", "user_handle")
    op.drop_table("client_secret_hashes")
