"""A table for APIs, and the audience of access tokens

Only additions: the version before runs on this schema. It takes no scope of an API for one of its
own, and answers a request for an API as if that were not there.

Revision ID: 0025
Revises: 0024
Create Date: 2026-11-24 06:30:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade():
    op.create_table(
        "apis",
        sa.Column("api_id", sa.String(length=48), nullable=False),
        sa.Column("identifier", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("translations", sa.JSON(), nullable=False),
        sa.Column("groups", sa.JSON(), nullable=False),
        sa.Column("includes_groups", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("access_token_lifetime", sa.Integer(), nullable=True),
        sa.Column("secret_digest", sa.String(length=80), nullable=True),
        sa.Column("disabled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        sa.PrimaryKeyConstraint("api_id", name=op.f("pk_apis")),
        sa.UniqueConstraint("identifier", name=op.f("uq_apis_identifier")),
    )
    op.add_column("tokens", sa.Column("audience", sa.String(length=255), nullable=True))


def downgrade():
    with op.batch_alter_table("tokens") as table:
        table.drop_column("audience")
    op.drop_table("apis")
