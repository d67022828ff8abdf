"""A table for device authorizations

Only additions: the version before runs on this schema.

Revision ID: device
Revises: 0025
Create Date: 2026-11-24 06:35:00

"""

from alembic import op
import sqlalchemy as sa


revision = "device"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade():
    op.create_table(
        "device_codes",
        sa.Column("digest", sa.String(length=80), nullable=False),
        sa.Column("user_code_digest", sa.String(length=80), nullable=False),
        sa.Column("client_id", sa.String(length=48), nullable=False),
        sa.Column("scope", sa.Text(), nullable=True),
        sa.Column("resource", sa.Text(), nullable=True),
        sa.Column("address", sa.String(length=45), nullable=False),
        sa.Column("program", sa.String(length=60), nullable=False),
        sa.Column("interval", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("answered_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("grant_id", sa.Uuid(), nullable=True),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["client_id"],
            ["clients.client_id"],
            name=op.f("fk_device_codes_client_id_clients"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["grant_id"],
            ["grants.id"],
            name=op.f("fk_device_codes_grant_id_grants"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_device_codes")),
        sa.UniqueConstraint("user_code_digest", name=op.f("uq_device_codes_user_code_digest")),
    )
    for column in ("client_id", "expires_at", "grant_id"):
        op.create_index(op.f(f"ix_device_codes_{column}"), "device_codes", [column])


def downgrade():
    op.drop_table("device_codes")
