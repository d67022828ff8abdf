"""Finding the members of a group on SQLite, and text anywhere in emails and names

PostgreSQL has an index on the list of groups (migration 0015). SQLite can have none, so triggers
keep a table; they work for every version and every command that writes to users.

Only an addition: the version before runs on this schema.

Revision ID: 0022
Revises: 0021
Create Date: 2026-11-29 10:00:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

_ADD = (
    "INSERT OR REPLACE INTO memberships (name, email, user_id)"
    " SELECT DISTINCT listed.value, NEW.email, NEW.id"
    " FROM json_each(NEW.groups) AS listed;"
)
_REMOVE = (
    "DELETE FROM memberships WHERE email = OLD.email"
    " AND name IN (SELECT value FROM json_each(OLD.groups));"
)
_TRIGGERS = {
    "inserted": f"AFTER INSERT ON users BEGIN {_ADD} END",
    "deleted": f"AFTER DELETE ON users BEGIN {_REMOVE} END",
    # A row is locked by an UPDATE that changes nothing.
    "updated": "AFTER UPDATE OF groups, email ON users"
    " WHEN OLD.groups <> NEW.groups OR OLD.email <> NEW.email"
    f" BEGIN {_REMOVE} {_ADD} END",
}


def upgrade():
    op.create_index(
        "ix_users_search",
        "users",
        ["email", "name_key"],
        postgresql_ops={"email": "text_pattern_ops"},
    )
    op.drop_index("ix_users_email_prefix", "users")
    if op.get_bind().dialect.name != "sqlite":
        return
    op.create_table(
        "memberships",
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("email", sa.String(length=320), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.PrimaryKeyConstraint("name", "email"),
        sqlite_with_rowid=False,
    )
    op.execute(
        "INSERT INTO memberships (name, email, user_id)"
        " SELECT DISTINCT listed.value, users.email, users.id"
        " FROM users, json_each(users.groups) AS listed"
    )
    for name, body in _TRIGGERS.items():
        op.execute(f"CREATE TRIGGER memberships_{name} {body}")


def downgrade():
    if op.get_bind().dialect.name == "sqlite":
        for name in _TRIGGERS:
            op.execute(f"DROP TRIGGER memberships_{name}")
        op.drop_table("memberships")
    op.create_index(
        "ix_users_email_prefix", "users", ["email"], postgresql_ops={"email": "text_pattern_ops"}
    )
    op.drop_index("ix_users_search", "users")
