"""Clients: registered, changed, given a new secret, disabled, deleted. Metadata is RFC 7591's.

For programs, the metadata is JSON (RFC 7591 §2): read, checked by type, and written.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sso import audit, clock
from sso.audit import Actor
from sso.audit.events import Event
from sso.config.auth_methods import FAPI2, NO_AUTH_METHOD
from sso.config.images import Image
from sso.crypto import secrets as crypto_secrets
from sso.extensions import db
from sso.flow.scopes import DEFAULT_SCOPE
from sso.i18n.message import Message
from sso.models import Client
from sso.process.program import COMMAND
from sso.services import changes as differences
from sso.services import checks, revocation
from sso.services.changes import ListEdit, Outcome
from sso.services.checks import Invalid
from sso.store import clients, grants, named_groups

# Metadata that nobody chooses.
FIXED: Mapping[str, Any] = {
    "grant_types": ["authorization_code", "refresh_token"],
    "response_types": ["code"],
}
DEFAULTS: Mapping[str, Any] = {
    "client_name": "",
    "redirect_uris": [],
    "post_logout_redirect_uris": [],
    "backchannel_logout_uri": None,
    "home_url": None,
    "scope": DEFAULT_SCOPE,
    "token_endpoint_auth_method": "any",
    **FIXED,
    "id_token_signed_response_alg": "RS256",
    "id_token_claims": "standard",
    "groups": [],
}
STAYS = Message("a client stays public or confidential; register another one instead")
_SECRETLESS = Message("a public client has no secret, and neither has one with private_key_jwt")
SWITCHES = ("first_party", "require_pkce", "require_mfa")
HIDDEN = "(by reference)"  # stands for secrets in what is shown and recorded


def described(client: Client) -> dict[str, Any]:
    """A client's fields, as the audit trail compares them; of its logo, the digest."""
    return _fields(client, clients.logo_digest(client.client_id))


def _fields(client: Client, logo: str | None) -> dict[str, Any]:
    metadata = {k: v for k, v in client.client_metadata.items() if k not in FIXED}
    return {
        "client_id": client.client_id,
        **metadata,
        **({"logo": logo} if logo else {}),
        **{name: getattr(client, name) for name in SWITCHES},
        "disabled": client.disabled_at is not None,
    }


@audit.acting
def register(
    actor: Actor,
    metadata: Mapping[str, Any],
    *,
    client_id: str | None = None,
    secret: str | None = None,
    disabled: bool = False,
    switches: Mapping[str, bool] | None = None,
    logo: Image | None = None,
) -> tuple[Client, str]:
    """A new client and its secret, which is stored nowhere. Raises `Invalid`.

    With the authentication method "none" the client is public, and requires PKCE. With that or
    private_key_jwt the secret is "". `switches`: see `SWITCHES`. A secret that is given has to be
    random: its digest is a fast one.
    """
    client, secret = _draft(metadata, client_id, secret, disabled, switches)
    clients.add(client)
    clients.keep_origins(client)
    named_groups.ensure(client.groups)
    clients.replace_logo(client.client_id, logo)
    audit.event(Event.CLIENT_CREATED, by=actor.by, client=client.client_id)
    return client, secret


def plan_registration(
    metadata: Mapping[str, Any],
    *,
    client_id: str,
    secret: str | None = None,
    disabled: bool = False,
    switches: Mapping[str, bool] | None = None,
    logo: Image | None = None,
) -> dict[str, Any]:
    """Return the fields of the client that `register` would make. Raises `Invalid`."""
    client, _ = _draft(metadata, client_id, secret, disabled, switches)
    return _fields(client, _digest(logo, None))


def _digest(logo: Image | None, before: str | None) -> str | None:
    """Return the digest of a client's logo after the change."""
    if logo is None:
        return before
    return logo.digest if logo.data else None


def _draft(
    metadata: Mapping[str, Any],
    client_id: str | None,
    secret: str | None,
    disabled: bool,
    switches: Mapping[str, bool] | None,
) -> tuple[Client, str]:
    """Make a client that is not in the database yet; return it and its secret."""
    implied, more = checks.implied_by_profile(metadata, {})
    is_public = metadata.get("token_endpoint_auth_method") == NO_AUTH_METHOD
    if checks.need_secret(metadata):
        secret = secret or crypto_secrets.make_secret(crypto_secrets.CLIENT_SECRET)
    elif secret:
        raise Invalid([_SECRETLESS])
    client = Client(
        client_id=client_id or _client_id(),
        secret_digest=crypto_secrets.digest(secret) if secret else "",
        disabled_at=clock.now() if disabled else None,
    )
    off = dict.fromkeys(SWITCHES, False)
    wanted = {**DEFAULTS, **implied, **metadata}
    _edit(client, wanted, {**off, "require_pkce": is_public, **more, **(switches or {})})
    return client, secret or ""


@audit.acting
def change(
    actor: Actor,
    client_id: str,
    metadata: Mapping[str, Any],
    *,
    lists: Mapping[str, ListEdit] | None = None,
    disabled: bool | None = None,
    secret: str | None = None,
    switches: Mapping[str, bool] | None = None,
    logo: Image | None = None,
    seen: Mapping[str, Any] | None = None,
) -> tuple[Client, Outcome]:
    """Change what is given; `None` removes metadata. What it takes away ends at once.

    `secret` and `logo` replace others; `NO_IMAGE` removes the logo. `seen`: fields of `described`
    as the operator saw them. Raises `LookupError`, `Invalid` and `Changed`.
    """
    client = _locked(client_id)
    before = described(client)
    differences.require_unchanged(seen, before)
    changes, notes = _alter(client, before, metadata, lists, disabled, secret, switches, logo)
    clients.replace_logo(client_id, logo)
    db.session.flush()
    if "disabled" in changes and disabled:
        grants.end_of_client(client_id, "client_disabled")
    if "redirect_uris" in changes:
        clients.keep_origins(client)
    if "groups" in changes:
        named_groups.ensure(client.groups)
        only = f"Only members of {' or '.join(client.groups)} may use it."
        notes.append(only if client.groups else "No group is left: everybody may use it.")
        revocation.end_lost_access(grants.users_not_admitted(client), [client])
    if changes:
        what = " ".join(changes)
        audit.event(Event.CLIENT_CHANGED, by=actor.by, client=client_id, what=what, changes=changes)
    db.session.flush()
    return client, Outcome(changes, notes)


def plan_change(
    client: Client,
    metadata: Mapping[str, Any],
    *,
    disabled: bool | None = None,
    secret: str | None = None,
    switches: Mapping[str, bool] | None = None,
    logo: Image | None = None,
) -> differences.Differences:
    """Return the changes that `change` would make. The client is in no session.

    Raises `Invalid`.
    """
    before = described(client)
    changes, _ = _alter(client, before, metadata, None, disabled, secret, switches, logo)
    return changes


def _alter(
    client: Client,
    before: Mapping[str, Any],
    metadata: Mapping[str, Any],
    lists: Mapping[str, ListEdit] | None,
    disabled: bool | None,
    secret: str | None,
    switches: Mapping[str, bool] | None,
    logo: Image | None,
) -> tuple[differences.Differences, list[str]]:
    """Change only the object; return the changes, and notes for the operator."""
    implied, more = checks.implied_by_profile(metadata, before)
    wanted, notes = {**implied, **metadata}, []
    for name, edit in (lists or {}).items():
        current = before.get(name, [])
        listed = current.split() if isinstance(current, str) else current
        edited = edit.applied_to(listed)
        wanted[name] = " ".join(edited) if name == "scope" else edited
        notes += [f"{name}: {one}" for one in edit.without_effect(listed)]
    had_secret = client.has_secret
    _edit(client, wanted, {**more, **(switches or {})})
    if had_secret and not client.has_secret:
        clients.set_secret(client, "", None)
        notes.append("Its secret is deleted.")
    elif client.has_secret and not had_secret and secret is None:
        command = f"{COMMAND} client rotate-secret {client.client_id}"
        notes.append(f"It needs a secret: {command}")
    if disabled is not None and disabled != before["disabled"]:
        client.disabled_at = clock.now() if disabled else None
    after = _fields(client, _digest(logo, before.get("logo")))
    changes = differences.between(before, after)
    notes += checks.profile_notes(before, after)
    if secret is not None and not client.has_secret:
        raise Invalid([_SECRETLESS])
    if secret is not None and not crypto_secrets.matches(secret, client.secret_digest):
        clients.set_secret(client, crypto_secrets.digest(secret), None)
        changes["secret"] = differences.of_field("secret", HIDDEN, HIDDEN)
    return changes, notes


@audit.acting
def rotate_secret(
    actor: Actor, client_id: str, keep_old: timedelta | None = None
) -> tuple[Client, str]:
    """A new secret; the old one goes on for a while, or stops at once.

    Raises `LookupError` and `Invalid`.
    """
    client = _locked(client_id)
    if not client.has_secret:
        raise Invalid([_SECRETLESS])
    secret = crypto_secrets.make_secret(crypto_secrets.CLIENT_SECRET)
    until = clock.now() + keep_old if keep_old else None
    clients.replace_secret(client, crypto_secrets.digest(secret), until)
    audit.event(Event.CLIENT_SECRET_ROTATED, client=client_id, old_until=until)
    return client, secret


@audit.acting
def disable(actor: Actor, client_id: str) -> Client:
    """Lock a client out at once: its grants end. Raises `LookupError`."""
    client = _locked(client_id)
    client.disabled_at = client.disabled_at or clock.now()
    grants.end_of_client(client_id, "client_disabled")
    audit.event(Event.CLIENT_DISABLED, client=client_id)
    return client


@audit.acting
def enable(actor: Actor, client_id: str) -> Client:
    """Let a client in again; what was ended stays ended. Raises `LookupError`."""
    client = _locked(client_id)
    client.disabled_at = None
    audit.event(Event.CLIENT_ENABLED, client=client_id)
    return client


@audit.acting
def delete(actor: Actor, client_id: str) -> None:
    """Delete a client with its grants, tokens and consents. Raises `LookupError`."""
    client = clients.lock_to_remove(client_id)
    if client is None:
        raise LookupError(client_id)
    grants.end_of_client(client_id, "client_deleted")
    clients.remove(client)
    audit.event(Event.CLIENT_DELETED, by=actor.by, client=client_id)


def _locked(client_id: str) -> Client:
    """Changes wait for each other, and no codes are issued meanwhile."""
    client = clients.lock(client_id)
    if client is None:
        raise LookupError(client_id)
    return client


def _edit(client: Client, changes: Mapping[str, Any], switches: Mapping[str, bool]) -> None:
    before = client.client_metadata
    wanted = {**before, **checks.without_other_keys(changes), **changes}
    metadata = {name: _tidy(name, value) for name, value in wanted.items() if value is not None}
    errors = checks.metadata_errors(metadata, before.get("groups", ()))
    is_public = metadata["token_endpoint_auth_method"] == NO_AUTH_METHOD
    if before and is_public != client.is_public:
        errors.append(STAYS)
    if is_public and not switches.get("require_pkce", True):
        errors.append(Message("a public client always requires PKCE"))
    if metadata.get("profile") == FAPI2 and not switches.get("require_pkce", client.require_pkce):
        pkce = Message("Refuse requests without PKCE", for_commands="--require-pkce")
        errors.append(checks.profile_requires(pkce))
    if errors:
        raise Invalid(errors)
    client.set_client_metadata(metadata)
    for name, value in switches.items():
        setattr(client, name, value)


def _tidy(name: str, value: Any) -> Any:
    if name == "scope":
        return " ".join(dict.fromkeys(str(value).split()))
    return list(dict.fromkeys(value)) if isinstance(value, list | tuple) else value


def _client_id() -> str:
    """A random identifier; one that begins with a dash would look like an option to commands."""
    while (client_id := secrets.token_urlsafe(16)).startswith("-"):
        pass
    return client_id


# RFC 7591 names where there are such; what they have to be.
METADATA: Mapping[str, type] = {
    "client_name": str,
    "redirect_uris": list,
    "post_logout_redirect_uris": list,
    "backchannel_logout_uri": str,
    "home_url": str,
    "scope": str,
    "token_endpoint_auth_method": str,
    "id_token_signed_response_alg": str,
    "id_token_claims": str,
    "groups": list,
    "preset": dict,
    "profile": str,
    "jwks": dict,
    "jwks_uri": str,
    "token_endpoint_auth_signing_alg": str,
    "request_object_signing_alg": str,
    "authorization_signed_response_alg": str,
    "require_pushed_authorization_requests": bool,
    "dpop_bound_access_tokens": bool,
    "require_dpop_nonce": bool,
}
TYPED_SWITCHES: Mapping[str, type] = {**dict.fromkeys(SWITCHES, bool), "disabled": bool}
_WORDS = {str: "a text", bool: "true or false", list: "a list of texts", dict: "an object"}


@dataclass(frozen=True)
class WantedRegistration:
    """What a program asks for, as the arguments of `clients.register` and `clients.change`."""

    metadata: Mapping[str, Any]
    switches: Mapping[str, bool]
    disabled: bool | None


def parsed_registration(body: Any) -> WantedRegistration:
    """What is known of a body, with the right types. Raises `Invalid`.

    What is not known is ignored, as RFC 7591 §2 asks.
    """
    if not isinstance(body, dict):
        raise Invalid(["the body is no JSON object"])
    given = {name: value for name, value in body.items() if value is not None}
    errors = [
        f"{name} is not {_WORDS[kind]}"
        for name, kind in {**METADATA, **TYPED_SWITCHES}.items()
        if name in given and not _fits(given[name], kind)
    ]
    errors += [
        f"{name} is always {', '.join(value)}"
        for name, value in FIXED.items()
        if name in given and (not _fits(given[name], list) or set(given[name]) - set(value))
    ]
    if errors:
        raise Invalid(errors)
    return WantedRegistration(
        {name: given[name] for name in METADATA if name in given},
        {name: given[name] for name in SWITCHES if name in given},
        given.get("disabled"),
    )


def replacing_registration(wanted: WantedRegistration) -> WantedRegistration:
    """The same for the whole registration: what is left out is as in a new one (RFC 7592 §2.2)."""
    method = wanted.metadata.get("token_endpoint_auth_method")
    off = {**dict.fromkeys(SWITCHES, False), "require_pkce": method == "none"}
    if wanted.metadata.get("profile"):
        off["require_pkce"] = True
    blank = {**dict.fromkeys(METADATA), **DEFAULTS}
    return WantedRegistration(
        {**blank, **wanted.metadata}, {**off, **wanted.switches}, wanted.disabled
    )


def registration_document(client: Client) -> dict[str, Any]:
    """A registration without its secret (RFC 7591 §3.2.1)."""
    shown = {name: value for name, value in described(client).items() if name != "logo"}
    issued_at = int(client.created_at.timestamp())
    return {**shown, **FIXED, "client_id_issued_at": issued_at}


def _fits(value: Any, kind: type) -> bool:
    if kind is list:
        return isinstance(value, list) and all(isinstance(one, str) for one in value)
    return isinstance(value, kind)
