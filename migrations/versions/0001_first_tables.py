"""first tables

Revision ID: 0001
Revises:
Create Date: 2026-11-21 04:37:05.512811

"""

from alembic import op
import sqlalchemy as sa


# revision identifiers, used by Alembic.
revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade():
    op.create_table(
        "clients",
        sa.Column("client_id", sa.String(length=48), nullable=False),
        sa.Column("secret_digest", sa.String(length=80), nullable=False),
        sa.Column("previous_secret_digest", sa.String(length=80), nullable=True),
        sa.Column("previous_secret_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("first_party", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("require_pkce", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("disabled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("client_metadata", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("client_id", name=op.f("pk_clients")),
    )
    op.create_table(
        "signing_keys",
        sa.Column("kid", sa.String(length=43), nullable=False),
        sa.Column("alg", sa.String(length=10), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("public_jwk", sa.Text(), nullable=False),
        sa.Column("sealed_private_jwk", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("activated_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("retired_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "state IN ('next', 'active', 'retired')", name=op.f("ck_signing_keys_state_is_known")
        ),
        sa.PrimaryKeyConstraint("kid", name=op.f("pk_signing_keys")),
    )
    op.create_index(
        "uq_signing_keys_active",
        "signing_keys",
        ["alg"],
        unique=True,
        sqlite_where=sa.text("state = 'active'"),
        postgresql_where=sa.text("state = 'active'"),
    )
    op.create_index(
        "uq_signing_keys_next",
        "signing_keys",
        ["alg"],
        unique=True,
        sqlite_where=sa.text("state = 'next'"),
        postgresql_where=sa.text("state = 'next'"),
    )

    op.create_table(
        "users",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("email", sa.String(length=320), nullable=False),
        sa.Column("email_verified", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("password_hash", sa.String(length=200), nullable=True),
        sa.Column("claims", sa.JSON(), nullable=False),
        sa.Column("groups", sa.JSON(), nullable=False),
        sa.Column("disabled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("email = lower(email)", name=op.f("ck_users_email_is_lower_case")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users")),
        sa.UniqueConstraint("email", name=op.f("uq_users_email")),
    )
    op.create_table(
        "browser_sessions",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("digest", sa.String(length=80), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("auth_time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("amr", sa.String(length=100), nullable=False),
        sa.Column("acr", sa.String(length=20), nullable=False),
        sa.Column("address", sa.String(length=45), nullable=False),
        sa.Column("browser", sa.String(length=200), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["user_id"],
            ["users.id"],
            name=op.f("fk_browser_sessions_user_id_users"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_browser_sessions")),
        sa.UniqueConstraint("digest", name=op.f("uq_browser_sessions_digest")),
    )
    op.create_index(
        op.f("ix_browser_sessions_expires_at"),
        "browser_sessions",
        ["expires_at"],
        unique=False,
    )
    op.create_index(
        op.f("ix_browser_sessions_user_id"), "browser_sessions", ["user_id"], unique=False
    )

    op.create_table(
        "consents",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("client_id", sa.String(length=48), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["client_id"],
            ["clients.client_id"],
            name=op.f("fk_consents_client_id_clients"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_consents_user_id_users"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("user_id", "client_id", name=op.f("pk_consents")),
    )
    op.create_index(op.f("ix_consents_client_id"), "consents", ["client_id"], unique=False)

    op.create_table(
        "grants",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("client_id", sa.String(length=48), nullable=False),
        sa.Column("session_id", sa.Uuid(), nullable=True),
        sa.Column("sid", sa.String(length=36), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("claims", sa.JSON(), nullable=False),
        sa.Column("auth_time", sa.DateTime(timezone=True), nullable=False),
        sa.Column("amr", sa.String(length=100), nullable=False),
        sa.Column("acr", sa.String(length=20), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("end_reason", sa.String(length=40), nullable=True),
        sa.ForeignKeyConstraint(
            ["client_id"],
            ["clients.client_id"],
            name=op.f("fk_grants_client_id_clients"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["browser_sessions.id"],
            name=op.f("fk_grants_session_id_browser_sessions"),
            ondelete="SET NULL",
        ),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_grants_user_id_users"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_grants")),
    )
    op.create_index(op.f("ix_grants_client_id"), "grants", ["client_id"], unique=False)
    op.create_index(op.f("ix_grants_created_at"), "grants", ["created_at"], unique=False)
    op.create_index(op.f("ix_grants_session_id"), "grants", ["session_id"], unique=False)
    op.create_index(op.f("ix_grants_user_id"), "grants", ["user_id"], unique=False)

    op.create_table(
        "authorization_codes",
        sa.Column("digest", sa.String(length=80), nullable=False),
        sa.Column("grant_id", sa.Uuid(), nullable=False),
        sa.Column("redirect_uri", sa.Text(), nullable=False),
        sa.Column("nonce", sa.Text(), nullable=True),
        sa.Column("code_challenge", sa.String(length=43), nullable=True),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["grant_id"],
            ["grants.id"],
            name=op.f("fk_authorization_codes_grant_id_grants"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_authorization_codes")),
    )
    op.create_index(
        op.f("ix_authorization_codes_expires_at"),
        "authorization_codes",
        ["expires_at"],
        unique=False,
    )
    op.create_index(
        op.f("ix_authorization_codes_grant_id"),
        "authorization_codes",
        ["grant_id"],
        unique=False,
    )

    op.create_table(
        "tokens",
        sa.Column("jti", sa.String(length=43), nullable=False),
        sa.Column("grant_id", sa.Uuid(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("issued_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("refresh_digest", sa.String(length=80), nullable=True),
        sa.Column("refresh_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("refresh_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["grant_id"], ["grants.id"], name=op.f("fk_tokens_grant_id_grants"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("jti", name=op.f("pk_tokens")),
        sa.UniqueConstraint("refresh_digest", name=op.f("uq_tokens_refresh_digest")),
    )
    op.create_index(op.f("ix_tokens_grant_id"), "tokens", ["grant_id"], unique=False)
    op.create_index(
        op.f("ix_tokens_refresh_expires_at"), "tokens", ["refresh_expires_at"], unique=False
    )


def downgrade():
    op.drop_index(op.f("ix_tokens_refresh_expires_at"), table_name="tokens")
    op.drop_index(op.f("ix_tokens_grant_id"), table_name="tokens")

    op.drop_table("tokens")
    op.drop_index(op.f("ix_authorization_codes_grant_id"), table_name="authorization_codes")
    op.drop_index(op.f("ix_authorization_codes_expires_at"), table_name="authorization_codes")

    op.drop_table("authorization_codes")
    op.drop_index(op.f("ix_grants_user_id"), table_name="grants")
    op.drop_index(op.f("ix_grants_session_id"), table_name="grants")
    op.drop_index(op.f("ix_grants_created_at"), table_name="grants")
    op.drop_index(op.f("ix_grants_client_id"), table_name="grants")

    op.drop_table("grants")
    op.drop_index(op.f("ix_consents_client_id"), table_name="consents")

    op.drop_table("consents")
    op.drop_index(op.f("ix_browser_sessions_user_id"), table_name="browser_sessions")
    op.drop_index(op.f("ix_browser_sessions_expires_at"), table_name="browser_sessions")

    op.drop_table("browser_sessions")
    op.drop_table("users")
    op.drop_index(
        "uq_signing_keys_next",
        sqlite_where=sa.text("state = 'next'"),
        postgresql_where=sa.text("state = 'next'"),
        table_name="signing_keys",
    )
    op.drop_index(
        "uq_signing_keys_active",
        sqlite_where=sa.text("state = 'active'"),
        postgresql_where=sa.text("state = 'active'"),
        table_name="signing_keys",
    )

    op.drop_table("signing_keys")
    op.drop_table("clients")
