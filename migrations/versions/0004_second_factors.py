"""second factors: passkeys, TOTP secrets, recovery codes, clients that require them

Only additions, with defaults: the version before runs on this schema.

Revision ID: 0004
Revises: 0003
Create Date: 2026-11-21 07:50:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def _user(table):
    return sa.ForeignKeyConstraint(
        ["user_id"], ["users.id"], name=op.f(f"fk_{table}_user_id_users"), ondelete="CASCADE"
    )


def _time(name, nullable=True):
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable)


def upgrade():
    op.create_table(
        "passkeys",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=60), nullable=False),
        sa.Column("credential_id", sa.String(length=1364), nullable=False),
        sa.Column("public_key", sa.Text(), nullable=False),
        sa.Column("transports", sa.String(length=100), server_default="", nullable=False),
        sa.Column("sign_count", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("is_synced", sa.Boolean(), server_default=sa.false(), nullable=False),
        _time("challenged_at"),
        _time("created_at", nullable=False),
        _time("last_used_at"),
        _user("passkeys"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_passkeys")),
        sa.UniqueConstraint("credential_id", name=op.f("uq_passkeys_credential_id")),
    )
    op.create_index(op.f("ix_passkeys_user_id"), "passkeys", ["user_id"])
    op.create_table(
        "totp_secrets",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("sealed_secret", sa.Text(), nullable=False),
        sa.Column("last_step", sa.BigInteger(), server_default="0", nullable=False),
        _time("created_at", nullable=False),
        _time("last_used_at"),
        _user("totp_secrets"),
        sa.PrimaryKeyConstraint("user_id", name=op.f("pk_totp_secrets")),
    )
    op.create_table(
        "recovery_codes",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("digest", sa.String(length=80), nullable=False),
        _time("created_at", nullable=False),
        _time("used_at"),
        _user("recovery_codes"),
        sa.PrimaryKeyConstraint("user_id", "digest", name=op.f("pk_recovery_codes")),
    )
    op.add_column(
        "clients",
        sa.Column("require_mfa", sa.Boolean(), server_default=sa.false(), nullable=False),
    )


def downgrade():
    with op.batch_alter_table("clients") as batch:
        batch.drop_column("require_mfa")
    for table in ("recovery_codes", "totp_secrets", "passkeys"):
        op.drop_table(table)
