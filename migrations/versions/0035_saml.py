"""Service providers of SAML, the persistent identifiers of people there, and their sessions

Only additions: the version before runs on this schema.

Revision ID: 0035
Revises: 0034
Create Date: 2026-11-28 13:00:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None


def upgrade():
    op.create_table(
        "saml_service_providers",
        sa.Column("entity_id", sa.String(length=200), nullable=False),
        sa.Column("client_id", sa.String(length=255), nullable=False),
        sa.ForeignKeyConstraint(
            ["client_id"],
            ["clients.client_id"],
            name=op.f("fk_saml_service_providers_client_id_clients"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("entity_id", name=op.f("pk_saml_service_providers")),
        sa.UniqueConstraint("client_id", name=op.f("uq_saml_service_providers_client_id")),
    )
    op.create_table(
        "saml_subjects",
        sa.Column("client_id", sa.String(length=255), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("name_id", sa.String(length=80), nullable=False),
        sa.ForeignKeyConstraint(
            ["client_id"],
            ["clients.client_id"],
            name=op.f("fk_saml_subjects_client_id_clients"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["user_id"],
            ["users.id"],
            name=op.f("fk_saml_subjects_user_id_users"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("client_id", "user_id", name=op.f("pk_saml_subjects")),
        sa.UniqueConstraint("name_id", name=op.f("uq_saml_subjects_name_id")),
    )
    op.create_index(op.f("ix_saml_subjects_user_id"), "saml_subjects", ["user_id"])
    op.create_table(
        "saml_sessions",
        sa.Column("grant_id", sa.Uuid(), nullable=False),
        sa.Column("name_id", sa.Text(), nullable=False),
        sa.Column("name_id_format", sa.String(length=100), nullable=False),
        sa.ForeignKeyConstraint(
            ["grant_id"],
            ["grants.id"],
            name=op.f("fk_saml_sessions_grant_id_grants"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("grant_id", name=op.f("pk_saml_sessions")),
    )


def downgrade():
    op.drop_table("saml_sessions")
    op.drop_index(op.f("ix_saml_subjects_user_id"), table_name="saml_subjects")
    op.drop_table("saml_subjects")
    op.drop_table("saml_service_providers")
