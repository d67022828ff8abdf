"""mail: the outbox, and the single-use secrets in links

Only additions: the version before runs on this schema.

Revision ID: 0003
Revises: 0002
Create Date: 2026-11-21 07:50:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade():
    op.create_table(
        "mails",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.String(length=40), nullable=False),
        sa.Column("address", sa.String(length=320), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=True),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("next_attempt_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("delivered_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_fault", sa.String(length=200), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_mails")),
    )
    for column in ("address", "created_at", "next_attempt_at"):
        op.create_index(op.f(f"ix_mails_{column}"), "mails", [column])
    op.create_table(
        "mail_tokens",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("digest", sa.String(length=80), nullable=False),
        sa.Column("purpose", sa.String(length=20), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=True),
        sa.Column("address", sa.String(length=320), nullable=False),
        sa.Column("bound_to", sa.String(length=80), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["user_id"],
            ["users.id"],
            name=op.f("fk_mail_tokens_user_id_users"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_mail_tokens")),
        sa.UniqueConstraint("digest", name=op.f("uq_mail_tokens_digest")),
    )
    for column in ("user_id", "expires_at"):
        op.create_index(op.f(f"ix_mail_tokens_{column}"), "mail_tokens", [column])


def downgrade():
    op.drop_table("mail_tokens")
    op.drop_table("mails")
