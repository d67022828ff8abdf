"""The forms of admin pages, for users, groups, tokens and APIs.

Each carries a CSRF token.
"""

import json
import re
from collections.abc import Mapping
from types import NoneType
from typing import Any

from flask import request
from flask_babel import gettext, lazy_gettext
from wtforms import (
    BooleanField,
    EmailField,
    Field,
    HiddenField,
    PasswordField,
    SelectField,
    SelectMultipleField,
    StringField,
    TextAreaField,
)
from wtforms.fields import SelectChoice  # type: ignore[attr-defined]  # its stubs lack it
from wtforms.validators import DataRequired, Length, ValidationError

from sso.audit.events import WEBHOOK_EVENTS
from sso.config import email_addresses
from sso.config.api_fields import FIELDS as API_FIELDS
from sso.config.fields import MAPPINGS, Input, Kind
from sso.config.fields import Field as TableField
from sso.crypto.passwords import MAX_LENGTH
from sso.endpoints.forms import TOO_LONG
from sso.flow import moments
from sso.flow.profile_claims import CLAIMS, Format, title_of
from sso.i18n import N_
from sso.models import Api
from sso.presets.preset_file import Preset
from sso.services import api_tokens, api_values, changes, checks
from sso.web.forms import PageForm

MOST_GROUPS = 10_000  # characters
MOST_ADDED = 500  # members at once
MOST_CSV = 100_000  # characters of an import


_LIFETIMES = {
    "7": N_("7 days"),
    "30": N_("30 days"),
    "90": N_("90 days"),
    "365": N_("1 year"),
    "730": N_("2 years"),
}


def choices(titles: Mapping[str, str]) -> list[SelectChoice]:
    """Return the choices of a select field: values with their titles."""
    return [SelectChoice(value, title) for value, title in titles.items()]


class ConfirmForm(PageForm):
    """A button, whose action is in the URL. `seen`: the version that the page showed."""

    seen = HiddenField()


class SelectionForm(PageForm):
    """An action on several entries of a list, given by their ids."""

    do = HiddenField()
    person = SelectMultipleField(validate_choice=False)
    application = SelectMultipleField(validate_choice=False)
    item = SelectMultipleField(validate_choice=False)
    group = StringField(lazy_gettext("Group"), [Length(max=200, message=TOO_LONG)])
    is_confirmed = HiddenField()


class EditForm(PageForm):
    """A form that edits an object; `seen`: the values that the page showed, as JSON."""

    seen = HiddenField()

    def fill(self, values: Mapping[str, Any]) -> None:
        """Set the fields to these values."""
        raise NotImplementedError

    def read(self) -> dict[str, Any]:
        """Return the values of all fields, in the format of `fill`."""
        raise NotImplementedError

    def show(self, values: Mapping[str, Any]) -> None:
        """Fill the fields, and remember their values."""
        self.fill(values)
        self.remember(values)

    def remember(self, values: Mapping[str, Any]) -> None:
        self.seen.data = json.dumps(values)

    def title_of(self, name: str) -> str:
        """Return the title of a field in a list of changes."""
        return str(self[name].label.text)

    def shown_values(self) -> dict[str, Any] | None:
        """Return the values that the page showed, or `None` if they are invalid."""
        try:
            values = json.loads(self.seen.data or "")
            json.dumps(values, ensure_ascii=False).encode()
        except (ValueError, RecursionError):  # also UnicodeEncodeError: half of a pair
            return None
        current = self.read()
        if not isinstance(values, dict) or values.keys() != current.keys():
            return None
        return values if all(_is_like(values[name], current[name]) for name in current) else None

    def merge(self, expected: dict[str, Any], now: dict[str, Any]) -> None:
        """Show the current values, except for fields that the user has changed."""
        merged = {**now}
        for name, change in changes.between(expected, self.read()).items():
            merged[name] = change["after"]
            if isinstance(change["after"], dict):
                inner = changes.between(**change)
                merged[name] = now[name] | {key: claim["after"] for key, claim in inner.items()}
        self.fill(merged)
        self.remember(now)


def _is_like(former: Any, value: Any) -> bool:
    """Return whether both values can be of one field. Only texts can be missing."""
    types = {type(former), type(value)}
    return len(types) == 1 or types == {str, NoneType}


def _check_email(_: PageForm, field: Field) -> None:
    try:
        field.data = email_addresses.normalized(field.data or "")
    except ValueError:
        raise ValidationError(N_("This is not an email address.")) from None


def _check_name(_: PageForm, field: Field) -> None:
    field.data = (field.data or "").strip()
    if checks.text_error(checks.NAME, field.data):
        raise ValidationError(N_("Enter a name on one line."))


def _check_groups(_: PageForm, field: Field) -> None:
    if any(checks.group_errors([name], ()) for name in lines(field.data)):
        raise ValidationError(N_("Enter one group per line, without commas."))


def lines(text: str | None) -> list[str]:
    """Return the lines that are not empty, without duplicates."""
    return list(dict.fromkeys(filter(None, (line.strip() for line in (text or "").splitlines()))))


def _check_moment(_: PageForm, field: Field) -> None:
    try:
        moments.parsed(field.data or "9999-12-31")
    except ValueError:
        raise ValidationError(N_("Enter a date and a time.")) from None


def _moment(text: str | None) -> str:
    """Return the moment of a field, which is in UTC; an unreadable text as it is."""
    try:
        return moments.text_of(moments.parsed(text)) if text and text.strip() else ""
    except ValueError:
        return text or ""


def _moment_input(text: str) -> str:
    """Return a moment as browsers have it in a field for date and time."""
    return text.removesuffix("Z").removesuffix(":00")


class InviteForm(PageForm):
    """A new user, who is invited to set a password."""

    email = EmailField(
        lazy_gettext("Email"),
        [
            DataRequired(N_("Enter an email address.")),
            Length(max=email_addresses.LONGEST, message=TOO_LONG),
            _check_email,
        ],
    )
    name = StringField(
        lazy_gettext("Name"),
        [DataRequired(N_("Enter a name on one line.")), Length(max=200, message=TOO_LONG),
         _check_name],
    )  # fmt: skip
    groups = TextAreaField(
        lazy_gettext("Groups, one per line"),
        [Length(max=MOST_GROUPS, message=TOO_LONG), _check_groups],
    )


class NewPersonForm(InviteForm):
    """A new user with a password that the administrator passes on."""

    password = PasswordField(
        lazy_gettext("Password"),
        [DataRequired(N_("Enter a password.")), Length(max=MAX_LENGTH, message=TOO_LONG)],
    )
    email_verified = BooleanField(lazy_gettext("The address belongs to this person"))


class ImportForm(PageForm):
    """People as CSV, pasted or from a file. `plan`: the digest of the plan that was shown."""

    csv = TextAreaField(
        lazy_gettext("People as CSV"),
        [
            DataRequired(N_("Paste the rows, and above them the names of the columns.")),
            Length(max=MOST_CSV, message=TOO_LONG),
        ],
    )
    plan = HiddenField()

    def take_file(self) -> None:
        """Put the text of a file, if one was sent, in place of what is pasted.

        Raises `ValueError` unless it is UTF-8.
        """
        file = request.files.get("file")
        if file and (data := file.read()):
            self.csv.data = data.decode("utf-8-sig")


class PersonForm(EditForm, InviteForm):
    """The profile, groups and claims of a user."""

    email_verified = BooleanField(lazy_gettext("The address belongs to this person"))
    ends_at = StringField(
        lazy_gettext("The account ends at (UTC)"),
        [Length(max=40, message=TOO_LONG), _check_moment],
    )

    def fill(self, values: Mapping[str, Any]) -> None:
        self.email.data, self.name.data = values["email"], values["name"]
        self.email_verified.data = values["email_verified"]
        self.groups.data = "\n".join(values["groups"])
        self.ends_at.data = _moment_input(values["ends_at"])
        for claim in CLAIMS:
            self[f"claim_{claim}"].data = _shown(claim, values["claims"].get(claim))

    def read(self) -> dict[str, Any]:
        claims = {claim: _read(claim, self[f"claim_{claim}"].data) for claim in CLAIMS}
        return {
            "email": self.email.data,
            "name": self.name.data,
            "email_verified": bool(self.email_verified.data),
            "groups": lines(self.groups.data),
            "ends_at": _moment(self.ends_at.data),
            "claims": {claim: value for claim, value in claims.items() if value is not None},
        }

    def title_of(self, name: str) -> str:
        if name == "groups":
            return str(gettext("Groups"))  # without the hint
        return super().title_of(name) if name in self else str(gettext(title_of(name)))


_INPUTS = {Format.SWITCH: BooleanField, Format.ADDRESS: TextAreaField}
for _claim in CLAIMS.values():
    _kind = _INPUTS.get(_claim.format, StringField)
    _checks = [] if _kind is BooleanField else [Length(max=checks.MAX_CLAIM, message=TOO_LONG)]
    setattr(PersonForm, f"claim_{_claim.name}", _kind(lazy_gettext(_claim.title), _checks))


class GroupForm(EditForm):
    """The name of a group."""

    name = StringField(
        lazy_gettext("Name"),
        [DataRequired(N_("Enter a name on one line.")), _check_groups],
    )

    def fill(self, values: Mapping[str, Any]) -> None:
        self.name.data = values["name"]

    def read(self) -> dict[str, Any]:
        return {"name": self.name.data or ""}


class ApiTokenForm(PageForm):
    """A new API token."""

    name = StringField(
        lazy_gettext("Name"),
        [DataRequired(N_("Enter a name on one line.")), Length(max=200, message=TOO_LONG),
         _check_name],
    )  # fmt: skip
    scopes = SelectMultipleField(
        lazy_gettext("What it may do"),
        [DataRequired(N_("Choose at least one."))],
        choices=choices(api_tokens.SCOPES),
    )
    days = SelectField(lazy_gettext("It expires after"), choices=choices(_LIFETIMES), default="365")


def _check_addresses(_: PageForm, field: Field) -> None:
    addresses = _addresses(field.data)
    if not addresses:
        raise ValidationError(N_("Enter an email address."))
    if len(addresses) > MOST_ADDED:
        raise ValidationError(N_("Enter at most 500 email addresses."))
    try:
        for address in addresses:
            email_addresses.normalized(address)
    except ValueError:
        raise ValidationError(N_("This is not an email address.")) from None


def _addresses(text: str | None) -> list[str]:
    """Return what stands between spaces, commas and semicolons, without duplicates."""
    addresses = re.split(r"[\s,;]+", (text or "").lower())
    return list(dict.fromkeys(filter(None, addresses)))


class WebhookForm(EditForm):
    """The URL of a webhook, and the events that it gets."""

    url = StringField(
        lazy_gettext("URL"),
        [DataRequired(N_("Enter a URL.")), Length(max=2000, message=TOO_LONG)],
    )
    events = SelectMultipleField(
        lazy_gettext("Events"),
        [DataRequired(N_("Choose at least one."))],
        choices=choices({str(event): str(event) for event in WEBHOOK_EVENTS}),
    )

    def fill(self, values: Mapping[str, Any]) -> None:
        self.url.data, self.events.data = values["url"], list(values["events"])

    def read(self) -> dict[str, Any]:
        return {"url": (self.url.data or "").strip(), "events": list(self.events.data or ())}


class WithEnd(PageForm):
    """A moment from which something is over."""

    ends_at = StringField(
        lazy_gettext("Ends at (UTC)"), [Length(max=40, message=TOO_LONG), _check_moment]
    )

    @property
    def end(self) -> str:
        """The moment; "" is never."""
        return _moment(self.ends_at.data)


class EndForm(EditForm, WithEnd):
    """When a membership or the secret of an application ends."""

    def fill(self, values: Mapping[str, Any]) -> None:
        self.ends_at.data = _moment_input(values["ends_at"])

    def read(self) -> dict[str, Any]:
        return {"ends_at": self.end}


class MembersForm(WithEnd):
    """The email addresses of new members, or of new owners."""

    email = TextAreaField(
        lazy_gettext("Email addresses, one per line"),
        [Length(max=MOST_ADDED * email_addresses.LONGEST, message=TOO_LONG), _check_addresses],
    )

    @property
    def addresses(self) -> list[str]:
        """The email addresses as accounts have them."""
        return [email_addresses.normalized(address) for address in _addresses(self.email.data)]


def _shown(claim: str, value: Any) -> Any:
    if CLAIMS[claim].format is Format.SWITCH:
        return value is True
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value or ""


def _read(claim: str, data: Any) -> Any:
    """Return a claim's value, or `None`; `checks` refuses invalid JSON later."""
    if CLAIMS[claim].format is Format.SWITCH:
        return True if data else None
    text = (data or "").replace("\r\n", "\n").strip()
    if CLAIMS[claim].format is Format.ADDRESS and text:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return text or None


def _text(label: Any) -> StringField:
    return StringField(label, [Length(max=2000, message=TOO_LONG)])


def _lines(label: Any) -> TextAreaField:
    return TextAreaField(label, [Length(max=20_000, message=TOO_LONG)])


def _long_text(label: Any, *more: Any) -> TextAreaField:
    return TextAreaField(label, [Length(max=checks.MAX_JWKS, message=TOO_LONG), *more])


def _check_key_set(_: PageForm, field: Field) -> None:
    try:
        json.loads((field.data or "").strip() or "{}")
    except (ValueError, RecursionError):
        raise ValidationError(N_("This is not JSON.")) from None


def input_of(field: TableField, about: Input) -> Field:
    """Return the field of WTForms for a field of a table."""
    label = lazy_gettext(about.label)
    match field.kind:
        case Kind.SWITCH:
            return BooleanField(label)
        case Kind.CHOICE | Kind.WORDS | Kind.CHOICES:
            kind = SelectField if field.kind is Kind.CHOICE else SelectMultipleField
            titles = {"": about.empty} if about.empty else {}
            titles |= {name: field.titles.get(name, name) for name in field.choices}
            return kind(label, choices=choices(titles))
        case Kind.KEY_SET:
            return _long_text(label, _check_key_set)
        case Kind.CERTIFICATES:
            return _long_text(label)
        case _:
            return (_lines if field.json_type in (list, dict) else _text)(label)


class ApiForm(EditForm):
    """An API, with the fields that `api_fields` has; scopes and translations are entries."""

    def __init__(self, api: Api | None = None) -> None:
        """For this API, whose identifier and secret stay, or for a new one."""
        super().__init__()
        if api is not None:
            del self.identifier, self.introspection

    def inputs(self, *kinds: str) -> list[tuple[Field, TableField, Input]]:
        """Return the fields of these kinds, as the form has them and as the table has them."""
        return [
            (self[field.name], field, about)
            for field, about in _API_FIELDS
            if field.kind.name in kinds and field.name in self
        ]

    def fill(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            self[name].data = "\n".join(value) if isinstance(value, list) else value

    def read(self) -> dict[str, Any]:
        return {
            field.name: _api_value(field, self[field.name].data)
            for field, _ in _API_FIELDS
            if field.name in self
        }

    def title_of(self, name: str) -> str:
        return super().title_of(name) if name in self else name  # a scope, or a language


def _api_value(field: TableField, data: Any) -> Any:
    if field.kind is Kind.SWITCH:
        return bool(data)
    return lines(data) if field.json_type in (list, dict) else (data or "").strip()


def api_fields_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an API, from the values of the form."""
    fields = {**values}
    for name in fields.keys() & {field.name for field, _ in _API_FIELDS if field.kind in MAPPINGS}:
        fields[name] = api_values.parsed_entries(name, fields[name])
    if (text := fields.get(_LIFETIME)) is not None:
        fields[_LIFETIME] = int(text) if text.isdecimal() and len(text) < 10 else text or None
    return fields


def api_seen_of(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the form for an API."""
    values: dict[str, Any] = {}
    for field, _ in _API_FIELDS:
        value = described[field.name]
        if field.kind in MAPPINGS:
            values[field.name] = api_values.entries_of(field.name, value)
        elif field.name not in ("identifier", "introspection"):
            values[field.name] = str(value or "") if field.kind is Kind.NUMBER else value
    return values


_LIFETIME = "access_token_lifetime"
_API_FIELDS = [(field, field.form) for field in API_FIELDS.values() if field.form]
for _field, _about in _API_FIELDS:
    setattr(ApiForm, _field.name, input_of(_field, _about))


class PresetForm(PageForm):
    """The URL of a known application, and its options, which are fields `option_NAME`."""

    url = _text(lazy_gettext("URL of the application"))
    client_name = _text(lazy_gettext("Name"))
    groups = _lines(lazy_gettext("Only members of these groups, one on each line"))

    @property
    def options(self) -> Mapping[str, Field]:
        return {
            field.name.removeprefix("option_"): field
            for field in self
            if field.name.startswith("option_")
        }

    @classmethod
    def of(cls, preset: Preset) -> "PresetForm":
        """Make the form of a preset."""
        fields: dict[str, Field] = {}
        for name, option in preset.options.items():
            values = choices({choice: choice for choice in option.choices})
            fields[f"option_{name}"] = (
                SelectField(name, choices=values, default=option.default, description=option.help)
                if values
                else StringField(name, default=option.default, description=option.help)
            )
        form: PresetForm = type(cls.__name__, (cls,), fields)()
        return form


class RotationForm(ConfirmForm, WithEnd):
    """The time for which the old secret stays valid, and when the new one ends."""

    hours = SelectField(
        lazy_gettext("The old secret"),
        default="0",
        choices=choices(
            {
                "0": N_("ends at once"),
                "24": N_("stays valid for 24 hours"),
                "168": N_("stays valid for 7 days"),
            }
        ),
    )


class LogoForm(PageForm):
    """An image file, or none to remove the logo."""

    @property
    def image(self) -> bytes:
        return request.files["logo"].read() if "logo" in request.files else b""


class ProviderTestForm(PageForm):
    """The account that the test of a directory looks up; it may be empty."""

    account = StringField(
        lazy_gettext("Name or email of an account"), [Length(max=320, message=TOO_LONG)]
    )


class DomainForm(PageForm):
    """A domain of agents, and what is decided about it: the button that was pressed."""

    domain = StringField(lazy_gettext("Domain"), [Length(max=253, message=TOO_LONG)])
    decision = StringField()


class McpServerForm(PageForm):
    """A new MCP server; scopes are entries, one on each line."""

    url = StringField(lazy_gettext("URL"), [Length(max=200, message=TOO_LONG)])
    name = StringField(lazy_gettext("Name"), [Length(max=200, message=TOO_LONG)])
    scopes = TextAreaField(
        lazy_gettext("Scopes, one on each line"), [Length(max=20_000, message=TOO_LONG)]
    )
    groups = TextAreaField(
        lazy_gettext("Only members of these groups, one on each line"),
        [Length(max=MOST_GROUPS, message=TOO_LONG)],
    )


class McpCheckForm(PageForm):
    """Whom the check of an MCP server plays; both may be empty."""

    email = StringField(lazy_gettext("Email of a person"), [Length(max=254, message=TOO_LONG)])
    client_id = StringField(
        lazy_gettext("Client ID, or the URL of a client metadata document"),
        [Length(max=500, message=TOO_LONG)],
    )
