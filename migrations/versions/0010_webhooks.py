"""webhooks and their outbox

Only an addition: the version before runs on this schema.

Revision ID: 0010
Revises: 0009
Create Date: 2026-11-25 09:00:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_MOMENT = sa.DateTime(timezone=True)


def upgrade():
    op.create_table(
        "webhooks",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("url", sa.String(length=2000), nullable=False),
        sa.Column("events", sa.JSON(), nullable=False),
        sa.Column("sealed_secret", sa.String(length=300), nullable=False),
        sa.Column("disabled_at", _MOMENT, nullable=True),
        sa.Column("disabled_reason", sa.String(length=200), nullable=True),
        sa.Column("failing_since", _MOMENT, nullable=True),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("retry_at", _MOMENT, nullable=True),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhooks")),
    )
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("webhook_id", sa.Uuid(), nullable=False),
        sa.Column("event", sa.String(length=60), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("attempted_at", _MOMENT, nullable=True),
        sa.Column("last_status", sa.Integer(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("next_attempt_at", _MOMENT, nullable=True),
        sa.Column("delivered_at", _MOMENT, nullable=True),
        sa.Column("last_fault", sa.String(length=200), nullable=True),
        sa.ForeignKeyConstraint(
            ["webhook_id"],
            ["webhooks.id"],
            name=op.f("fk_webhook_deliveries_webhook_id_webhooks"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_deliveries")),
    )
    for columns in (["created_at"], ["next_attempt_at"], ["webhook_id", "created_at"]):
        op.create_index(
            op.f(f"ix_webhook_deliveries_{'_'.join(columns)}"), "webhook_deliveries", columns
        )


def downgrade():
    op.drop_table("webhook_deliveries")
    op.drop_table("webhooks")
