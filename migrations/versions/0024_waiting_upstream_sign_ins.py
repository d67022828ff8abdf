"""A table for long requests that wait for a sign-in at a provider

Until now they waited in the table of pushed requests. A sign-in that began before the upgrade, or
at a node of the other version, may end with "Please start again". Only an addition: the version
before runs on this schema.

Revision ID: 0024
Revises: 0023
Create Date: 2026-11-24 01:00:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade():
    op.create_table(
        "waiting_sign_ins",
        sa.Column("digest", sa.String(length=80), nullable=False),
        sa.Column("client_id", sa.String(length=48), nullable=False),
        sa.Column("resume", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["client_id"],
            ["clients.client_id"],
            name=op.f("fk_waiting_sign_ins_client_id_clients"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_waiting_sign_ins")),
    )
    for column in ("client_id", "expires_at"):
        op.create_index(op.f(f"ix_waiting_sign_ins_{column}"), "waiting_sign_ins", [column])


def downgrade():
    op.drop_table("waiting_sign_ins")
