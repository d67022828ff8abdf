"""pushed authorization requests, and the keys that codes and tokens are bound to

Only an addition: the version before runs on this schema.

Revision ID: 0014
Revises: 0013
Create Date: 2026-11-26 09:00:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_MOMENT = sa.DateTime(timezone=True)


def upgrade():
    op.create_table(
        "pushed_requests",
        sa.Column("digest", sa.String(length=80), nullable=False),
        sa.Column("client_id", sa.String(length=48), nullable=False),
        sa.Column("parameters", sa.Text(), nullable=False),
        sa.Column("expires_at", _MOMENT, nullable=False),
        sa.Column("used_at", _MOMENT, nullable=True),
        sa.ForeignKeyConstraint(
            ["client_id"],
            ["clients.client_id"],
            name=op.f("fk_pushed_requests_client_id_clients"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_pushed_requests")),
    )
    for column in ("client_id", "expires_at"):
        op.create_index(op.f(f"ix_pushed_requests_{column}"), "pushed_requests", [column])
    op.add_column("authorization_codes", sa.Column("dpop_jkt", sa.String(43), nullable=True))
    op.add_column("tokens", sa.Column("dpop_jkt", sa.String(43), nullable=True))


def downgrade():
    op.drop_column("tokens", "dpop_jkt")
    op.drop_column("authorization_codes", "dpop_jkt")
    op.drop_table("pushed_requests")
