"""logos of applications

Only additions: the version before runs on this schema.

Revision ID: 0009
Revises: 0008
Create Date: 2026-11-23 10:00:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade():
    op.create_table(
        "client_logos",
        sa.Column("client_id", sa.String(length=48), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("media_type", sa.String(length=20), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["client_id"],
            ["clients.client_id"],
            name=op.f("fk_client_logos_client_id_clients"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("client_id", name=op.f("pk_client_logos")),
    )
    op.create_index(op.f("ix_client_logos_digest"), "client_logos", ["digest"])
    has_home_url = sa.text("client_metadata LIKE '%\"home_url\"%'")
    op.create_index(
        "ix_clients_launchable",
        "clients",
        ["client_id"],
        postgresql_where=has_home_url,
        sqlite_where=has_home_url,
    )


def downgrade():
    op.drop_index("ix_clients_launchable", table_name="clients")
    op.drop_table("client_logos")
