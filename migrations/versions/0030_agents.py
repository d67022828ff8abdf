"""Agents: clients that no operator registered, and the domains that they come from

Client identifiers may be URLs of 255 characters. Only additions and wider columns: the version
before runs on this schema. To it, agents are ordinary public clients, and APIs are closed to them.

On PostgreSQL, a statement that was prepared before fails when the type of a column in its result
has changed ("cached plan must not change result type"). So the sessions that are idle or wait for
this migration are ended: the version before connects again, and answers 503 to those who wait.

Revision ID: 0030
Revises: 0029
Create Date: 2026-11-28 13:20:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

TABLES = (
    "audit_events",
    "client_logos",
    "client_origins",
    "clients",
    "consents",
    "device_codes",
    "grants",
    "logout_deliveries",
    "pushed_requests",
    "refusals",
    "service_tokens",
    "tokens",
    "waiting_sign_ins",
)
IS_AGENT = sa.text("registration IS NOT NULL")

END_SESSIONS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()
AND application_name = current_setting('application_name')
AND (state = 'idle' OR wait_event_type = 'Lock' AND wait_event <> 'advisory')
"""


def upgrade():
    _resize(48, 255)
    op.add_column("clients", sa.Column("registration", sa.String(length=10), nullable=True))
    op.add_column(
        "clients", sa.Column("document_read_at", sa.DateTime(timezone=True), nullable=True)
    )
    op.create_index(
        "ix_clients_agents",
        "clients",
        ["updated_at", "client_id"],
        postgresql_where=IS_AGENT,
        sqlite_where=IS_AGENT,
    )
    op.add_column(
        "apis", sa.Column("agents", sa.Boolean(), server_default=sa.false(), nullable=False)
    )
    op.create_table(
        "agent_domains",
        sa.Column("domain", sa.String(length=253), nullable=False),
        sa.Column("status", sa.String(length=10), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("domain", name=op.f("pk_agent_domains")),
    )


def downgrade():
    op.execute("DELETE FROM clients WHERE registration IS NOT NULL")
    op.drop_table("agent_domains")
    with op.batch_alter_table("apis") as table:
        table.drop_column("agents")
    op.drop_index("ix_clients_agents", table_name="clients")
    with op.batch_alter_table("clients") as table:
        table.drop_column("document_read_at")
        table.drop_column("registration")
    _resize(255, 48)


def _resize(before, after):
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        for table in TABLES:  # a longer varchar rewrites neither table nor index
            op.execute(f"ALTER TABLE {table} ALTER COLUMN client_id TYPE VARCHAR({after})")
        connection.exec_driver_sql(END_SESSIONS)
        return
    # SQLite stores texts of any length, and knows the length from the statement alone: see "Making
    # Other Kinds Of Table Schema Changes" in its documentation of ALTER TABLE.
    version = connection.exec_driver_sql("PRAGMA schema_version").scalar()
    connection.exec_driver_sql("PRAGMA writable_schema = ON")
    connection.exec_driver_sql(
        "UPDATE sqlite_master SET sql = replace(sql, ?, ?) WHERE type = 'table'",
        (f"client_id VARCHAR({before})", f"client_id VARCHAR({after})"),
    )
    connection.exec_driver_sql(f"PRAGMA schema_version = {version + 1}")
    connection.exec_driver_sql("PRAGMA writable_schema = OFF")
