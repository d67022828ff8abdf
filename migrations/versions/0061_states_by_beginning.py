"""Indexes of people in a state that answer the beginning of an email, on PostgreSQL

A page of disabled people whose email begins with a common text read many others. The version before
runs on this schema.

Revision ID: 0061
Revises: 0060
Create Date: 2026-11-30 10:05:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0061"
down_revision = "0060"
branch_labels = None
depends_on = None

INDEXES = {
    "ix_users_disabled": "disabled_at IS NOT NULL",
    "ix_users_invited": "password_hash IS NULL",
    "ix_users_unverified": "NOT email_verified",
}


def upgrade():
    _create_again(postgresql_ops={"email": "text_pattern_ops"})


def downgrade():
    _create_again()


def _create_again(**options):
    if op.get_bind().dialect.name != "postgresql":
        return
    for name, where in INDEXES.items():
        op.drop_index(name, table_name="users")
        op.create_index(name, "users", ["email"], postgresql_where=sa.text(where), **options)
