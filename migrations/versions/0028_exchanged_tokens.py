"""The client that got an access token by token exchange, and those that act with it

Only additions: the version before runs on this schema. To it, an exchanged token is one of the
grant's client.

Revision ID: 0028
Revises: 0027
Create Date: 2026-11-24 07:00:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade():
    op.add_column("tokens", sa.Column("client_id", sa.String(length=48), nullable=True))
    op.add_column("tokens", sa.Column("actors", sa.Text(), nullable=True))
    is_exchanged = sa.text("client_id IS NOT NULL")
    op.create_index(
        "ix_tokens_client_id",
        "tokens",
        ["client_id"],
        postgresql_where=is_exchanged,
        sqlite_where=is_exchanged,
    )


def downgrade():
    op.drop_index("ix_tokens_client_id", table_name="tokens")
    with op.batch_alter_table("tokens") as table:
        table.drop_column("actors")
        table.drop_column("client_id")
