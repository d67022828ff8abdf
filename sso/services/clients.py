"""Clients: register, change, rotate the secret, disable, enable, delete.

Their fields are in `sso.config.client_fields`; services take and return them by name, wherever
they are stored. Programs send and receive them as JSON (RFC 7591 §2).
"""

import secrets
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from sso import audit, clock, context
from sso.audit import Actor
from sso.audit.events import Event
from sso.config.auth_methods import FAPI2, NO_AUTH_METHOD
from sso.config.client_fields import COLUMNS, FIELDS, FIXED, IN_API
from sso.config.fields import Kind, Stored, type_errors
from sso.config.images import Image
from sso.crypto import secrets as crypto_secrets
from sso.extensions import db
from sso.flow import moments, own_claims, resources, role_claims
from sso.i18n.message import Message
from sso.models import Client
from sso.process.program import COMMAND
from sso.services import (
    apis,
    attributes,
    checks,
    ends,
    own_apis,
    provisioning,
    proxied_clients,
    roles,
    saml_checks,
    signing_keys,
    subjects,
)
from sso.services import changes as differences
from sso.services.changes import ListEdit, Outcome
from sso.services.checks import Invalid
from sso.store import (
    client_work,
    clients,
    exchanges,
    named_groups,
    saml,
    secret_hashes,
    service_tokens,
)

# Fields of a new client; metadata without a default is omitted.
DEFAULTS: Mapping[str, Any] = {
    field.name: field.default for field in FIELDS.values() if field.stored is not Stored.APART
}
STAYS = Message("a client stays public or confidential; register another one instead")
LEFT_FOR_WORKER = "Its grants are no longer accepted. The worker is ending them: see `client show`."
_STILL_ENDING = Message(
    "the approvals of the application are still being ended: enable it when that is done"
)
_BEING_DELETED = Message("the application is being deleted")
SECRETLESS = Message("a public client has no secret, and neither has one with private_key_jwt")
_NO_OLD_SECRET = Message("no old secret is valid any more")
_FIXED = {field.name: field.default for field in FIXED}
HIDDEN = "(by reference)"  # replaces secrets in output and in the audit trail


def described(client: Client) -> dict[str, Any]:
    """Return a client's fields, as the audit trail compares them; the logo as its digest."""
    return _fields(client, clients.logo_digest(client.client_id))


def _fields(client: Client, logo: str | None) -> dict[str, Any]:
    metadata = client.client_metadata
    return {
        "client_id": client.client_id,
        **{name: value for name, value in metadata.items() if name not in _FIXED},
        **({"logo": logo} if logo else {}),
        **{field.name: getattr(client, field.name) for field in COLUMNS},
        "disabled": client.disabled_at is not None,
    }


@audit.acting
def register(
    actor: Actor,
    fields: Mapping[str, Any],
    *,
    client_id: str | None = None,
    secret: str | None = None,
    secret_hash: str | None = None,
) -> tuple[Client, str]:
    """Register a client; return it and its secret, which is not stored. Raises `Invalid`.

    With the authentication method "none" the client is public and requires PKCE. With "none" or
    private_key_jwt the secret is "". A secret that the caller passes has to be random, because it
    is stored as a fast digest. `secret_hash`: instead of a secret, the hash that another server
    made of it (`foreign_hashes`); the secret is then "".
    """
    entries = [entry for name in apis.FIELDS_OF_CLIENT for entry in fields.get(name) or ()]
    own_apis.require_operator(actor, entries)
    provisioning.require_may_call(actor, fields.get("scim_url"))
    attributes.hold(any(fields.get(name) for name in attributes.FIELDS_OF_CLIENT))
    subjects.lock_for_client(fields.get("subject_attribute"))
    apis.hold(entries)
    client, secret = _draft(fields, client_id, secret, secret_hash)
    clients.add(client)
    if secret_hash is not None:
        secret_hashes.add(client.client_id, secret_hash)
    clients.keep_origins(client)
    _keep_entity_id(client)
    named_groups.ensure(client.named_groups)
    clients.replace_logo(client.client_id, fields.get("logo"))
    if client.scim_url:
        provisioning.keep(client, ())
    audit.event(Event.CLIENT_CREATED, by=actor.by, client=client.client_id)
    return client, secret


def plan_registration(
    fields: Mapping[str, Any],
    *,
    client_id: str,
    secret: str | None = None,
    secret_hash: str | None = None,
) -> dict[str, Any]:
    """Return the fields of the client that `register` would make. Raises `Invalid`."""
    client, _ = _draft(fields, client_id, secret, secret_hash)
    return _fields(client, _logo_digest(fields, None))


def _logo_digest(fields: Mapping[str, Any], before: str | None) -> str | None:
    """Return the digest of the logo after a change of these fields."""
    logo: Image | None = fields.get("logo")
    if logo is None:
        return before
    return logo.digest if logo.data else None


def _draft(
    fields: Mapping[str, Any], client_id: str | None, secret: str | None, secret_hash: str | None
) -> tuple[Client, str]:
    """Make a client that is not in the database yet; return it and its secret."""
    if not checks.need_secret(fields):
        if secret or secret_hash:
            raise Invalid([SECRETLESS])
    elif secret_hash is None:
        secret = secret or crypto_secrets.make_secret(crypto_secrets.CLIENT_SECRET)
    digest = crypto_secrets.digest(secret) if secret else ""
    if secret_hash is not None:
        digest = crypto_secrets.digest_of_foreign_secret(secret_hash)
    client = Client(
        client_id=client_id or new_client_id(),
        secret_digest=digest,
    )
    clients.set_disabled(client, bool(fields.get("disabled")))
    _edit(client, replacing_registration(fields))
    return client, secret or ""


def draft_agent(client_id: str, fields: Mapping[str, Any], registration: str) -> Client:
    """Make a client that no operator registered, without storing it. Raises `Invalid`."""
    client = Client(client_id=client_id, secret_digest="", registration=registration)
    _edit(client, replacing_registration(fields))
    return client


@audit.acting
def change(
    actor: Actor,
    client_id: str,
    fields: Mapping[str, Any],
    *,
    lists: Mapping[str, ListEdit] | None = None,
    secret: str | None = None,
    secret_hash: str | None = None,
    expected: Mapping[str, Any] | None = None,
) -> tuple[Client, Outcome]:
    """Change these fields; `None` removes metadata. Access that is lost ends at once.

    The logo `NO_IMAGE` removes the logo. `expected`: fields of `described`, as they were shown to
    the operator. Raises `LookupError`, `Invalid` and `Changed`.
    """
    roles.require_reach_client(actor, client_id)
    roles.require_fields_of_managers(actor, {*fields, *(lists or {})})
    edits = [(lists or {}).get(name, ListEdit()) for name in apis.FIELDS_OF_CLIENT]
    entries = [entry for name in apis.FIELDS_OF_CLIENT for entry in fields.get(name) or ()]
    entries += [entry for edit in edits for entry in (*edit.added, *(edit.whole or ()))]
    attributes.hold(
        any(fields.get(name) or name in (lists or {}) for name in attributes.FIELDS_OF_CLIENT)
    )
    subjects.lock_for_client(fields.get("subject_attribute"))
    apis.hold(entries)
    client = _locked(client_id)
    # A service has no people, whose groups count.
    if fields or set(lists or {}) - {"groups", "roles", "own_claims"}:
        own_apis.require_operator(actor, [*client.client_metadata.get("apis", ()), *entries])
    before = described(client)
    differences.require_unchanged(expected, before)
    provisioning.require_may_call(actor, fields.get("scim_url"), client.scim_url)
    changes, notes = _alter(client, before, fields, lists, (secret, secret_hash))
    roles.require_fields_of_managers(actor, changes)
    if "secret" in changes and secret_hash is not None:
        secret_hashes.add(client_id, secret_hash)
    clients.replace_logo(client_id, fields.get("logo"))
    db.session.flush()
    if "disabled" in changes and client.disabled_at:
        notes += _note(_end_access(client_id, client_work.END))
    if "redirect_uris" in changes:
        clients.keep_origins(client)
    if changes.keys() & {"roles", "own_claims"}:
        named_groups.ensure(client.named_groups)
    if "saml_entity_id" in changes:
        _keep_entity_id(client)
    if "groups" in changes:
        named_groups.ensure(client.groups)
        only = f"Only members of {' or '.join(client.groups)} may use it."
        notes.append(only if client.groups else "No group is left: everybody may use it.")
        if client.groups:
            notes += _note(client_work.begin(client_id, client_work.NARROW))
    if "scim_url" in before or "scim_url" in changes:
        provisioning.keep(client, changes, before.get("scim_url"))
    if changes:
        names = " ".join(changes)
        audit.event(
            Event.CLIENT_CHANGED, by=actor.by, client=client_id, what=names, changes=changes
        )
    db.session.flush()
    return client, Outcome(changes, notes)


def plan_change(
    client: Client,
    fields: Mapping[str, Any],
    *,
    secret: str | None = None,
    secret_hash: str | None = None,
) -> differences.Differences:
    """Return the changes that `change` would make. The client is in no session.

    Raises `Invalid`.
    """
    changes, _ = _alter(client, described(client), fields, None, (secret, secret_hash))
    return changes


def _alter(
    client: Client,
    before: Mapping[str, Any],
    fields: Mapping[str, Any],
    lists: Mapping[str, ListEdit] | None,
    new_secret: tuple[str | None, str | None],
) -> tuple[differences.Differences, list[str]]:
    """Edit the object without its other rows; return the changes, and notes for the operator.

    `new_secret`: the secret, or the hash that another server made of it.
    """
    secret, secret_hash = new_secret
    edits, notes = {**checks.implied(fields, before), **fields}, []
    for name, edit in (lists or {}).items():
        current = before.get(name, [])
        if FIELDS[name].kind is Kind.APIS:
            edits[name] = apis.edited_entries(current, edit)
            continue
        if FIELDS[name].kind is Kind.ROLES:
            edits[name] = differences.edited_roles(current, edit)
            continue
        if FIELDS[name].kind is Kind.CLAIMS:
            edits[name] = differences.edited_claims(current, edit)
            continue
        values = current.split() if isinstance(current, str) else current
        edited = edit.applied_to(values)
        edits[name] = " ".join(edited) if FIELDS[name].kind is Kind.WORDS else edited
        notes += [f"{name}: {note}" for note in edit.without_effect(values)]
    had_secret = client.has_secret
    _edit(client, edits)
    if had_secret and not client.has_secret:
        clients.set_secret(client, "", None)
        notes.append("Its secret is deleted.")
    elif client.has_secret and not had_secret and new_secret == (None, None):
        command = f"{COMMAND} client rotate-secret {client.client_id}"
        notes.append(f"It needs a secret: {command}")
    disabled = fields.get("disabled", before["disabled"])
    if disabled != before["disabled"]:
        if not disabled:
            _require_ended(client.client_id)
        clients.set_disabled(client, disabled)
    elif fields.get("disabled"):
        client.disabled_within_limits = False  # only managers of all applications change fields so
    after = _fields(client, _logo_digest(fields, before.get("logo")))
    changes = differences.between(before, after)
    notes += checks.profile_notes(before, after)
    if new_secret != (None, None) and not client.has_secret:
        raise Invalid([SECRETLESS])
    digest = crypto_secrets.digest_of_foreign_secret(secret_hash) if secret_hash else None
    if digest and digest != client.secret_digest:
        clients.set_secret(client, digest, None)
        changes["secret"] = differences.of_field("secret", HIDDEN, HIDDEN)
    if secret is not None and not crypto_secrets.matches(secret, client.secret_digest):
        clients.set_secret(client, crypto_secrets.digest(secret), None)
        changes["secret"] = differences.of_field("secret", HIDDEN, HIDDEN)
    return changes, notes


@audit.acting
def rotate_secret(
    actor: Actor, client_id: str, keep_old: timedelta | None = None, ends_at: str = ""
) -> tuple[Client, str]:
    """Give a client a new secret; return it. The old one stays valid for `keep_old`, if given.

    `ends_at`: when the new one ends. Raises `LookupError` and `Invalid`.
    """
    roles.require_reach_client(actor, client_id)
    client = _locked(client_id)
    own_apis.require_operator(actor, client.client_metadata.get("apis", ()))
    if not client.has_secret:
        raise Invalid([SECRETLESS])
    secret = crypto_secrets.make_secret(crypto_secrets.CLIENT_SECRET)
    end = ends.read(ends_at)
    until = clock.now() + keep_old if keep_old else None
    clients.replace_secret(client, crypto_secrets.digest(secret), until)
    clients.set_secret_end(client, end)
    db.session.flush()
    old_until = client.previous_secret_expires_at
    audit.event(Event.CLIENT_SECRET_ROTATED, client=client_id, old_until=old_until, until=end)
    return client, secret


@audit.acting
def limit_secret(actor: Actor, client_id: str, ends_at: str) -> Client:
    """Set when the secret of a client ends; "" removes the end. Raises `LookupError`, `Invalid`."""
    roles.require_reach_client(actor, client_id)
    client = _locked(client_id)
    own_apis.require_operator(actor, client.client_metadata.get("apis", ()))
    if not client.has_secret:
        raise Invalid([SECRETLESS])
    before = client.secret_expires_at
    end = ends.read(ends_at, before)
    if end != before:
        clients.set_secret_end(client, end)
        db.session.flush()
        change = differences.of_field(
            "secret_ends_at", moments.text_of(before), moments.text_of(end)
        )
        audit.event(
            Event.CLIENT_CHANGED,
            client=client_id,
            what="secret_ends_at",
            changes={"secret_ends_at": change},
        )
    return client


@audit.acting
def end_old_secret(actor: Actor, client_id: str) -> Client:
    """End the secret before the last rotation, which was kept. Raises `LookupError`, `Invalid`."""
    roles.require_reach_client(actor, client_id)
    client = _locked(client_id)
    if client.old_secret_ends_at is None:
        raise Invalid([_NO_OLD_SECRET])
    clients.end_old_secret(client)
    audit.event(Event.CLIENT_OLD_SECRET_ENDED, client=client_id)
    return client


@audit.acting
def disable(actor: Actor, client_id: str) -> Client:
    """Disable a client; its grants and tokens end. Raises `LookupError` and `Invalid`.

    No request accepts them from now on. Those that are many are ended by the worker.
    """
    roles.require_reach_client(actor, client_id)
    client = _locked(client_id)
    clients.set_disabled(client, True, within_limits=roles.is_limited(actor))
    db.session.flush()
    _end_access(client_id, client_work.END)
    audit.event(Event.CLIENT_DISABLED, client=client_id)
    return client


def lock_all(client_ids: Iterable[str]) -> None:
    """Lock clients that are changed one after the other in this transaction.

    Each change locks grants, and everybody locks those after clients.
    """
    for client_id in sorted(client_ids):
        clients.lock(client_id)


@audit.acting
def enable(actor: Actor, client_id: str) -> Client:
    """Enable a client again; its ended grants stay ended. Raises `LookupError` and `Invalid`."""
    roles.require_reach_client(actor, client_id)
    client = _locked(client_id)
    own_apis.require_operator(actor, client.client_metadata.get("apis", ()))
    _require_ended(client_id)
    roles.require_may_enable(actor, client)
    clients.set_disabled(client, False)
    audit.event(Event.CLIENT_ENABLED, client=client_id)
    return client


@audit.acting
def delete(actor: Actor, client_id: str) -> None:
    """Delete a client with its grants, tokens and consents. Raises `LookupError` and `Invalid`.

    If it has many grants, it is disabled, and the worker deletes them and it.
    """
    client = clients.lock_to_remove(client_id)
    if client is None:
        raise LookupError(client_id)
    _require_remaining(client_id)
    clients.set_disabled(client, True)
    db.session.flush()
    if _end_access(client_id, client_work.DELETE):
        clients.remove(client)
    audit.event(Event.CLIENT_DELETED, by=actor.by, client=client_id)


def _keep_entity_id(client: Client) -> None:
    """Store the entity ID by which requests name the client. Raises `Invalid` if it is taken."""
    if not client.is_saml:
        return
    if not saml.keep_entity_id(client):
        raise Invalid(
            [
                Message(
                    "another application has the entity ID %(entity_id)s",
                    entity_id=str(client.entity_id),
                    code=checks.Rule.ALREADY_EXISTS,
                )
            ]
        )
    signing_keys.ensure_saml(context.settings().secret_keys)


def _end_access(client_id: str, kind: str) -> bool:
    """End the grants of a client, and the tokens that it got for itself or by exchange.

    Returns False if some of the grants are left for the worker.
    """
    is_finished = client_work.begin(client_id, kind)
    service_tokens.end_of_client(client_id)
    exchanges.end_of_client(client_id)
    return is_finished


def _note(is_finished: bool) -> list[str]:
    return [] if is_finished else [LEFT_FOR_WORKER]


def _require_ended(client_id: str) -> None:
    """Require that no grant has still to be ended: it would be good again. Raises `Invalid`."""
    if client_work.END in client_work.kinds_of(client_id):
        raise Invalid([_STILL_ENDING])


def _require_remaining(client_id: str) -> None:
    """Raise `Invalid` if the client is being deleted."""
    if client_work.DELETE in client_work.kinds_of(client_id):
        raise Invalid([_BEING_DELETED])


def _locked(client_id: str) -> Client:
    """Lock a client: other changes wait, and no codes are issued.

    Raises `LookupError`, and `Invalid` if it is being deleted.
    """
    client = clients.lock(client_id)
    if client is None:
        raise LookupError(client_id)
    _require_remaining(client_id)
    return client


def _edit(client: Client, changes: Mapping[str, Any]) -> None:
    """Check and set metadata and columns; leave the rest to the caller. Raises `Invalid`."""
    before = client.client_metadata
    merged = {**before, **checks.without_other_keys(changes), **_stored(Stored.METADATA, changes)}
    metadata = {name: _tidy(name, value) for name, value in merged.items() if value is not None}
    metadata |= proxied_clients.of_proxy(metadata)
    metadata |= saml_checks.as_saml(metadata)
    if "saml_entity_id" not in metadata:  # empty lists say nothing
        metadata = {
            name: value for name, value in metadata.items() if value or not name.startswith("saml_")
        }
    metadata["response_types"] = ["code"] if checks.uses_browser(metadata) else []
    errors = checks.metadata_errors(metadata, before)
    errors += proxied_clients.proxy_errors(metadata, before)
    earlier = [entry for name in apis.FIELDS_OF_CLIENT for entry in before.get(name, ())]
    errors += apis.client_errors(metadata, earlier)
    is_saml = "saml_entity_id" in metadata
    of_claims, earlier = (of.get("own_claims", []) for of in (metadata, before))
    errors += attributes.client_errors(of_claims, earlier, has_assertions=is_saml)
    errors += attributes.subject_errors(metadata, before)
    errors += provisioning.client_errors(metadata, before)
    if before and is_saml != client.is_saml:
        errors.append(Message("a client speaks SAML or not; register another one instead"))
    is_public = not is_saml and metadata["token_endpoint_auth_method"] == NO_AUTH_METHOD
    if before and is_public != client.is_public:
        errors.append(STAYS)
    if is_public and not changes.get("require_pkce", True):
        errors.append(Message("a public client always requires PKCE"))
    if metadata.get("profile") == FAPI2 and not changes.get("require_pkce", client.require_pkce):
        errors.append(checks.profile_requires(FIELDS["require_pkce"].term))
    first_party = changes.get("first_party", client.first_party)
    if error := checks.asks_nobody(metadata["grant_types"], bool(first_party)):
        errors.append(error)
    if errors:
        raise Invalid(errors)
    client.set_client_metadata(metadata)
    for name, value in _stored(Stored.COLUMN, changes).items():
        setattr(client, name, value)


def _stored(where: Stored, fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if FIELDS[name].stored is where}


def _tidy(name: str, value: Any) -> Any:
    if name in FIELDS and FIELDS[name].kind is Kind.APIS:
        return apis.tidy_entries(value)
    if name in FIELDS and FIELDS[name].kind is Kind.ROLES:
        return role_claims.tidy(value)
    if name in FIELDS and FIELDS[name].kind is Kind.CLAIMS:
        return own_claims.tidy(value)
    if name == "default_api":
        return resources.normalized(value)
    if name in FIELDS and FIELDS[name].kind is Kind.WORDS:
        return " ".join(dict.fromkeys(str(value).split()))
    return list(dict.fromkeys(value)) if isinstance(value, list | tuple) else value


def new_client_id() -> str:
    """Return a random identifier without a leading dash, which commands would read as an option."""
    while (client_id := secrets.token_urlsafe(16)).startswith("-"):
        pass
    return client_id


def parsed_registration(body: Any) -> dict[str, Any]:
    """Return the fields of a request body, after checking their types. Raises `Invalid`.

    Unknown fields are ignored (RFC 7591 §2).
    """
    if not isinstance(body, dict):
        raise Invalid(["the body is no JSON object"])
    values = {name: value for name, value in body.items() if value is not None}
    fields = {field.name: values[field.name] for field in IN_API if field.name in values}
    errors = type_errors(FIELDS, fields)
    errors += [
        f"{name} is always {', '.join(default)}"
        for name, default in _FIXED.items()
        if name in values and not _is_part_of(values[name], default)
    ]
    if errors:
        raise Invalid(errors)
    return fields


def replacing_registration(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return all fields of a registration that replaces an existing one.

    Omitted fields get their defaults, except `disabled` (RFC 7592 §2.2).
    """
    is_public = fields.get("token_endpoint_auth_method") == NO_AUTH_METHOD
    is_public = is_public and not fields.get("saml_entity_id")
    implied = checks.implied(fields, {})
    return {**DEFAULTS, "require_pkce": is_public, **implied, **fields}


def issued(client: Client, secret: str) -> dict[str, Any]:
    """Return a new secret of a client and its end, of which 0 is never (RFC 7591 §3.2.1)."""
    end = client.secret_expires_at
    expires_at = clock.timestamp(end) if end else 0
    return {"client_secret": secret, "client_secret_expires_at": expires_at}


def registration_document(client: Client) -> dict[str, Any]:
    """Return a registration without its secret (RFC 7591 §3.2.1)."""
    fields = {name: value for name, value in described(client).items() if name != "logo"}
    issued_at = int(client.created_at.timestamp())
    fixed = {name: client.client_metadata[name] for name in _FIXED}
    return {**fields, **fixed, "client_id_issued_at": issued_at}


def _is_part_of(value: Any, default: list[str]) -> bool:
    return isinstance(value, list) and all(item in default for item in value)
