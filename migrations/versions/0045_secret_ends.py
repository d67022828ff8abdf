"""Ends of clients' secrets, and when the ends of secrets and API tokens were announced

Only additions: the version before runs on this schema, and does not end the secrets.

Revision ID: 0045
Revises: 0044
Create Date: 2026-11-29 16:05:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0045"
down_revision = "0044"
branch_labels = None
depends_on = None

INDEX = "ix_clients_secret_expires_at"
ENDS = sa.text("secret_expires_at IS NOT NULL")


def upgrade():
    for table, column in (
        ("clients", "secret_expires_at"),
        ("clients", "secret_end_announced_at"),
        ("api_tokens", "end_announced_at"),
    ):
        op.add_column(table, sa.Column(column, sa.DateTime(timezone=True)))
    op.create_index(
        INDEX, "clients", ["secret_expires_at"], postgresql_where=ENDS, sqlite_where=ENDS
    )


def downgrade():
    op.drop_index(INDEX, table_name="clients")
    op.drop_column("api_tokens", "end_announced_at")
    op.drop_column("clients", "secret_end_announced_at")
    op.drop_column("clients", "secret_expires_at")
