"""The forms of applications: one to register or change a client, one for a preset."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from flask import request
from flask_babel import lazy_gettext
from wtforms import (
    BooleanField,
    Field,
    HiddenField,
    SelectField,
    SelectMultipleField,
    StringField,
    TextAreaField,
)
from wtforms.validators import Length

from sso.config.auth_methods import AUTH_METHODS, NO_AUTH_METHOD, PRIVATE_KEY_JWT
from sso.crypto.keys import ALGORITHMS
from sso.endpoints.admin.forms import ConfirmForm, choices, lines
from sso.endpoints.forms import TOO_LONG
from sso.flow.scopes import SCOPES
from sso.i18n import N_
from sso.models import Client
from sso.presets.schema import Preset
from sso.services import clients
from sso.services.clients import DEFAULTS, SWITCHES
from sso.web.page_form import PageForm

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


class ClientForm(PageForm):
    """A registration. What it has no field for stays as it is."""

    seen = HiddenField()
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
        """For this client, or for a new one."""
        super().__init__()
        self.token_endpoint_auth_method.choices = choices(
            {name: AUTH_TITLES[name] for name in _methods(client)}
        )
        if not self.is_submitted():
            self.show(seen_of(clients.described(client)) if client else _NEW)

    def show(self, registered: Mapping[str, Any]) -> None:
        """Fill the fields."""
        for name, value in registered.items():
            shown = "\n".join(value) if name in _LISTS else value
            self[name].data = value.split() if name == "scope" else shown

    def remember(self, seen: Mapping[str, Any]) -> None:
        """Keep what the fields were when the page was made."""
        self.seen.data = json.dumps(seen)

    def was_seen(self) -> dict[str, Any] | None:
        """What the fields were; `None` if that is not readable."""
        try:
            found = json.loads(self.seen.data or "")
            return found if found.keys() == _NEW.keys() else None
        except (ValueError, RecursionError, AttributeError):
            return None

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


def seen_of(described: Mapping[str, Any]) -> dict[str, Any]:
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
