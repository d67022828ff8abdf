"""The version of the terms of service that a person has accepted, and when

Only additions: the version before runs on this schema, and asks nobody.

Revision ID: 0051
Revises: 0050
Create Date: 2026-11-29 19:05:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0051"
down_revision = "0050"
branch_labels = None
depends_on = None


def upgrade():
    op.add_column("users", sa.Column("terms_version", sa.String(length=60)))
    op.add_column("users", sa.Column("terms_accepted_at", sa.DateTime(timezone=True)))


def downgrade():
    op.drop_column("users", "terms_accepted_at")
    op.drop_column("users", "terms_version")
