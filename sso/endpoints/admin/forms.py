"""The forms of admin pages, for people, groups, tokens and clients. Each carries a CSRF token."""

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
from sso.config.auth_methods import AUTH_METHODS, NO_AUTH_METHOD, PRIVATE_KEY_JWT
from sso.crypto.keys import ALGORITHMS
from sso.endpoints.forms import TOO_LONG
from sso.flow.scopes import CLAIM_NAMES, SCOPES
from sso.i18n import N_
from sso.models import Client
from sso.presets.schema import Preset
from sso.services import api_tokens, changes, checks
from sso.services.clients import DEFAULTS, SWITCHES
from sso.web.page_form import PageForm

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
                merged[name] = now[name] | {key: one["after"] for key, one in inner.items()}
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
    return list(dict.fromkeys(filter(None, (one.strip() for one in (text or "").splitlines()))))


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


_LISTS = ("redirect_uris", "post_logout_redirect_uris", "groups")
_TEXTS = ("client_name", "backchannel_logout_uri", "home_url")
_CHOICES = ("token_endpoint_auth_method", "id_token_signed_response_alg", "id_token_claims")
_OPTIONAL = ("backchannel_logout_uri", "home_url")
AUTH_TITLES = {
    "any": N_("A secret, in the header or in the form"),
    "client_secret_post": N_("A secret in the form (client_secret_post)"),
    "client_secret_basic": N_("A secret in the header (client_secret_basic)"),
    NO_AUTH_METHOD: N_("No secret: it runs on people's devices (public client)"),
    PRIVATE_KEY_JWT: N_("A private key (private_key_jwt)"),
}
CLAIMS_TITLES = {
    "standard": N_("Who signed in, and when"),
    "all": N_("The whole profile, for applications that do not ask userinfo"),
}


def _text(label: Any) -> StringField:
    return StringField(label, [Length(max=2000, message=TOO_LONG)])


def _lines(label: Any) -> TextAreaField:
    return TextAreaField(label, [Length(max=20_000, message=TOO_LONG)])


class ClientForm(EditForm):
    """A registration. What it has no field for stays as it is."""

    client_name = _text(lazy_gettext("Name"))
    redirect_uris = _lines(lazy_gettext("Redirect URIs, one on each line"))
    post_logout_redirect_uris = _lines(lazy_gettext("Post-logout redirect URIs, one on each line"))
    home_url = _text(lazy_gettext("URL that starts the application"))
    backchannel_logout_uri = _text(lazy_gettext("Back-channel logout URI"))
    scope = SelectMultipleField(
        lazy_gettext("Scopes that it may request"),
        choices=choices({name: name for name in SCOPES}),
    )
    groups = _lines(lazy_gettext("Only members of these groups, one on each line"))
    first_party = BooleanField(lazy_gettext("Do not ask people for consent"))
    require_pkce = BooleanField(lazy_gettext("Refuse requests without PKCE"))
    require_mfa = BooleanField(lazy_gettext("Require two-step verification"))
    token_endpoint_auth_method = SelectField(lazy_gettext("How it authenticates"))
    id_token_signed_response_alg = SelectField(
        lazy_gettext("Algorithm of identity tokens"),
        choices=choices({name: name for name in ALGORITHMS}),
    )
    id_token_claims = SelectField(
        lazy_gettext("What identity tokens contain"), choices=choices(CLAIMS_TITLES)
    )

    def __init__(self, client: Client | None = None) -> None:
        """For this client, which `show` fills in, or for a new one."""
        super().__init__()
        self.token_endpoint_auth_method.choices = choices(
            {name: AUTH_TITLES[name] for name in _methods(client)}
        )
        if client is None and not self.is_submitted():
            self.fill(_NEW)

    def fill(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            shown = "\n".join(value) if name in _LISTS else value
            self[name].data = value.split() if name == "scope" else shown

    def read(self) -> dict[str, Any]:
        """What the fields say, with the names of RFC 7591."""
        values: dict[str, Any] = {name: self[name].data for name in (*_TEXTS, *_CHOICES)}
        values |= {name: (values[name] or "").strip() for name in _TEXTS}
        values |= {name: None for name in _OPTIONAL if not values[name]}
        values |= {name: lines(self[name].data) for name in _LISTS}
        values |= {name: bool(self[name].data) for name in SWITCHES}
        return {**values, "scope": " ".join(self.scope.data or ())}


_NEW = {**{name: DEFAULTS[name] for name in (*_TEXTS, *_CHOICES, *_LISTS, "scope")},
        **dict.fromkeys(SWITCHES, False)}  # fmt: skip


def client_seen_of(described: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a client that the form has."""
    return {name: described.get(name, default) for name, default in _NEW.items()}


def _methods(client: Client | None) -> Iterable[str]:
    """A client stays public or confidential; one with a key is registered by command."""
    if client is None:
        return *(name for name in AUTH_METHODS if name != PRIVATE_KEY_JWT), NO_AUTH_METHOD
    if client.is_public:
        return (NO_AUTH_METHOD,)
    has_key = client.token_endpoint_auth_method == PRIVATE_KEY_JWT
    return [name for name in AUTH_METHODS if has_key or name != PRIVATE_KEY_JWT]


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
            values = choices({one: one for one in option.choices})
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
