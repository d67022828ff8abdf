"""Register, change, disable and delete APIs, and give them credentials.

An API is a resource server: the audience of access tokens (RFC 8707, RFC 9068). A change also
changes the clients that are registered for it, so that it takes effect with their next request.

`sso.config.api_fields` has their fields; services take and return them by name.
"""

import secrets
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from sqlalchemy.exc import IntegrityError

from sso import audit, context
from sso.audit import Actor
from sso.audit.events import Event
from sso.config.api_fields import FIELDS
from sso.config.fields import Kind
from sso.crypto import secrets as crypto_secrets
from sso.extensions import db
from sso.flow import resources, role_claims
from sso.flow.resources import Described
from sso.flow.scopes import SCOPES
from sso.i18n.languages import LANGUAGES
from sso.i18n.message import Message
from sso.models import Api, Client
from sso.models.apis import ID_PREFIX
from sso.models.clients import api_entry
from sso.services import api_values, checks, own_apis
from sso.services import changes as differences
from sso.services.changes import ListEdit, Outcome
from sso.services.checks import Invalid, Rule
from sso.store import apis, grants, named_groups

MOST = 500  # APIs
MOST_SCOPES = 100  # of an API
MOST_OF_CLIENT = 50  # APIs
LONGEST_LIFETIME = 86_400  # seconds: an API without introspection does not see revocation
MAX_SCOPE_NAME, MAX_DESCRIPTION = 64, 200  # characters
FIELDS_OF_CLIENT = ("apis", "exchange_from")  # those that list APIs
HIDDEN = "(by reference)"  # stands for secrets in what is shown and recorded
_SECRETLESS = Message("an API without introspection has no secret")
_NAME_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_:/")
# What a file declares, while it is compared with the database.
_declared: ContextVar[Mapping[str, Mapping[str, str]] | None] = ContextVar("declared", default=None)


def described(api: Api) -> dict[str, Any]:
    """Return the fields of an API, as the audit trail compares them."""
    return {"api_id": api.api_id, **{name: getattr(api, name) for name in FIELDS}}


@audit.acting
def register(
    actor: Actor, fields: Mapping[str, Any], *, secret: str | None = None
) -> tuple[Api, str]:
    """Register an API; return it and its secret, which is not stored. Raises `Invalid`.

    Without `introspection` the secret is "". A `secret` from the caller has to be random, because
    it is stored by a fast digest.
    """
    api, secret = _draft(fields, secret)
    try:
        apis.add(api)
    except IntegrityError:  # another process was quicker
        db.session.rollback()
        raise Invalid([_taken(api.identifier)]) from None
    # Clients and approvals of an earlier API with the identifier do not count for this one.
    _drop_entries(api)
    if apis.take_former(api.identifier):
        grants.forget_api(api.identifier)  # reads all consents
    named_groups.ensure(api.named_groups)
    audit.event(Event.API_CREATED, by=actor.by, api=api.identifier)
    return api, secret


def plan_registration(fields: Mapping[str, Any], *, secret: str | None = None) -> dict[str, Any]:
    """Return the fields of the API that `register` would make. Raises `Invalid`."""
    api, _ = _draft(fields, secret)
    return {name: value for name, value in described(api).items() if name != "api_id"}


def _draft(fields: Mapping[str, Any], secret: str | None) -> tuple[Api, str]:
    """Make an API without storing it; return it and its secret."""
    api = Api(
        api_id=ID_PREFIX + secrets.token_urlsafe(16),
        scopes={},
        translations={},
        groups=[],
        roles=[],
    )
    required = {field.name: field.default for field in FIELDS.values() if field.is_required}
    errors = _edit(api, {**required, **api_values.DEFAULTS, **fields})
    if len(apis.every()) >= MOST:
        errors.append(Message("there are %(most)d APIs already; delete one first", most=MOST))
    elif not errors and apis.find(api.identifier):
        errors.append(_taken(api.identifier))
    if secret and not fields.get("introspection"):
        errors.append(_SECRETLESS)
    if errors:
        raise Invalid(errors)
    return api, _set_secret(api, bool(fields.get("introspection")), secret)


@audit.acting
def change(
    actor: Actor,
    api_id: str,
    fields: Mapping[str, Any],
    *,
    lists: Mapping[str, ListEdit] | None = None,
    secret: str | None = None,
    seen: Mapping[str, Any] | None = None,
) -> tuple[Api, Outcome, str]:
    """Change these fields; return the API, the outcome, and a secret if it got a new one.

    The identifier stays. Tokens that were issued before keep what they have until they expire;
    refresh and introspection follow the change. `seen`: fields of `described` as the operator saw
    them. Raises `LookupError`, `Invalid` and `Changed`.
    """
    api = _locked(api_id)
    before = described(api)
    differences.require_unchanged(seen, before)
    changes, notes, new_secret = _alter(api, before, fields, lists, secret)
    if new_secret and before["introspection"]:
        audit.event(Event.API_SECRET_ROTATED, by=actor.by, api=api.identifier)
    if changes:
        _touch_clients(api)
        named_groups.ensure(api.named_groups)
        what = " ".join(changes)
        audit.event(Event.API_CHANGED, by=actor.by, api=api.identifier, what=what, changes=changes)
    db.session.flush()
    return api, Outcome(changes, notes), new_secret


def plan_change(
    api: Api, fields: Mapping[str, Any], *, secret: str | None = None
) -> differences.Differences:
    """Return the changes that `change` would make. The API is in no session. Raises `Invalid`."""
    changes, _, _ = _alter(api, described(api), fields, None, secret)
    return changes


def _alter(
    api: Api,
    before: Mapping[str, Any],
    fields: Mapping[str, Any],
    lists: Mapping[str, ListEdit] | None,
    secret: str | None,
) -> tuple[differences.Differences, list[str], str]:
    """Change only the object; return the changes, notes for the operator, and a new secret."""
    edits, notes = {**fields}, []
    for name, edit in (lists or {}).items():
        current = edits.get(name, before[name])
        edits[name] = api_values.edited(name, current, edit)
        notes += [f"{name}: {note}" for note in api_values.without_effect(name, current, edit)]
    if errors := _edit(api, edits):
        raise Invalid(errors)
    has_secret = bool(edits.get("introspection", before["introspection"]))
    if secret and not has_secret:
        raise Invalid([_SECRETLESS])
    is_another = bool(secret) and not crypto_secrets.matches(secret or "", api.secret_digest or "")
    new_secret = ""
    if is_another or has_secret != before["introspection"]:
        new_secret = _set_secret(api, has_secret, secret)
    changes = differences.between(before, described(api))
    if is_another and before["introspection"]:
        changes["secret"] = differences.of_field("secret", HIDDEN, HIDDEN)
    return changes, [*notes, *_notes(api, changes)], new_secret


@audit.acting
def rotate_secret(actor: Actor, api_id: str) -> tuple[Api, str]:
    """Give an API a new secret for introspection in place of the old one. Raises `LookupError`."""
    api = _locked(api_id)
    secret = _set_secret(api, True, None)
    db.session.flush()
    audit.event(Event.API_SECRET_ROTATED, by=actor.by, api=api.identifier)
    return api, secret


@audit.acting
def disable(actor: Actor, api_id: str) -> Api:
    """Disable an API: it gets no new tokens, and its tokens are inactive. Raises `LookupError`."""
    api = _locked(api_id)
    apis.set_disabled(api, True)
    _touch_clients(api)
    db.session.flush()
    audit.event(Event.API_DISABLED, by=actor.by, api=api.identifier)
    return api


@audit.acting
def enable(actor: Actor, api_id: str) -> Api:
    """Enable an API again. Raises `LookupError`."""
    api = _locked(api_id)
    apis.set_disabled(api, False)
    _touch_clients(api)
    db.session.flush()
    audit.event(Event.API_ENABLED, by=actor.by, api=api.identifier)
    return api


@audit.acting
def delete(actor: Actor, api_id: str) -> None:
    """Delete an API, and remove it from its clients. Raises `LookupError`."""
    api = _locked(api_id)
    _drop_entries(api)
    apis.remove(api)
    audit.event(Event.API_DELETED, by=actor.by, api=api.identifier)


def _drop_entries(api: Api) -> None:
    """Remove an API from the clients that are registered for it."""
    rows = apis.lock_clients_listing(api)
    apis.touch(rows, {client.client_id: _without(api.identifier, client) for client in rows})


def _without(identifier: str, client: Client) -> dict[str, Any]:
    """Return the metadata of a client without an API."""
    metadata = dict(client.client_metadata)
    for name in FIELDS_OF_CLIENT:
        if name in metadata:
            metadata[name] = [text for text in metadata[name] if api_entry(text)[0] != identifier]
    if metadata.get("default_api") == identifier:
        del metadata["default_api"]
    return metadata


def client_errors(metadata: Mapping[str, Any], before: Collection[str] = ()) -> list[Message]:
    """Return why a client cannot have these APIs. `before`: the entries that it already has."""
    entries, default_api = metadata.get("apis", []), metadata.get("default_api")
    acts_as = metadata.get("exchange_from", [])
    if len(entries) > MOST_OF_CLIENT or len(acts_as) > MOST_OF_CLIENT:
        return [Message("there are more than %(most)d APIs", most=MOST_OF_CLIENT)]
    named = dict(api_entry(text) for text in entries)
    errors = []
    if len(named) < len(entries):
        errors.append(Message("an API is listed twice; name all its scopes in one entry"))
    if default_api is not None and default_api not in named:
        identifier = repr(default_api[:200])
        errors.append(
            Message("the default API %(identifier)s is not among its APIs", identifier=identifier)
        )
    errors += own_apis.client_errors(named, metadata.get("grant_types", ()))
    if any("=" in text for text in acts_as):
        errors.append(Message("an API as which a client acts has no scopes: give its identifier"))
    added = [text for text in (*entries, *acts_as) if text not in before]
    rows: dict[str, Described] = {}
    if added:
        rows = {**apis.with_identifiers(_readable(added)), **own_apis.every()}
    scopes = {identifier: row.scopes for identifier, row in rows.items()}
    available = {**scopes, **(_declared.get() or {})}
    return errors + [error for text in added if (error := _entry_error(text, available))]


def _entry_error(text: str, available: Mapping[str, Mapping[str, str]]) -> Message | None:
    identifier, names = api_entry(text)
    if identifier not in available:
        return Message("there is no API %(identifier)s", identifier=repr(identifier[:200]))
    unknown = sorted(set(names or ()) - available[identifier].keys())
    if unknown:
        return Message(
            "the API %(identifier)s has no scope %(scopes)s",
            identifier=identifier,
            scopes=", ".join(unknown)[:200],
        )
    return None


@contextmanager
def declared(scopes: Mapping[str, Mapping[str, str]]) -> Iterator[None]:
    """Accept APIs that a file declares while its clients are planned; `scopes` by identifier."""
    token = _declared.set(scopes)
    try:
        yield
    finally:
        _declared.reset(token)


def hold(entries: Collection[str]) -> None:
    """Keep the APIs of these entries as they are until the transaction ends.

    Call it before the client is locked: a change of an API locks its clients last.
    """
    if entries:
        apis.share(_readable(tidy_entries(entries)))


def _readable(entries: Collection[str]) -> list[str]:
    """Return the valid identifiers in the entries of a client.

    Databases do not accept every text.
    """
    identifiers = [api_entry(text)[0] for text in list(entries)[:MOST_OF_CLIENT]]
    return [text for text in identifiers if not resources.identifier_error(text)]


def tidy_entries(entries: Collection[str]) -> list[str]:
    """Return the entries of a client in one spelling: the identifier as it is compared."""
    tidy = []
    for text in entries:
        identifier, separator, names = text.strip().partition("=")
        tidy.append(resources.normalized(identifier) + separator + names.replace(" ", ""))
    return list(dict.fromkeys(tidy))


def edited_entries(entries: Collection[str], edit: ListEdit) -> list[str]:
    """Return the entries of a client after an edit, with at most one entry for each API.

    An added entry replaces an earlier one of the same API. An entry to remove may leave out the
    scopes.
    """
    if edit.whole is not None:
        return tidy_entries(edit.whole)
    removed = {api_entry(text)[0] for text in tidy_entries(edit.removed)}
    added = tidy_entries(edit.added)
    replaced = removed | {api_entry(text)[0] for text in added}
    return [*(text for text in entries if api_entry(text)[0] not in replaced), *added]


def _taken(identifier: str) -> Message:
    return Message(
        "there is already an API with the identifier %(identifier)s",
        identifier=identifier,
        code=Rule.ALREADY_EXISTS,
    )


def _locked(api_id: str) -> Api:
    api = apis.lock(api_id)
    if api is None:
        raise LookupError(api_id)
    return api


def _touch_clients(api: Api) -> None:
    apis.touch(apis.lock_clients_listing(api))


def _set_secret(api: Api, has_secret: bool, secret: str | None) -> str:
    """Give the API a secret, or take it away; return it."""
    if not has_secret:
        api.secret_digest = None
        return ""
    secret = secret or crypto_secrets.make_secret(crypto_secrets.CLIENT_SECRET)
    api.secret_digest = crypto_secrets.digest(secret)
    return secret


def _edit(api: Api, fields: Mapping[str, Any]) -> list[str]:
    """Check and set fields; return the errors. The secret is set apart."""
    errors: list[str | None] = []
    for name, value in fields.items():
        errors += _field_errors(api, name, value)
        match FIELDS[name].kind:
            case Kind.NAMES:
                api.groups = list(dict.fromkeys(value))
            case Kind.ROLES:
                api.roles = role_claims.tidy(value)
            case Kind.URL:
                api.identifier = api.identifier or resources.normalized(value)
            case _ if name == "disabled":
                apis.set_disabled(api, value)
            case _ if name != "introspection":
                setattr(api, name, value)
    if "scopes" in fields and "translations" not in fields:
        api.translations = _translated(api.translations, api.scopes)
    if "scopes" in fields or "translations" in fields:
        errors += _translation_errors(api.translations, api.scopes)
    return [error for error in errors if error]


def _field_errors(api: Api, name: str, value: Any) -> Collection[str | None]:
    """Return why a field of an API cannot have this value, regardless of other fields."""
    field = FIELDS[name]
    match field.kind:
        case Kind.URL:
            return [_identifier_error(api, value)]
        case Kind.TEXT:
            return [checks.text_error(field.noun or Message(name), value)]
        case Kind.TEXTS:
            return _scope_errors(value)
        case Kind.NAMES:
            return checks.group_errors(value, api.groups)
        case Kind.ROLES:
            return checks.role_errors(role_claims.tidy(value), api.roles)
        case Kind.CHOICE if value not in field.choices:
            return [checks.none_of(field.noun, value, field.choices)]
        case Kind.NUMBER:
            return [_lifetime_error(value)]
    return []


def _translated(
    translations: Mapping[str, Mapping[str, str]], scopes: Collection[str]
) -> dict[str, dict[str, str]]:
    """Return the translations of these scopes, without those of removed ones."""
    left = {
        language: {name: text for name, text in texts.items() if name in scopes}
        for language, texts in translations.items()
    }
    return {language: texts for language, texts in left.items() if texts}


def _identifier_error(api: Api, text: str) -> Message | None:
    identifier = resources.normalized(text)
    if api.identifier and identifier != api.identifier:
        return Message("the identifier of an API stays; register another API instead")
    issuers = (context.settings().issuer, *context.settings().aliases)
    if identifier.rstrip("/") in {resources.normalized(name).rstrip("/") for name in issuers}:
        return Message("the identifier is this server's own; its API is userinfo")
    if identifier in own_apis.every():
        return Message("the identifier is that of an API of this server itself")
    if error := resources.identifier_error(text):
        return Message(
            "the identifier %(identifier)s is refused: %(reason)s",
            identifier=repr(text[:200]),
            reason=error,
        )
    return None


def _scope_errors(scopes: Mapping[str, str]) -> list[Message | None]:
    if len(scopes) > MOST_SCOPES:
        return [Message("there are more than %(most)d scopes", most=MOST_SCOPES)]
    return [
        error
        for name, text in scopes.items()
        for error in (_scope_name_error(name), _description_error(name, text))
    ]


def _scope_name_error(name: str) -> Message | None:
    if not 0 < len(name) <= MAX_SCOPE_NAME or not set(name) <= _NAME_CHARACTERS:
        return Message(
            "the scope %(scope)s is refused: a name has 1 to %(most)d letters, digits and . - _ : "
            "/",
            scope=repr(name[:100]),
            most=MAX_SCOPE_NAME,
        )
    if name in SCOPES:
        return Message("the scope %(scope)s is one of this server", scope=name)
    return None


def _description_error(name: str, text: Any) -> Message | None:
    label = Message("the description of the scope %(scope)s", scope=name[:MAX_SCOPE_NAME])
    return checks.text_error(label, text if isinstance(text, str) else "")


def _translation_errors(
    translations: Mapping[str, Mapping[str, str]], scopes: Mapping[str, str]
) -> list[Message | None]:
    errors: list[Message | None] = []
    for language, texts in list(translations.items())[: len(LANGUAGES) + 1]:
        if language not in LANGUAGES:
            languages = ", ".join(LANGUAGES)
            errors.append(
                Message("the language %(language)s is none of %(known)s",
                        language=repr(language[:20]), known=languages)
            )  # fmt: skip
        for name, text in list(texts.items())[: MOST_SCOPES + 1]:
            if name not in scopes:
                errors.append(
                    Message(
                        "a translation is for %(scope)s, which is no scope of the API",
                        scope=repr(name[:100]),
                    )
                )
            errors.append(_description_error(name, text))
    return errors


def _lifetime_error(seconds: Any) -> Message | None:
    if seconds is None:
        return None
    is_number = isinstance(seconds, int) and not isinstance(seconds, bool)
    if not is_number or not 60 <= seconds <= LONGEST_LIFETIME:
        return Message(
            "the lifetime of access tokens is not between 60 and %(most)d seconds",
            most=LONGEST_LIFETIME,
        )
    return None


def _notes(api: Api, changes: Mapping[str, Any]) -> list[str]:
    """Return notes for the operator about a change."""
    notes = []
    if "scopes" in changes or "groups" in changes or "disabled" in changes:
        lifetime = api.access_token_lifetime or context.settings().access_token_lifetime
        notes.append(
            f"Access tokens that APIs verify by themselves keep what they have for up to "
            f"{lifetime} seconds."
        )
    return notes
