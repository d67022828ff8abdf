"""groups, what provisioning clients know of users, and versions of users and clients

Only an addition: the version before runs on this schema. What it changes meanwhile has the same
version as before, and groups that it makes are added when someone changes a user of theirs.

Revision ID: 0015
Revises: 0014
Create Date: 2026-11-26 10:00:00

"""

import json
from datetime import datetime, timezone
from uuid import uuid4

from alembic import op
import sqlalchemy as sa


revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_MOMENT = sa.DateTime(timezone=True)


def upgrade():
    groups = op.create_table(
        "groups",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("external_id", sa.String(length=255), nullable=True),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("updated_at", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_groups")),
        sa.UniqueConstraint("name", name=op.f("uq_groups_name")),
    )
    op.create_index(op.f("ix_groups_external_id"), "groups", ["external_id"])
    for table in ("users", "clients"):
        op.add_column(table, sa.Column("version", sa.Integer(), server_default="1", nullable=False))
    op.add_column("users", sa.Column("user_name", sa.String(length=320), nullable=True))
    op.add_column("users", sa.Column("external_id", sa.String(length=255), nullable=True))
    op.add_column("users", sa.Column("scim_attributes", sa.JSON(), nullable=True))
    op.create_index(op.f("ix_users_user_name"), "users", ["user_name"], unique=True)
    op.create_index(op.f("ix_users_external_id"), "users", ["external_id"])
    if op.get_bind().dialect.name == "postgresql":
        op.create_index(
            "ix_users_groups", "users", [sa.text("(groups::jsonb)")], postgresql_using="gin"
        )
    now = datetime.now(timezone.utc)
    op.bulk_insert(
        groups,
        [
            {"id": uuid4(), "name": name, "version": 1, "created_at": now, "updated_at": now}
            for name in sorted(_named())
        ],
    )


def _named():
    """The groups of users and clients so far."""
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        query = "SELECT DISTINCT json_array_elements_text(groups) FROM users"
    else:
        query = "SELECT DISTINCT listed.value FROM users, json_each(users.groups) AS listed"
    found = set(connection.scalars(sa.text(query)))
    for metadata in connection.scalars(sa.text("SELECT client_metadata FROM clients")):
        found.update(json.loads(metadata or "{}").get("groups", []))
    return found


def downgrade():
    if op.get_bind().dialect.name == "postgresql":
        op.drop_index("ix_users_groups", "users")
    for name in ("external_id", "user_name"):
        op.drop_index(op.f(f"ix_users_{name}"), "users")
    with op.batch_alter_table("users") as batch_op:
        for name in ("scim_attributes", "external_id", "user_name", "version"):
            batch_op.drop_column(name)
    with op.batch_alter_table("clients") as batch_op:
        batch_op.drop_column("version")
    op.drop_table("groups")
