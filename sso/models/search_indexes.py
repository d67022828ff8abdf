"""The indexes of the lists of administration.

They are apart from the tables, because SQLAlchemy loads its whole PostgreSQL dialect for them:
every command about users would load it, too.
"""

from typing import Any

from sqlalchemy import Index, text

from sso.models.clients import Client
from sso.models.keys import ApiToken
from sso.models.outbox import Mail, WebhookDelivery
from sso.models.provisioning import ScimDelivery, ScimResource
from sso.models.users import BrowserSession, User

# As `outbox.is_unsent` has it: the databases compare the condition word by word.
_UNSENT = text("delivered_at IS NULL AND (next_attempt_at IS NOT NULL OR last_fault IS NOT NULL)")
_ENDS = text("ends_at IS NOT NULL AND disabled_at IS NULL")
_LIVES = text("ended_at IS NULL")
_ACTIVE = text("last_active_at IS NOT NULL")
_DUE = text("groups_due_at IS NOT NULL")
_DISABLED, _INVITED = text("disabled_at IS NOT NULL"), text("password_hash IS NULL")

# Beginnings of emails and names are compared byte by byte (`dialects.begins`). The first index also
# has all columns that a search for text anywhere reads (`users.CONTAINING`).
Index("ix_users_search", User.email, User.name_key, postgresql_ops={"email": "text_pattern_ops"})
Index(
    "ix_users_name_key",
    User.name_key,
    User.id,
    postgresql_ops={"name_key": "text_pattern_ops"},
)
Index(
    "ix_users_last_active_at",
    User.last_active_at,
    User.id,
    sqlite_where=_ACTIVE,
    postgresql_where=_ACTIVE,
)
# Few users meet these conditions.
_BY_BEGINNING = {"email": "text_pattern_ops"}
Index(
    "ix_users_disabled",
    User.email,
    sqlite_where=_DISABLED,
    postgresql_where=_DISABLED,
    postgresql_ops=_BY_BEGINNING,
)
Index("ix_users_ends_at", User.ends_at, sqlite_where=_ENDS, postgresql_where=_ENDS)
Index("ix_users_groups_due_at", User.groups_due_at, sqlite_where=_DUE, postgresql_where=_DUE)
Index(
    "ix_users_invited",
    User.email,
    sqlite_where=_INVITED,
    postgresql_where=_INVITED,
    postgresql_ops=_BY_BEGINNING,
)
Index(
    "ix_users_unverified",
    User.email,
    sqlite_where=text("email_verified = 0"),
    postgresql_where=text("NOT email_verified"),
    postgresql_ops=_BY_BEGINNING,
)
# Administration lists the live sessions of everyone in this order.
Index(
    "ix_browser_sessions_live",
    BrowserSession.created_at,
    BrowserSession.id,
    sqlite_where=_LIVES,
    postgresql_where=_LIVES,
)
# Mails that wait or failed are few; those to addresses without an account may be many.
Index(
    "ix_mails_unsent",
    Mail.created_at,
    Mail.id,
    sqlite_where=_UNSENT,
    postgresql_where=_UNSENT,
)


def _index(name: str, *columns: Any, where: str | None = None) -> None:
    condition = None if where is None else text(where)
    Index(name, *columns, sqlite_where=condition, postgresql_where=condition)


# Applications, and among them agents, which nobody registers, and the few that are disabled.
_clients = (Client.created_at, Client.client_id)
_index("ix_clients_created_at", *_clients)
_index("ix_clients_created_by_agents", *_clients, where="registration IS NOT NULL")
_index("ix_clients_created_by_operators", *_clients, where="registration IS NULL")
_index("ix_clients_disabled", *_clients, where="disabled_at IS NOT NULL")

_index("ix_api_tokens_created_at", ApiToken.created_at, ApiToken.id)
_index("ix_api_tokens_name", ApiToken.name, ApiToken.id)
_index("ix_api_tokens_end", ApiToken.expires_at, ApiToken.id)

# What a receiver got in each state: there may be many of the others that are newer.
_resources = (ScimResource.client_id, ScimResource.created_at, ScimResource.id)
_index("ix_scim_resources_newest", *_resources)
Index(
    "ix_scim_resources_there",
    *_resources,
    sqlite_where=text("is_active IS 1"),
    postgresql_where=text("is_active IS true"),
)
_index("ix_scim_resources_waiting", *_resources, where="next_attempt_at IS NOT NULL")
_index(
    "ix_scim_resources_given_up",
    *_resources,
    where="next_attempt_at IS NULL AND last_fault IS NOT NULL",
)
_sent = (ScimDelivery.client_id, ScimDelivery.attempted_at, ScimDelivery.id)
_index("ix_scim_deliveries_done", *_sent, where="action IS NOT NULL")
_index("ix_scim_deliveries_failed", *_sent, where="action IS NULL")
_deliveries = (WebhookDelivery.webhook_id, WebhookDelivery.created_at, WebhookDelivery.id)
_index("ix_webhook_deliveries_delivered", *_deliveries, where="delivered_at IS NOT NULL")
_index(
    "ix_webhook_deliveries_waiting",
    *_deliveries,
    where="delivered_at IS NULL AND next_attempt_at IS NOT NULL",
)
_index(
    "ix_webhook_deliveries_given_up",
    *_deliveries,
    where="delivered_at IS NULL AND next_attempt_at IS NULL",
)
