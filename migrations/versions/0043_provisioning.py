"""Provisioning people at applications by SCIM: receivers, changes of people, who is there

Triggers note who was created, changed or deleted, as long as there is a receiver. They work for
every command that writes to users. Only an addition: the version before runs on this schema.

Revision ID: 0043
Revises: 0042
Create Date: 2026-11-29 15:30:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0043"
down_revision = "0042"
branch_labels = None
depends_on = None

# What a receiver may get; PostgreSQL compares JSON as text.
_COLUMNS = (
    *("email", "name", "claims", "attributes", "groups", "user_name"),
    *("disabled_at", "ends_at"),
)
_JSON = ("claims", "attributes", "groups")
_NAME = "scim_changes"


def _is_changed(different: str, cast: str) -> str:
    pairs = (
        f"OLD.{name}{cast if name in _JSON else ''} {different} "
        f"NEW.{name}{cast if name in _JSON else ''}"
        for name in _COLUMNS
    )
    return " OR ".join(pairs)


def _create_triggers_of_sqlite() -> None:
    anyone = "EXISTS (SELECT 1 FROM scim_receivers)"
    events = {
        "inserted": ("INSERT ON users", anyone, "NEW"),
        "updated": (
            f"UPDATE OF {', '.join(_COLUMNS)} ON users",
            f"({_is_changed('IS NOT', '')}) AND {anyone}",
            "NEW",
        ),
        "deleted": ("DELETE ON users", anyone, "OLD"),
    }
    for name, (event, condition, row) in events.items():
        op.execute(
            f"CREATE TRIGGER {_NAME}_{name} AFTER {event} WHEN {condition}"
            f" BEGIN INSERT INTO scim_changes (user_id) SELECT {row}.id; END"
        )


def _create_triggers_of_postgresql() -> None:
    op.execute(
        "CREATE FUNCTION scim_changes_note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF EXISTS (SELECT 1 FROM scim_receivers) THEN"
        " INSERT INTO scim_changes (user_id)"
        " VALUES (CASE WHEN TG_OP = 'DELETE' THEN OLD.id ELSE NEW.id END);"
        " END IF; RETURN NULL; END $$"
    )
    run = "EXECUTE FUNCTION scim_changes_note()"
    op.execute(f"CREATE TRIGGER {_NAME}_listed AFTER INSERT OR DELETE ON users FOR EACH ROW {run}")
    op.execute(
        f"CREATE TRIGGER {_NAME}_updated AFTER UPDATE OF {', '.join(_COLUMNS)} ON users"
        f" FOR EACH ROW WHEN ({_is_changed('IS DISTINCT FROM', '::text')}) {run}"
    )


def upgrade():
    time = sa.DateTime(timezone=True)
    op.create_table(
        "scim_receivers",
        sa.Column("client_id", sa.String(length=255), nullable=False),
        sa.Column("sealed_token", sa.Text(), nullable=True),
        sa.Column("scan_after", sa.Uuid(), nullable=True),
        sa.Column("claimed_until", time, nullable=True),
        sa.Column("failing_since", time, nullable=True),
        sa.Column("failures", sa.Integer(), server_default="0", nullable=False),
        sa.Column("retry_at", time, nullable=True),
        sa.Column("last_fault", sa.String(length=200), nullable=True),
        sa.Column("succeeded_at", time, nullable=True),
        sa.ForeignKeyConstraint(
            ["client_id"],
            ["clients.client_id"],
            name="fk_scim_receivers_client_id_clients",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("client_id", name="pk_scim_receivers"),
    )
    op.create_table(
        "scim_changes",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_scim_changes"),
    )
    op.create_table(
        "scim_resources",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("client_id", sa.String(length=255), nullable=False),
        sa.Column("kind", sa.String(length=10), server_default="user", nullable=False),
        sa.Column("subject_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=320), server_default="", nullable=False),
        sa.Column("remote_id", sa.String(length=255), nullable=True),
        sa.Column("is_active", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("is_leaving", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("sent_digest", sa.String(length=64), nullable=True),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        sa.Column("last_action", sa.String(length=20), nullable=True),
        sa.Column("attempted_at", time, nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("created_at", time, nullable=False),
        sa.Column("next_attempt_at", time, nullable=True),
        sa.Column("delivered_at", time, nullable=True),
        sa.Column("last_fault", sa.String(length=200), nullable=True),
        sa.ForeignKeyConstraint(
            ["client_id"],
            ["scim_receivers.client_id"],
            name="fk_scim_resources_client_id_scim_receivers",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_scim_resources"),
        sa.UniqueConstraint(
            "client_id", "kind", "subject_id", name="uq_scim_resources_client_id_kind_subject_id"
        ),
        sa.UniqueConstraint(
            "client_id", "kind", "remote_id", name="uq_scim_resources_client_id_kind_remote_id"
        ),
    )
    for name in ("created_at", "next_attempt_at"):
        op.create_index(f"ix_scim_resources_{name}", "scim_resources", [name])
    op.create_index("ix_scim_resources_due", "scim_resources", ["client_id", "next_attempt_at"])
    if op.get_bind().dialect.name == "sqlite":
        _create_triggers_of_sqlite()
    else:
        _create_triggers_of_postgresql()


def downgrade():
    if op.get_bind().dialect.name == "sqlite":
        for name in ("inserted", "updated", "deleted"):
            op.execute(f"DROP TRIGGER {_NAME}_{name}")
    else:
        for name in ("listed", "updated"):
            op.execute(f"DROP TRIGGER {_NAME}_{name} ON users")
        op.execute("DROP FUNCTION scim_changes_note()")
    for table in ("scim_resources", "scim_changes", "scim_receivers"):
        op.drop_table(table)
