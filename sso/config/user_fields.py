"""The table of a user's fields: commands, declarations, exports and imported files have them.

It has the shape of `client_fields`; `sso.flow.profile_claims` has the entries of `claims`. A new
field is an entry here, a column in `sso.models.users` with a migration, and the code that acts on
it. `tests/config/test_user_fields.py` compares the surfaces with this table.
"""

from collections.abc import Mapping

from sso.config.fields import Field, Kind, Option, Stored

_TABLE = (
    Field("id", Kind.TEXT, "The subject identifier, a UUID. It cannot be changed."),
    Field("email", Kind.TEXT, "The email address.", default="", is_required=True,
          option=Option("email")),
    Field("name", Kind.TEXT, "The name that applications see.", default="", is_required=True,
          option=Option("name")),
    Field("email_verified", Kind.SWITCH, "The address belongs to the user.", default=False,
          option=Option("email-verified")),
    Field("groups", Kind.NAMES, "The names of the user's groups.", default=[],
          option=Option("group")),
    Field("disabled", Kind.SWITCH, "Whether the user cannot sign in.", default=False),
    Field("claims", Kind.OBJECT, "Standard claims by name (OIDC Core §5.1).", default={},
          option=Option("claim", metavar="NAME=VALUE")),
    Field("attributes", Kind.OBJECT, "The values of attributes by name.", default={},
          option=Option("set-attribute", metavar="NAME=VALUE")),
    Field("ends_at", Kind.TEXT, "When the account ends (ISO 8601, UTC); empty: never.", default="",
          option=Option("ends-at", metavar="TIME")),
    Field("group_ends", Kind.TEXTS, "When memberships end, by group, as ends_at.", default={},
          option=Option("group-end", metavar="GROUP=TIME")),
    Field("password_hash", Kind.TEXT, "The password hash of another system, for a new user.",
          stored=Stored.APART),
    Field("initial_password", Kind.TEXT, "A reference to the first password of a new user.",
          stored=Stored.APART),
)  # fmt: skip

FIELDS: Mapping[str, Field] = {entry.name: entry for entry in _TABLE}
# Those that exports, records and changes have.
DESCRIBED = tuple(entry.name for entry in _TABLE if entry.stored is not Stored.APART)
