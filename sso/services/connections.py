"""Known applications, registered from presets."""

from collections.abc import Mapping
from itertools import count
from typing import Any
from urllib.parse import urlsplit

from sso.audit import Actor
from sso.config.auth_methods import NO_AUTH_METHOD, PRIVATE_KEY_JWT
from sso.config.client_fields import FIELDS
from sso.i18n.message import Message
from sso.models import Client
from sso.presets import installation as installations
from sso.presets import loader
from sso.presets.installation import Credentials, Installation
from sso.presets.schema import Block, Preset, PresetError
from sso.process.program import COMMAND
from sso.services import clients
from sso.store import clients as stored_clients

SECRET_PLACEHOLDER = "PUT_THE_CLIENT_SECRET_HERE"  # noqa: S105 (no secret)


def connect(
    actor: Actor,
    installation: Installation,
    base_url: str,
    fields: Mapping[str, Any],
    *,
    alternative: str | None = None,
) -> tuple[Client, str]:
    """Register a client for an installation, and return it with its secret.

    `fields` add to the preset or replace what it says. Raises `PresetError`, also where `setup`
    would, and `Invalid`.
    """
    wanted = installations.registration(installation, base_url)
    preset = installation.preset
    for name, value in fields.items():
        wanted[name] = [*wanted[name], *value] if _is_added(name) else value
    if preset.registration.require_pkce:
        wanted["require_pkce"] = True
    if error := _method_error(preset, wanted):
        raise PresetError([error])
    wanted.setdefault("client_name", _free_name(installation))
    trial = Credentials(
        "", SECRET_PLACEHOLDER, wanted["client_name"], wanted["scope"],
        wanted["id_token_signed_response_alg"], _service_name(base_url),
    )  # fmt: skip
    installations.setup(installation, trial, base_url, alternative)
    return clients.register(actor, wanted)


def _is_added(name: str) -> bool:
    """Return whether values are added to those of a preset, and do not replace them."""
    return FIELDS[name].json_type is list and FIELDS[name].preset is not None


def same_place(client: Client) -> list[Client]:
    """Other clients for the same installation: somebody may have registered it twice."""
    preset = client.client_metadata["preset"]
    wanted = preset["name"], preset.get("url")
    return [
        other
        for other in stored_clients.every()
        if other.client_id != client.client_id
        and (found := other.client_metadata.get("preset"))
        and (found["name"], found.get("url")) == wanted
    ]


def installation_of(client: Client) -> Installation:
    """The installation that a client was registered for. Raises `PresetError`."""
    kept = client.client_metadata.get("preset")
    if kept is None:
        raise PresetError([
            Message(
                "%(id)s was not registered from a preset",
                id=client.client_id,
                for_commands=f"{client.client_id} was not registered from a preset; see: {COMMAND} "
                "client presets",
            )
        ])  # fmt: skip
    preset = loader.find(kept["name"])
    now = _credential(client.token_endpoint_auth_method)
    configured = _credential(preset.registration.auth_method)
    if now != configured:
        raise PresetError([
            Message(
                "%(id)s no longer fits the preset %(preset)s: it now authenticates with %(now)s, "
                "but the preset's configuration has %(configured)s; configure the application by "
                "hand, see %(page)s for one with a key",
                id=client.client_id,
                preset=preset.name,
                now=now,
                configured=configured,
                page="docs/how-to/high-assurance-clients.md",
            )
        ])  # fmt: skip
    known = {
        name: value for name, value in kept.get("options", {}).items() if name in preset.options
    }
    return installations.install(preset, kept.get("url"), known)


def setup(
    client: Client,
    installation: Installation,
    base_url: str,
    *,
    secret: str = SECRET_PLACEHOLDER,
    alternative: str | None = None,
) -> list[Block]:
    """What the application needs. Raises `PresetError`."""
    credentials = Credentials(
        client.client_id, secret, client.name, client.scope, client.id_token_signed_response_alg,
        _service_name(base_url),
    )  # fmt: skip
    return installations.setup(installation, credentials, base_url, alternative)


def _method_error(preset: Preset, wanted: Mapping[str, Any]) -> str | None:
    """Why the preset's configuration cannot authenticate a client with this metadata."""
    method = wanted["token_endpoint_auth_method"]
    if preset.has_keys:
        if method != PRIVATE_KEY_JWT:
            return f"{preset.title} authenticates with a key; leave --auth-method and --public off"
        if not (wanted.get("jwks") or wanted.get("jwks_uri")):
            return (
                "--jwks FILE or --jwks-uri URL is missing: the application's public keys; "
                f"to make them, see: {COMMAND} client presets {preset.name}"
            )
        return None
    if (method == NO_AUTH_METHOD) != preset.registration.public:
        if preset.registration.public:
            return f"{preset.title} has no secret; leave --auth-method off"
        return f"{preset.title} needs a client secret; leave --public off"
    if wanted.get("profile") or method == PRIVATE_KEY_JWT:
        return (
            f"the configuration of {preset.title} has no keys; leave --preset off, and see "
            "docs/how-to/high-assurance-clients.md"
        )
    return None


def _credential(method: str) -> Message:
    others = {NO_AUTH_METHOD: Message("no secret"), PRIVATE_KEY_JWT: Message("a key")}
    return others.get(method, Message("a secret"))


def _service_name(base_url: str) -> str:
    return urlsplit(base_url).hostname or ""


def _free_name(installation: Installation) -> str:
    """The application's name, with its place if another client has it already."""
    taken = {client.name for client in stored_clients.every()}
    title, place = installation.preset.title, installation.place
    if title not in taken:
        return title
    name = f"{title} ({place})" if place else title
    numbered = (f"{name} {number}" for number in count(2))
    return name if name not in taken else next(one for one in numbered if one not in taken)
