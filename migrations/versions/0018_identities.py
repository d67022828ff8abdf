"""Sign-in through upstream identity providers

Only an addition: the version before runs on this schema.

Revision ID: 0018
Revises: 0017
Create Date: 2026-11-28 10:00:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

_MOMENT = sa.DateTime(timezone=True)


def upgrade():
    op.create_table(
        "identities",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("provider", sa.String(length=32), nullable=False),
        sa.Column("issuer", sa.String(length=500), nullable=False),
        sa.Column("subject", sa.String(length=255), nullable=False),
        sa.Column("email", sa.String(length=320), nullable=True),
        sa.Column("linked_at", _MOMENT, nullable=False),
        sa.Column("last_used_at", _MOMENT, nullable=True),
        sa.ForeignKeyConstraint(
            ["user_id"],
            ["users.id"],
            name=op.f("fk_identities_user_id_users"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_identities")),
    )
    op.create_index(op.f("ix_identities_user_id"), "identities", ["user_id"])
    op.create_index("ix_identities_subject", "identities", ["issuer", "subject"], unique=True)
    op.create_table(
        "upstream_sessions",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("identity_id", sa.Uuid(), nullable=False),
        sa.Column("session_id", sa.Uuid(), nullable=True),
        sa.Column("sid", sa.String(length=255), nullable=True),
        sa.Column("amr", sa.String(length=100), nullable=False),
        sa.Column("has_two_factors", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("auth_time", _MOMENT, nullable=True),
        sa.Column("sealed_id_token", sa.Text(), nullable=True),
        sa.Column("sealed_refresh_token", sa.Text(), nullable=True),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("checked_at", _MOMENT, nullable=False),
        sa.ForeignKeyConstraint(
            ["identity_id"],
            ["identities.id"],
            name=op.f("fk_upstream_sessions_identity_id_identities"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["browser_sessions.id"],
            name=op.f("fk_upstream_sessions_session_id_browser_sessions"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_upstream_sessions")),
    )
    for column in ("identity_id", "session_id", "created_at", "checked_at"):
        op.create_index(f"ix_upstream_sessions_{column}", "upstream_sessions", [column])


def downgrade():
    op.drop_table("upstream_sessions")
    op.drop_table("identities")
