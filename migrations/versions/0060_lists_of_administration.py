"""Indexes for the lists of applications, API tokens, and what was sent

Each page read the whole table, or all rows newer than those of the state that was asked for.
The version before runs on this schema.

Revision ID: 0060
Revises: 0059
Create Date: 2026-11-30 09:40:00

"""

from alembic import op
import sqlalchemy as sa


revision = "0060"
down_revision = "0059"
branch_labels = None
depends_on = None

CLIENTS = ("clients", ["created_at", "client_id"])
RESOURCES = ("scim_resources", ["client_id", "created_at", "id"])
SENT = ("scim_deliveries", ["client_id", "attempted_at", "id"])
DELIVERIES = ("webhook_deliveries", ["webhook_id", "created_at", "id"])
INDEXES = (
    ("ix_clients_created_at", *CLIENTS, None),
    ("ix_clients_created_by_agents", *CLIENTS, "registration IS NOT NULL"),
    ("ix_clients_created_by_operators", *CLIENTS, "registration IS NULL"),
    ("ix_clients_disabled", *CLIENTS, "disabled_at IS NOT NULL"),
    ("ix_api_tokens_created_at", "api_tokens", ["created_at", "id"], None),
    ("ix_api_tokens_name", "api_tokens", ["name", "id"], None),
    ("ix_api_tokens_end", "api_tokens", ["expires_at", "id"], None),
    ("ix_scim_resources_newest", *RESOURCES, None),
    ("ix_scim_resources_there", *RESOURCES, "is_active IS true"),
    ("ix_scim_resources_waiting", *RESOURCES, "next_attempt_at IS NOT NULL"),
    (
        "ix_scim_resources_given_up",
        *RESOURCES,
        "next_attempt_at IS NULL AND last_fault IS NOT NULL",
    ),
    ("ix_scim_deliveries_started_at", "scim_deliveries", ["started_at"], None),
    ("ix_scim_deliveries_done", *SENT, "action IS NOT NULL"),
    ("ix_scim_deliveries_failed", *SENT, "action IS NULL"),
    ("ix_webhook_deliveries_delivered", *DELIVERIES, "delivered_at IS NOT NULL"),
    (
        "ix_webhook_deliveries_waiting",
        *DELIVERIES,
        "delivered_at IS NULL AND next_attempt_at IS NOT NULL",
    ),
    (
        "ix_webhook_deliveries_given_up",
        *DELIVERIES,
        "delivered_at IS NULL AND next_attempt_at IS NULL",
    ),
)


def upgrade():
    for name, table, columns, where in INDEXES:
        condition = None if where is None else sa.text(where)
        on_sqlite = sa.text("is_active IS 1") if where == "is_active IS true" else condition
        op.create_index(name, table, columns, postgresql_where=condition, sqlite_where=on_sqlite)
    op.drop_index("ix_api_tokens_expires_at", table_name="api_tokens")
    op.drop_index("ix_scim_resources_created_at", table_name="scim_resources")
    op.drop_index("ix_scim_deliveries_attempted_at", table_name="scim_deliveries")


def downgrade():
    op.create_index("ix_api_tokens_expires_at", "api_tokens", ["expires_at"])
    op.create_index("ix_scim_resources_created_at", "scim_resources", ["created_at"])
    op.create_index("ix_scim_deliveries_attempted_at", "scim_deliveries", ["attempted_at"])
    for name, table, _, _ in reversed(INDEXES):
        op.drop_index(name, table_name=table)
