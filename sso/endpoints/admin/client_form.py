"""The form of a client: every field of `client_fields` that has an input, in foldable panels."""

import json
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from flask_babel import lazy_gettext
from wtforms import Field, TextAreaField
from wtforms.validators import Length

from sso.config.auth_methods import AUTH_METHODS, NO_AUTH_METHOD
from sso.config.client_fields import FIELDS, PANELS
from sso.config.fields import Field as TableField
from sso.config.fields import Input, Kind
from sso.crypto import client_jwt
from sso.endpoints.admin.forms import EditForm, choices, input_of, lines
from sso.endpoints.forms import TOO_LONG
from sso.models import Client
from sso.process import program
from sso.services import checks, clients

if TYPE_CHECKING:
    from sso.services import service_providers
else:
    service_providers = program.late_module("sso.services.service_providers")  # 60 ms

_FIELDS = [(field, field.form) for field in FIELDS.values() if field.form]


class Panel(NamedTuple):
    """A part of the form. `is_open`: it says something, or has an error."""

    title: str
    inputs: list[tuple[Field, TableField, Input]]
    is_open: bool


class ClientForm(EditForm):
    """A registration, with the fields of `client_fields` that have an input."""

    def __init__(self, client: Client | None = None, only: Container[str] | None = None) -> None:
        """Make the form of a client, which `show` fills in, or of a new one.

        `only`: the names of its fields, unless it has all.
        """
        super().__init__()
        self._entries = [entry for entry in _FIELDS if only is None or entry[0].name in only]
        for name in {field.name for field, _ in _FIELDS} - self.names:
            del self[name]
        method = FIELDS["token_endpoint_auth_method"]
        if method.name in self:
            titles = {name: method.titles[name] for name in _methods(client)}
            self[method.name].choices = choices(titles)
        if client is None and not self.is_submitted():
            self.fill({**_NOTHING, "require_pkce": True})

    @property
    def names(self) -> set[str]:
        """The names of the client's fields that the form has."""
        return {field.name for field, _ in self._entries}

    def panels(self) -> Iterator[Panel]:
        """Yield the parts of the form that have fields; the first has no title."""
        values = self.read()
        for title in ("", *PANELS):
            inputs = [
                (self[field.name], field, about)
                for field, about in self._entries
                if about.panel == title
            ]
            if not inputs:
                continue
            is_open = any(
                entry.errors or values[field.name] != _NOTHING[field.name]
                for entry, field, _ in inputs
            )
            yield Panel(title, inputs, is_open)

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
        """Return the values of the fields, by name; a key set as text."""
        return {field.name: _value(field, self[field.name].data) for field, _ in self._entries}

    def shown_values(self) -> dict[str, Any] | None:
        values = super().shown_values()
        return values if values is None or _is_key_set(values["jwks"]) else None

    def title_of(self, name: str) -> str:
        return super().title_of(name) if name in self else name  # a part of the key set


for _field, _about in _FIELDS:
    setattr(ClientForm, _field.name, input_of(_field, _about))


class NewClientForm(ClientForm):
    """A new registration. Metadata of a service provider fills in what it says."""

    saml_metadata = TextAreaField(
        lazy_gettext("SAML: metadata of the application"),
        [Length(max=checks.MAX_JWKS, message=TOO_LONG)],
    )

    def registration(self) -> dict[str, Any]:
        """Return the fields of the client, without those that are as usual. Raises `Invalid`.

        What is left out follows from the rest: the profile, for instance, turns on PAR.
        """
        fields = {
            name: value for name, value in of_service(self.read()).items() if value != _USUAL[name]
        }
        if text := (self.saml_metadata.data or "").strip():
            imported = service_providers.of_metadata(text.encode(), self.saml_metadata.name)
            said = {name: value for name, value in imported.fields.items() if value is not None}
            fields = {**said, **fields}
        return fields


def _value(field: TableField, data: Any) -> Any:
    match field.kind:
        case Kind.SWITCH:
            return bool(data)
        case Kind.CHOICE:
            return data or None
        case Kind.WORDS:
            return " ".join(data or ())
        case Kind.CHOICES:
            return list(data or ())
        case Kind.KEY_SET:
            return _key_set_text(data)
        case Kind.CERTIFICATES:
            return _pem(data)
        case _ if field.json_type is list:
            return lines(data)
        case _:
            return (data or "").strip() or (None if field.is_removable else "")


def _pem(text: str | None) -> str | None:
    """Return certificates with the line ends that browsers change, or `None` for an empty text."""
    return (text or "").replace("\r\n", "\n").lstrip("\n") if (text or "").strip() else None


def _key_set_text(data: str | None) -> str | None:
    """Return a key set in one format, so that only other keys are a change."""
    if not (data or "").strip():
        return None
    try:
        return json.dumps(client_jwt.as_set(json.loads(data or "")), indent=2)
    except (ValueError, RecursionError):  # the form refuses it
        return data


def _is_key_set(text: str | None) -> bool:
    """Return whether a text is a key set as the page shows it; `None` is none."""
    if text is None:
        return True
    try:
        keys = json.loads(text)
    except (ValueError, RecursionError):
        return False
    is_set = isinstance(keys, dict) and isinstance(keys.get("keys"), list)
    return is_set and all(isinstance(key, dict) for key in keys["keys"])


def _in_order(field: TableField, values: Iterable[str]) -> list[str]:
    """Return values as the boxes of the form have them: another order is no change."""
    chosen = set(values)
    return [choice for choice in field.choices if choice in chosen]


def _shown(field: TableField, value: Any) -> Any:
    match field.kind:
        case Kind.SWITCH:
            return bool(value)
        case Kind.WORDS:
            return " ".join(_in_order(field, value.split()))
        case Kind.CHOICES:
            return _in_order(field, value)
        case Kind.KEY_SET:
            return None if value is None else json.dumps(value, indent=2)
        case Kind.CERTIFICATES:
            return _pem(value)
        case _:
            return value


# The fields of a client that nothing is said about: as the table has them, and as `read` does.
_USUAL = {field.name: field.default for field, _ in _FIELDS}
_NOTHING = {field.name: _shown(field, field.default) for field, _ in _FIELDS}


def client_values(client: Client, names: Container[str] = FIELDS) -> dict[str, Any]:
    """Return the values of a client for the fields of the form that have these names."""
    described = clients.described(client)
    return {
        name: _shown(FIELDS[name], described.get(name, default))
        for name, default in _USUAL.items()
        if name in names
    }


def of_service(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values of the form as services have them."""
    fields = {**values}
    for name in fields:
        if FIELDS[name].kind is Kind.KEY_SET and fields[name] is not None:
            fields[name] = json.loads(fields[name])
        elif FIELDS[name].kind is Kind.SWITCH and FIELDS[name].default is None:
            fields[name] = fields[name] or None
    return fields


def expected_of(client: Client, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page showed as services have it, so that they compare it."""
    described, current = clients.described(client), client_values(client)
    parsed = of_service(values)
    return {
        name: described.get(name) if values[name] == current[name] else parsed[name]
        for name in values
    }


def _methods(client: Client | None) -> Iterable[str]:
    """Return the methods to choose from: a client stays public or confidential."""
    if client is None:
        return *AUTH_METHODS, NO_AUTH_METHOD
    return (NO_AUTH_METHOD,) if client.is_public or client.is_saml else AUTH_METHODS
