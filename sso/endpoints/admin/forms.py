"""The forms of admin pages, for people, groups, tokens, clients and APIs.

Each carries a CSRF token.
"""

import json
from collections.abc import Iterable, Mapping
from types import NoneType
from typing import Any

from flask import request
from flask_babel import gettext, lazy_gettext
from wtforms import (
    BooleanField,
    EmailField,
    Field,
    HiddenField,
    SelectField,
    SelectMultipleField,
    StringField,
    TextAreaField,
)
from wtforms.fields import SelectChoice  # type: ignore[attr-defined]  # its stubs lack it
from wtforms.validators import DataRequired, Length, ValidationError

from sso.config import email_addresses
from sso.config.api_fields import FIELDS as API_FIELDS
from sso.config.auth_methods import AUTH_METHODS, NO_AUTH_METHOD, PRIVATE_KEY_JWT
from sso.config.client_fields import FIELDS
from sso.config.fields import MAPPINGS, Input, Kind
from sso.config.fields import Field as TableField
from sso.endpoints.forms import TOO_LONG
from sso.flow.scopes import CLAIM_NAMES
from sso.i18n import N_
from sso.models import Api, Client
from sso.presets.schema import Preset
from sso.services import api_tokens, api_values, changes, checks
from sso.web.forms import PageForm

MOST_GROUPS = 10_000  # characters
_JSON = ("address",)
_SWITCHES = ("phone_number_verified",)


_LIFETIMES = {
    "7": N_("7 days"),
    "30": N_("30 days"),
    "90": N_("90 days"),
    "365": N_("1 year"),
    "730": N_("2 years"),
}


def choices(titles: Mapping[str, str]) -> list[SelectChoice]:
    """What a list offers: values with their titles."""
    return [SelectChoice(value, title) for value, title in titles.items()]


class ConfirmForm(PageForm):
    """One button; what it does is in the URL. `seen`: the version that the page showed."""

    seen = HiddenField()


class EditForm(PageForm):
    """A form that changes something; `seen` is what the fields were when the page was made."""

    seen = HiddenField()

    def fill(self, values: Mapping[str, Any]) -> None:
        """Put values into the fields."""
        raise NotImplementedError

    def read(self) -> dict[str, Any]:
        """Return the values of the fields, all of them, as `fill` takes them."""
        raise NotImplementedError

    def show(self, values: Mapping[str, Any]) -> None:
        """Fill the fields, and remember what they are."""
        self.fill(values)
        self.remember(values)

    def remember(self, seen: Mapping[str, Any]) -> None:
        self.seen.data = json.dumps(seen)

    def title_of(self, name: str) -> str:
        """Return what a field is called where its changes are shown."""
        return str(self[name].label.text)

    def was_seen(self) -> dict[str, Any] | None:
        """Return what the fields were, or None if that is unreadable."""
        try:
            seen = json.loads(self.seen.data or "")
        except (ValueError, RecursionError):
            return None
        values = self.read()
        if not isinstance(seen, dict) or seen.keys() != values.keys():
            return None
        return seen if all(_is_like(seen[name], values[name]) for name in values) else None

    def merge(self, seen: dict[str, Any], now: dict[str, Any]) -> None:
        """Show how everything is now, except for what was typed since it was `seen`."""
        merged = {**now}
        for name, change in changes.between(seen, self.read()).items():
            merged[name] = change["after"]
            if isinstance(change["after"], dict):
                inner = changes.between(**change)
                merged[name] = now[name] | {key: claim["after"] for key, claim in inner.items()}
        self.fill(merged)
        self.remember(now)


def _is_like(seen: Any, value: Any) -> bool:
    """Whether a field with this value may have been `seen`. Only texts can be missing."""
    types = {type(seen), type(value)}
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
    """The lines that are not empty, each once."""
    return list(dict.fromkeys(filter(None, (line.strip() for line in (text or "").splitlines()))))


class InviteForm(PageForm):
    """A new person, who sets the password."""

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


class PersonForm(EditForm, InviteForm):
    """A person."""

    email_verified = BooleanField(lazy_gettext("The address belongs to this person"))

    def fill(self, values: Mapping[str, Any]) -> None:
        self.email.data, self.name.data = values["email"], values["name"]
        self.email_verified.data = values["email_verified"]
        self.groups.data = "\n".join(values["groups"])
        for claim in CLAIM_NAMES:
            self[f"claim_{claim}"].data = _shown(claim, values["claims"].get(claim))

    def read(self) -> dict[str, Any]:
        claims = {claim: _read(claim, self[f"claim_{claim}"].data) for claim in CLAIM_NAMES}
        return {
            "email": self.email.data,
            "name": self.name.data,
            "email_verified": bool(self.email_verified.data),
            "groups": lines(self.groups.data),
            "claims": {claim: value for claim, value in claims.items() if value is not None},
        }

    def title_of(self, name: str) -> str:
        if name == "groups":
            return str(gettext("Groups"))  # without the hint
        return super().title_of(name) if name in self else str(gettext(CLAIM_NAMES.get(name, name)))


for _claim, _label in CLAIM_NAMES.items():
    _kind = (
        BooleanField if _claim in _SWITCHES else TextAreaField if _claim in _JSON else StringField
    )
    _checks = [] if _claim in _SWITCHES else [Length(max=checks.MAX_CLAIM, message=TOO_LONG)]
    setattr(PersonForm, f"claim_{_claim}", _kind(lazy_gettext(_label), _checks))


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


class MemberForm(PageForm):
    """The email address of a new member."""

    email = EmailField(
        lazy_gettext("Email"), [DataRequired(N_("Enter an email address.")), _check_email]
    )


def _shown(claim: str, value: Any) -> Any:
    if claim in _SWITCHES:
        return value is True
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value or ""


def _read(claim: str, data: Any) -> Any:
    """A claim's value, `None` for none; what is no JSON is refused later, by `checks`."""
    if claim in _SWITCHES:
        return True if data else None
    text = (data or "").replace("\r\n", "\n").strip()
    if claim in _JSON and text:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return text or None


def _text(label: Any) -> StringField:
    return StringField(label, [Length(max=2000, message=TOO_LONG)])


def _lines(label: Any) -> TextAreaField:
    return TextAreaField(label, [Length(max=20_000, message=TOO_LONG)])


def _input(field: TableField, label: str) -> Field:
    """Return the field of WTForms for a field of a table."""
    match field.kind:
        case Kind.SWITCH:
            return BooleanField(lazy_gettext(label))
        case Kind.CHOICE | Kind.WORDS | Kind.CHOICES:
            kind = SelectField if field.kind is Kind.CHOICE else SelectMultipleField
            titles = {name: field.titles.get(name, name) for name in field.choices}
            return kind(lazy_gettext(label), choices=choices(titles))
        case _:
            return (_lines if field.json_type in (list, dict) else _text)(lazy_gettext(label))


class ClientForm(EditForm):
    """A registration, with the fields that `client_fields` has. The others stay as they are."""

    def __init__(self, client: Client | None = None) -> None:
        """For this client, which `show` fills in, or for a new one."""
        super().__init__()
        method = FIELDS["token_endpoint_auth_method"]
        titles = {name: method.titles[name] for name in _methods(client)}
        self[method.name].choices = choices(titles)
        if client is None and not self.is_submitted():
            self.fill(_NEW)

    def inputs(self, *kinds: str) -> list[tuple[Field, TableField, Input]]:
        """Return the fields of these kinds, as the form has them and as the table has them."""
        return [
            (self[field.name], field, about)
            for field, about in _FORM_FIELDS
            if field.kind.name in kinds
        ]

    def fill(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            match FIELDS[name].kind:
                case Kind.WORDS:
                    self[name].data = value.split()
                case Kind.CHOICES:
                    self[name].data = value
                case _:
                    self[name].data = "\n".join(value) if isinstance(value, list) else value

    def read(self) -> dict[str, Any]:
        """Return the values of the fields, by name."""
        return {
            field.name: _client_value(field, self[field.name].data) for field, _ in _FORM_FIELDS
        }


def _client_value(field: TableField, data: Any) -> Any:
    match field.kind:
        case Kind.SWITCH:
            return bool(data)
        case Kind.CHOICE:
            return data
        case Kind.WORDS:
            return " ".join(data or ())
        case Kind.CHOICES:
            return list(data or ())
        case _ if field.json_type is list:
            return lines(data)
        case _:
            return (data or "").strip() or (None if field.is_removable else "")


_FORM_FIELDS = [(field, field.form) for field in FIELDS.values() if field.form]
_NEW = {field.name: field.default for field, _ in _FORM_FIELDS}
for _field, _about in _FORM_FIELDS:
    setattr(ClientForm, _field.name, _input(_field, _about.label))


def client_seen_of(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a client that the form has."""
    return {name: described.get(name, default) for name, default in _NEW.items()}


def _methods(client: Client | None) -> Iterable[str]:
    """A client stays public or confidential; one with a key is registered by command."""
    if client is None:
        return *(name for name in AUTH_METHODS if name != PRIVATE_KEY_JWT), NO_AUTH_METHOD
    if client.is_public:
        return (NO_AUTH_METHOD,)
    has_key = client.token_endpoint_auth_method == PRIVATE_KEY_JWT
    return [name for name in AUTH_METHODS if has_key or name != PRIVATE_KEY_JWT]


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
    setattr(ApiForm, _field.name, _input(_field, _about.label))


class PresetForm(PageForm):
    """Where a known application is, and its options, which are fields `option_NAME`."""

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
        """The form of this preset."""
        fields: dict[str, Field] = {}
        for name, option in preset.options.items():
            values = choices({choice: choice for choice in option.choices})
            fields[f"option_{name}"] = (
                SelectField(name, choices=values, default=option.default, description=option.help)
                if values
                else StringField(name, default=option.default, description=option.help)
            )
        made: PresetForm = type(cls.__name__, (cls,), fields)()
        return made


class RotationForm(ConfirmForm):
    """How long the old secret stays valid."""

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
