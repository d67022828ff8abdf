"""The table of an API's fields: one entry for each, which every surface reads.

It has the shape of `client_fields`. A new field is an entry here, a column in `sso.models.apis`
with a migration, and the code that acts on it. `tests/config/test_api_fields.py` compares the
surfaces with this table.
"""

from collections.abc import Mapping

from sso.config.fields import Fact, Field, Input, Kind, Option, Stored
from sso.flow import role_claims
from sso.i18n import N_
from sso.i18n.message import Message

_TABLE = (
    Field(
        "identifier", Kind.URL, "The audience of its access tokens, a URI. It cannot be changed.",
        default="", is_required=True,
        noun=Message("the identifier"),
        option=Option("identifier", metavar="URI"),
        form=Input(N_("Identifier"),
                   N_("An https URL or a URN, such as https://api.example.com. It stays.")),
    ),
    Field(
        "name", Kind.TEXT, "The name that users see.", default="", is_required=True,
        noun=Message("the name"),
        option=Option("name"),
        form=Input(N_("Name")),
    ),
    Field(
        "scopes", Kind.TEXTS, "Its scopes, each with the description that users see.", default={},
        option=Option("scope", "A scope, with the description that users see.",
                      metavar="NAME=DESCRIPTION"),
        form=Input(N_("Scopes, one on each line"),
                   N_("The name, and the description that people see: "
                      "read=Read your orders"), rows=4),
    ),
    Field(
        "translations", Kind.TRANSLATIONS, "The descriptions in other languages.", default={},
        option=Option("translation", "The description of a scope in another language.",
                      metavar="LANG:NAME=DESCRIPTION"),
        form=Input(N_("Descriptions in other languages, one on each line"),
                   N_("For example: de:read=Ihre Bestellungen lesen"), rows=3),
    ),
    Field(
        "groups", Kind.NAMES, "Only members of one of these groups get tokens for it.", default=[],
        option=Option("group"),
        form=Input(N_("Only members of these groups, one on each line"),
                   N_("If empty, everyone may use it."), rows=2),
        fact=Fact(N_("Who may use it"), empty=N_("Everyone")),
    ),
    Field(
        "access_token_lifetime", Kind.NUMBER, "Seconds for which its access tokens are valid.",
        option=Option("lifetime", metavar="SECONDS",
                      removal="Use SSO_ACCESS_TOKEN_LIFETIME again."),
        form=Input(N_("Lifetime of its access tokens, in seconds"),
                   N_("If empty, that of the settings.")),
        fact=Fact(empty=N_("That of the settings")),
    ),
    Field(
        "includes_groups", Kind.SWITCH, "Its tokens contain the groups of the user.", default=False,
        option=Option("include-groups",
                      update="Whether its tokens contain the groups of the user."),
        form=Input(N_("Put the person's groups into its tokens")),
        fact=Fact(N_("Groups in its tokens")),
    ),
    Field(
        "agents", Kind.SWITCH,
        "Clients that no operator registered, such as assistants, may request tokens for it.",
        default=False,
        option=Option("agents", update="Whether clients that nobody registered may use it."),
        form=Input(N_("Let agents use it that nobody registered here"),
                   N_("Assistants and editors with a client metadata document. "
                      "People are asked each time.")),
        fact=Fact(N_("Agents"), on=N_("May use it; people are asked each time."),
                  off=N_("Only registered applications")),
    ),
    Field(
        "roles", Kind.ROLES, "Its roles, each with a group: its tokens have those of the user.",
        default=[],
        option=Option("role", "A role, and a group whose members have it.",
                      metavar="ROLE=GROUP", also="role-of"),
        form=Input(N_("Roles, one on each line"),
                   N_("The role and a group whose members have it: editor=staff"), rows=2),
        fact=Fact(N_("Roles")),
    ),
    Field(
        "roles_shape", Kind.CHOICE, "The shape of the claim roles: list, string or object.",
        default=role_claims.LIST, choices=tuple(role_claims.SHAPES), titles=role_claims.SHAPES,
        noun=Message("the shape of roles"),
        option=Option("roles-shape"),
        form=Input(N_("How it gets the roles")),
    ),
    Field(
        "introspection", Kind.SWITCH,
        "It has credentials of its own to introspect its tokens.", default=False,
        option=Option("introspection", update="Whether it has credentials to introspect tokens."),
        form=Input(N_("Give it a secret, with which it asks whether a token is valid")),
        fact=Fact(N_("Introspection")),
    ),
    Field("disabled", Kind.SWITCH, "Whether nobody gets tokens for it.", default=False,
          stored=Stored.APART),
)  # fmt: skip

FIELDS: Mapping[str, Field] = {entry.name: entry for entry in _TABLE}
SETTABLE = _TABLE
