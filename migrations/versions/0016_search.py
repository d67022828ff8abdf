"""Searching users by how their names and emails begin

Only an addition: the version before runs on this schema. People whom it adds meanwhile are found by
the beginning of their name when somebody changes it.

Revision ID: 0016
Revises: 0015
Create Date: 2026-11-27 10:00:00

"""

import unicodedata

from alembic import op
import sqlalchemy as sa


revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_BATCH = 5000
_PARTIAL = (
    ("ix_users_disabled", "disabled_at IS NOT NULL", "disabled_at IS NOT NULL"),
    ("ix_users_invited", "password_hash IS NULL", "password_hash IS NULL"),
    ("ix_users_unverified", "email_verified = 0", "NOT email_verified"),
)


def upgrade():
    op.add_column(
        "users", sa.Column("name_key", sa.String(length=200), server_default="", nullable=False)
    )
    if not op.get_context().as_sql:
        _fill(op.get_bind())
    op.create_index(
        "ix_users_email_prefix", "users", ["email"], postgresql_ops={"email": "text_pattern_ops"}
    )
    op.create_index(
        "ix_users_name_key",
        "users",
        ["name_key", "id"],
        postgresql_ops={"name_key": "text_pattern_ops"},
    )
    for name, sqlite, postgresql in _PARTIAL:
        op.create_index(
            name,
            "users",
            ["email"],
            sqlite_where=sa.text(sqlite),
            postgresql_where=sa.text(postgresql),
        )


def _fill(connection):
    users = sa.table("users", sa.column("id", sa.Uuid()), sa.column("name"), sa.column("name_key"))
    connection.execute(users.update().values(name_key=sa.func.lower(users.c.name)))
    change = (
        users.update()
        .where(users.c.id == sa.bindparam("user_id"))
        .values(name_key=sa.bindparam("key"))
    )
    last = None
    while True:
        rows = sa.select(users.c.id, users.c.name).order_by(users.c.id).limit(_BATCH)
        found = connection.execute(rows.where(users.c.id > last) if last else rows).all()
        if not found:
            return
        last = found[-1].id
        other = [(one.id, one.name) for one in found if not one.name.isascii()]
        if other:
            connection.execute(change, [{"user_id": i, "key": _folded(name)} for i, name in other])


def _folded(name):
    parts = unicodedata.normalize("NFKD", name.casefold())
    return "".join(one for one in parts if not unicodedata.combining(one))[:200]


def downgrade():
    for name, *_ in _PARTIAL:
        op.drop_index(name, "users")
    op.drop_index("ix_users_name_key", "users")
    op.drop_index("ix_users_email_prefix", "users")
    with op.batch_alter_table("users") as batch_op:
        batch_op.drop_column("name_key")
