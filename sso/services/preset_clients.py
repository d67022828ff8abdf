"""Connections: register clients for known applications, from presets."""

from collections.abc import Mapping
from itertools import count
from typing import Any
from urllib.parse import urlsplit

from sso.audit import Actor
from sso.config.auth_methods import NO_AUTH_METHOD, PRIVATE_KEY_JWT
from sso.config.client_fields import FIELDS
from sso.extensions import db
from sso.i18n.message import Message
from sso.models import Client, KeyState
from sso.presets import installation as installations
from sso.presets import loader
from sso.presets.installation import Credentials, Installation
from sso.presets.preset_file import Block, Preset, PresetError
from sso.process.program import COMMAND
from sso.saml.provider_metadata import of_public_key
from sso.services import clients
from sso.store import clients as stored_clients
from sso.store import keys as stored_keys

SECRET_PLACEHOLDER = "PUT_THE_CLIENT_SECRET_HERE"  # noqa: S105 (no secret)


def connect(
    actor: Actor,
    installation: Installation,
    base_url: str,
    fields: Mapping[str, Any],
    *,
    alternative: str | None = None,
) -> tuple[Client, str]:
    """Register a client for an installation; return it with its secret.

    `fields` extend or replace the fields of the preset. Raises `PresetError`, also for the errors
    of `setup`, and `Invalid`.
    """
    registration = installations.registration(installation, base_url)
    preset = installation.preset
    for name, value in fields.items():
        registration[name] = [*registration.get(name, ()), *value] if _is_added(name) else value
    if preset.registration.require_pkce:
        registration["require_pkce"] = True
    if error := _method_error(preset, registration):
        raise PresetError([error])
    registration.setdefault("client_name", _free_name(installation))
    trial = Credentials(
        "", SECRET_PLACEHOLDER, registration["client_name"], registration["scope"],
        registration.get("id_token_signed_response_alg", ""), _service_name(base_url),
    )  # fmt: skip
    installations.setup(installation, trial, base_url, alternative)
    return clients.register(actor, registration)


def _is_added(name: str) -> bool:
    """Return whether values of this field are added to the preset's instead of replacing them."""
    return FIELDS[name].json_type is list and FIELDS[name].preset is not None


def same_place(client: Client) -> list[Client]:
    """Return the other clients of the same installation, which may have been registered twice."""
    preset = client.client_metadata["preset"]
    place = preset["name"], preset.get("url")
    return [
        other
        for other in stored_clients.every()
        if other.client_id != client.client_id
        and (preset_of_other := other.client_metadata.get("preset"))
        and (preset_of_other["name"], preset_of_other.get("url")) == place
    ]


def installation_of(client: Client) -> Installation:
    """Return the installation that a client was registered for. Raises `PresetError`."""
    stored = client.client_metadata.get("preset")
    if stored is None:
        raise PresetError([
            Message(
                "%(id)s was not registered from a preset",
                id=client.client_id,
                for_commands=f"{client.client_id} was not registered from a preset; see: {COMMAND} "
                "client presets",
            )
        ])  # fmt: skip
    preset = loader.find(stored["name"])
    method = _credential(client.token_endpoint_auth_method)
    preset_method = _credential(preset.registration.auth_method)
    if method != preset_method:
        raise PresetError([
            Message(
                "%(id)s no longer fits the preset %(preset)s: it now authenticates with %(now)s, "
                "but the preset's configuration has %(configured)s; configure the application by "
                "hand, see %(page)s for one with a key",
                id=client.client_id,
                preset=preset.name,
                now=method,
                configured=preset_method,
                page="docs/how-to/high-assurance-clients.md",
            )
        ])  # fmt: skip
    options = {
        name: value for name, value in stored.get("options", {}).items() if name in preset.options
    }
    return installations.install(preset, stored.get("url"), options)


def setup(
    client: Client,
    installation: Installation,
    base_url: str,
    *,
    secret: str = SECRET_PLACEHOLDER,
    alternative: str | None = None,
) -> list[Block]:
    """Return the configuration of the application, in blocks. Raises `PresetError`."""
    credentials = Credentials(
        client.client_id, secret, client.name, client.scope, client.id_token_signed_response_alg,
        _service_name(base_url), _certificate() if client.is_saml else "",
    )  # fmt: skip
    return installations.setup(installation, credentials, base_url, alternative)


def _method_error(preset: Preset, metadata: Mapping[str, Any]) -> str | None:
    """Return an error if the preset's configuration cannot authenticate such a client."""
    field = FIELDS["token_endpoint_auth_method"]
    method = metadata.get(field.name, preset.registration.auth_method)
    if preset.has_keys:
        if method != PRIVATE_KEY_JWT:
            return f"{preset.title} authenticates with a key; leave {field.flag} and --public off"
        if not (metadata.get("jwks") or metadata.get("jwks_uri")):
            options = " or ".join(FIELDS[name].usage for name in ("jwks", "jwks_uri"))
            return (
                f"{options} is missing: the application's public keys; "
                f"to make them, see: {COMMAND} client presets {preset.name}"
            )
        return None
    if preset.is_saml:
        return None
    if (method == NO_AUTH_METHOD) != preset.registration.public:
        if preset.registration.public:
            return f"{preset.title} has no secret; leave {field.flag} off"
        return f"{preset.title} needs a client secret; leave --public off"
    if metadata.get("profile") or method == PRIVATE_KEY_JWT:
        return (
            f"the configuration of {preset.title} has no keys; leave --preset off, and see "
            "docs/how-to/high-assurance-clients.md"
        )
    return None


def _credential(method: str) -> Message:
    names = {NO_AUTH_METHOD: Message("no secret"), PRIVATE_KEY_JWT: Message("a key")}
    return names.get(method, Message("a secret"))


def _certificate() -> str:
    """Return the certificate that verifies assertions now, as PEM."""
    rows = stored_keys.saml_keys(db.session.connection())
    return next(of_public_key(row.public_jwk) for row in rows if row.state == KeyState.ACTIVE)


def _service_name(base_url: str) -> str:
    return urlsplit(base_url).hostname or ""


def _free_name(installation: Installation) -> str:
    """Return the application's name, with its place or a number if the name is taken."""
    names = {client.name for client in stored_clients.every()}
    title, place = installation.preset.title, installation.place
    if title not in names:
        return title
    name = f"{title} ({place})" if place else title
    numbered = (f"{name} {number}" for number in count(2))
    return (
        name
        if name not in names
        else next(candidate for candidate in numbered if candidate not in names)
    )
