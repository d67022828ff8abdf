"""The table of the fields of an attribute's definition: one entry for each.

It has the shape of `client_fields`. A new field is an entry here, a column in
`sso.models.users` with a migration, and the code that acts on it.
"""

from collections.abc import Mapping

from sso.config.fields import Field, Input, Kind, Option
from sso.flow import attributes
from sso.i18n import N_
from sso.i18n.message import Message

_WHO = "Who may read and change it: person, helpdesk, administrator, scim, upstream."
_TABLE = (
    Field(
        "name", Kind.TEXT, "The name of the attribute. It cannot be changed.", default="",
        is_required=True, noun=Message("the name"),
        form=Input(N_("Name"), N_("Small letters, digits and _, such as cost_center. It cannot be "
                   "changed later.")),
    ),
    Field(
        "title", Kind.TEXT, "The title that people see, by default the name.", default="",
        option=Option("title"),
        form=Input(N_("Title"), N_("What people see. If empty, the name.")),
    ),
    Field(
        "type", Kind.CHOICE, "The type of its values. It cannot be changed.",
        default=attributes.STRING, choices=tuple(attributes.TYPES), titles=attributes.TYPES,
        option=Option("type"),
        form=Input(N_("Type"), N_("It cannot be changed later.")),
    ),
    Field(
        "choices", Kind.NAMES, "The values of the type choice.", default=[],
        option=Option("choice", "A value of the type choice.", metavar="TEXT"),
        form=Input(N_("Values to choose from, one on each line"), rows=3),
    ),
    Field(
        "readers", Kind.CHOICES, "Who may read it, besides administrators: person, helpdesk, scim.",
        default=[], choices=tuple(attributes.READERS), titles=attributes.READERS,
        option=Option("reader", "Who may read it, besides administrators: person, helpdesk, scim.",
                      metavar="WHO"),
        form=Input(N_("Who may read it, besides administrators")),
    ),
    Field(
        "writers", Kind.CHOICES, _WHO,
        default=[attributes.Party.ADMINISTRATOR],
        choices=tuple(attributes.WRITERS), titles=attributes.WRITERS,
        option=Option("writer", _WHO,
                      metavar="WHO"),
        form=Input(N_("Who may change it")),
    ),
    Field(
        "at_sign_up", Kind.CHOICE,
        "Whether people give it when they create their account or accept an invitation.",
        default=attributes.NOT_ASKED, choices=tuple(attributes.AT_SIGN_UP),
        titles=attributes.AT_SIGN_UP, option=Option("at-sign-up"),
        form=Input(N_("At sign-up"), N_("When people create their account or accept an "
                   "invitation.")),
    ),
)  # fmt: skip

FIELDS: Mapping[str, Field] = {entry.name: entry for entry in _TABLE}
FIXED = ("name", "type")  # of an existing definition
