"""Indexes by which administrators find users.

In a file of their own: SQLAlchemy loads its whole dialect of PostgreSQL for them, and every command
about users would wait for it.
"""

from sqlalchemy import Index, text

from sso.models.users import User

_DISABLED, _INVITED = text("disabled_at IS NOT NULL"), text("password_hash IS NULL")

# Beginnings of emails and names are looked for byte by byte (`lists.begins`). The first one also
# has all that a search for text anywhere reads (`users.CONTAINING`).
Index("ix_users_search", User.email, User.name_key, postgresql_ops={"email": "text_pattern_ops"})
Index(
    "ix_users_name_key",
    User.name_key,
    User.id,
    postgresql_ops={"name_key": "text_pattern_ops"},
)
# The few that administrators look for.
Index("ix_users_disabled", User.email, sqlite_where=_DISABLED, postgresql_where=_DISABLED)
Index("ix_users_invited", User.email, sqlite_where=_INVITED, postgresql_where=_INVITED)
Index(
    "ix_users_unverified",
    User.email,
    sqlite_where=text("email_verified = 0"),
    postgresql_where=text("NOT email_verified"),
)
