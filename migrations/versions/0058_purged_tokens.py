"""An index for the purge of tokens that no refresh token belongs to

Without it, each batch read all of them. Only an addition: the version before runs on this schema.

Revision ID: 0058
Revises: 0057
Create Date: 2026-11-30 07:40:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0058"
down_revision = "0057"
branch_labels = None
depends_on = None

INDEX = "ix_tokens_without_refresh"
_WHERE = sa.text("refresh_expires_at IS NULL")


def upgrade():
    op.create_index(
        INDEX, "tokens", ["expires_at", "jti"], postgresql_where=_WHERE, sqlite_where=_WHERE
    )


def downgrade():
    op.drop_index(INDEX, table_name="tokens")
