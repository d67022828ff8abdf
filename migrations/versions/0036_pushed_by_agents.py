"""Pushed authorization requests of agents that no person has allowed yet

They have no row in the table of clients. Only a constraint and an index go: the version before runs
on this schema. The rows live for minutes, and are purged by their own time.

Revision ID: 0036
Revises: 0035
Create Date: 2026-11-29 08:30:00

"""

from alembic import op


revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None

TABLE = "pushed_requests"
KEY, INDEX = "fk_pushed_requests_client_id_clients", "ix_pushed_requests_client_id"


def upgrade():
    op.drop_index(INDEX, table_name=TABLE)
    with op.batch_alter_table(TABLE) as table:
        table.drop_constraint(KEY, type_="foreignkey")


def downgrade():
    op.execute("DELETE FROM pushed_requests")
    with op.batch_alter_table(TABLE) as table:
        table.create_foreign_key(KEY, "clients", ["client_id"], ["client_id"], ondelete="CASCADE")
    op.create_index(INDEX, TABLE, ["client_id"])
