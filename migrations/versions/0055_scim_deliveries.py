"""What was sent to SCIM services, for the list in administration

Only an addition: the version before runs on this schema.

Revision ID: 0055
Revises: 0054
Create Date: 2026-11-30 00:15:00

"""

from alembic import op
import sqlalchemy as sa

import sso.extensions


revision = "0055"
down_revision = "0054"
branch_labels = None
depends_on = None


def upgrade():
    op.create_table(
        "scim_deliveries",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("client_id", sa.String(length=255), nullable=False),
        sa.Column("kind", sa.String(length=10), nullable=False),
        sa.Column("subject_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=320), nullable=False),
        sa.Column("started_at", sso.extensions.UtcDateTime(), nullable=False),
        sa.Column("attempted_at", sso.extensions.UtcDateTime(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("action", sa.String(length=20), nullable=True),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("fault", sa.String(length=200), nullable=True),
        sa.ForeignKeyConstraint(["client_id"], ["scim_receivers.client_id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    columns = {
        "ix_scim_deliveries_attempted_at": ["attempted_at"],
        "ix_scim_deliveries_newest": ["client_id", "attempted_at", "id"],
        "ix_scim_deliveries_subject": ["client_id", "subject_id", "attempted_at"],
    }
    for name, names in columns.items():
        op.create_index(name, "scim_deliveries", names)


def downgrade():
    op.drop_table("scim_deliveries")
