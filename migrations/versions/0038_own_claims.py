"""Find the applications that have claims of their own

Only an index: the version before runs on this schema.

Revision ID: 0038
Revises: 0037
Create Date: 2026-11-29 12:40:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None

INDEX = "ix_clients_own_claims"
HAS_OWN_CLAIMS = sa.text('clients.client_metadata LIKE \'%"own_claims":["%\'')


def upgrade():
    op.create_index(
        INDEX,
        "clients",
        ["client_id"],
        postgresql_where=HAS_OWN_CLAIMS,
        sqlite_where=HAS_OWN_CLAIMS,
    )


def downgrade():
    op.drop_index(INDEX, table_name="clients")
