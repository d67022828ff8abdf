"""The indexes that administrators search users, sessions and mails by.

They are apart from the tables, because SQLAlchemy loads its whole PostgreSQL dialect for them:
every command about users would load it, too.
"""

from sqlalchemy import Index, text

from sso.models.outbox import Mail
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
Index("ix_users_disabled", User.email, sqlite_where=_DISABLED, postgresql_where=_DISABLED)
Index("ix_users_ends_at", User.ends_at, sqlite_where=_ENDS, postgresql_where=_ENDS)
Index("ix_users_groups_due_at", User.groups_due_at, sqlite_where=_DUE, postgresql_where=_DUE)
Index("ix_users_invited", User.email, sqlite_where=_INVITED, postgresql_where=_INVITED)
Index(
    "ix_users_unverified",
    User.email,
    sqlite_where=text("email_verified = 0"),
    postgresql_where=text("NOT email_verified"),
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
