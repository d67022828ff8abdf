"""APIs: registered, changed, given credentials, disabled, deleted.

An API is a resource server: access tokens name it as their audience (RFC 8707, RFC 9068). A change
also changes the clients that are registered for it, so that it counts at their next request.
"""

import secrets
from collections.abc import Collection, Mapping
from typing import Any

from sso import audit, clock, context
from sso.audit import Actor
from sso.audit.events import Event
from sso.crypto import secrets as crypto_secrets
from sso.extensions import db
from sso.flow import resources
from sso.flow.scopes import SCOPES
from sso.i18n.languages import LANGUAGES
from sso.i18n.message import Message
from sso.models import Api, Client
from sso.models.clients import api_entry
from sso.services import changes as differences
from sso.services import checks
from sso.services.changes import ListEdit, Outcome
from sso.services.checks import Invalid, Rule
from sso.store import apis, clients, named_groups

MOST = 500  # APIs
MOST_SCOPES = 100  # of an API
MOST_OF_CLIENT = 50  # APIs
LONGEST_LIFETIME = 86_400  # seconds: a token cannot be taken back from an API that asks nobody
MAX_SCOPE_NAME, MAX_DESCRIPTION = 64, 200  # characters
DEFAULTS: Mapping[str, Any] = {
    "scopes": {}, "translations": {}, "groups": [], "includes_groups": False,
    "access_token_lifetime": None, "introspection": False, "disabled": False,
}  # fmt: skip
FIELDS = ("apis", "exchange_from")  # of a client, that list APIs
_NAME_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_:/")


def described(api: Api) -> dict[str, Any]:
    """Return the fields of an API, as the audit trail compares them."""
    return {
        "api_id": api.api_id,
        "identifier": api.identifier,
        "name": api.name,
        "scopes": api.scopes,
        "translations": api.translations,
        "groups": api.groups,
        "includes_groups": api.includes_groups,
        "access_token_lifetime": api.access_token_lifetime,
        "introspection": api.secret_digest is not None,
        "disabled": api.disabled_at is not None,
    }


@audit.acting
def register(
    actor: Actor, fields: Mapping[str, Any], *, secret: str | None = None
) -> tuple[Api, str]:
    """Register an API; return it and its secret, which is not stored. Raises `Invalid`.

    `fields` needs `identifier` and `name`. Without `introspection` the secret is "".
    """
    api = Api(api_id=f"api-{secrets.token_urlsafe(16)}")
    errors = _edit(api, {**DEFAULTS, **fields})
    if len(apis.every()) >= MOST:
        errors.append(Message("there are %(most)d APIs already; delete one first", most=MOST))
    elif apis.find(api.identifier):
        errors.append(
            Message(
                "there is already an API with the identifier %(identifier)s",
                identifier=api.identifier,
                code=Rule.ALREADY_EXISTS,
            )
        )
    if errors:
        raise Invalid(errors)
    secret = _set_secret(api, bool(fields.get("introspection")), secret)
    apis.add(api)
    named_groups.ensure(api.groups)
    audit.event(Event.API_CREATED, by=actor.by, api=api.identifier)
    return api, secret


@audit.acting
def change(
    actor: Actor,
    api_id: str,
    fields: Mapping[str, Any],
    *,
    secret: str | None = None,
    seen: Mapping[str, Any] | None = None,
) -> tuple[Api, Outcome, str]:
    """Change these fields; return the API, the outcome, and a secret if it got a new one.

    The identifier stays. Tokens that were issued before keep what they have until they expire;
    refresh and introspection follow the change. Raises `LookupError`, `Invalid` and `Changed`.
    """
    api = _locked(api_id)
    before = described(api)
    differences.require_unchanged(seen, before)
    if errors := _edit(api, fields):
        raise Invalid(errors)
    wants_secret = fields.get("introspection", before["introspection"])
    new_secret = ""
    if wants_secret != before["introspection"] or secret is not None:
        new_secret = _set_secret(api, bool(wants_secret), secret)
    changes = differences.between(before, described(api))
    if changes:
        _touch_clients(api)
        named_groups.ensure(api.groups)
        what = " ".join(changes)
        audit.event(Event.API_CHANGED, by=actor.by, api=api.identifier, what=what, changes=changes)
    db.session.flush()
    return api, Outcome(changes, _notes(api, changes)), new_secret


@audit.acting
def rotate_secret(actor: Actor, api_id: str) -> tuple[Api, str]:
    """Give an API a new secret for introspection; the old one ends. Raises `LookupError`."""
    api = _locked(api_id)
    secret = _set_secret(api, True, None)
    db.session.flush()
    audit.event(Event.API_SECRET_ROTATED, by=actor.by, api=api.identifier)
    return api, secret


@audit.acting
def disable(actor: Actor, api_id: str) -> Api:
    """Disable an API: it gets no tokens, and its tokens are inactive. Raises `LookupError`."""
    api = _locked(api_id)
    _set_disabled(api, True)
    _touch_clients(api)
    db.session.flush()
    audit.event(Event.API_DISABLED, by=actor.by, api=api.identifier)
    return api


@audit.acting
def enable(actor: Actor, api_id: str) -> Api:
    """Enable an API again. Raises `LookupError`."""
    api = _locked(api_id)
    _set_disabled(api, False)
    _touch_clients(api)
    db.session.flush()
    audit.event(Event.API_ENABLED, by=actor.by, api=api.identifier)
    return api


@audit.acting
def delete(actor: Actor, api_id: str) -> None:
    """Delete an API, and what clients are registered for at it. Raises `LookupError`."""
    api = _locked(api_id)
    for client in _locked_clients(api):
        metadata = dict(client.client_metadata)
        for name in FIELDS:
            entries = metadata.get(name, [])
            if name in metadata:
                metadata[name] = [text for text in entries if api_entry(text)[0] != api.identifier]
        if metadata.get("default_api") == api.identifier:
            del metadata["default_api"]
        client.set_client_metadata(metadata)
        apis.touch(client)
    db.session.flush()
    apis.remove(api)
    audit.event(Event.API_DELETED, by=actor.by, api=api.identifier)


def client_errors(metadata: Mapping[str, Any], before: Collection[str] = ()) -> list[Message]:
    """Return why a client cannot have these APIs. `before`: entries that it has already."""
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
        message = "the default API %(identifier)s is not among its APIs"
        errors.append(Message(message, identifier=identifier))
    if any("=" in text for text in acts_as):
        errors.append(Message("an API as which a client acts has no scopes: give its identifier"))
    added = [text for text in (*entries, *acts_as) if text not in before]
    identifiers = [api_entry(text)[0] for text in added]
    available = apis.with_identifiers(identifiers) if added else {}
    return errors + [error for text in added if (error := _entry_error(text, available))]


def _entry_error(text: str, available: Mapping[str, Api]) -> Message | None:
    identifier, names = api_entry(text)
    if identifier not in available:
        message = "there is no API %(identifier)s"
        return Message(message, identifier=repr(identifier[:200]))
    unknown = sorted(set(names or ()) - available[identifier].scopes.keys())
    if unknown:
        return Message(
            "the API %(identifier)s has no scope %(scopes)s",
            identifier=identifier,
            scopes=", ".join(unknown)[:200],
        )
    return None


def hold(entries: Collection[str]) -> None:
    """Keep the APIs of these entries as they are until the transaction ends.

    Call it before the client is locked: a change of an API locks its clients last.
    """
    if entries:
        apis.share([api_entry(text)[0] for text in tidy_entries(entries)][:MOST_OF_CLIENT])


def tidy_entries(entries: Collection[str]) -> list[str]:
    """Return the entries of a client in one spelling: the identifier as it is compared."""
    tidy = []
    for text in entries:
        identifier, separator, names = text.strip().partition("=")
        tidy.append(resources.normalized(identifier) + separator + names.replace(" ", ""))
    return list(dict.fromkeys(tidy))


def edited_entries(entries: Collection[str], edit: ListEdit) -> list[str]:
    """Return the entries of a client after an edit, with at most one entry for each API.

    An entry that is added takes the place of the earlier one of its API. One that is removed may
    leave out the scopes.
    """
    if edit.whole is not None:
        return tidy_entries(edit.whole)
    removed = {api_entry(text)[0] for text in tidy_entries(edit.removed)}
    added = tidy_entries(edit.added)
    replaced = removed | {api_entry(text)[0] for text in added}
    return [*(text for text in entries if api_entry(text)[0] not in replaced), *added]


def _locked(api_id: str) -> Api:
    api = apis.lock(api_id)
    if api is None:
        raise LookupError(api_id)
    return api


def _locked_clients(api: Api) -> list[Client]:
    """Lock the clients whose registration lists an API, in the order of everybody."""
    ids = sorted(client.client_id for client in apis.clients_listing(api.identifier))
    locked = (clients.lock(client_id) for client_id in ids)
    return [client for client in locked if client is not None and client.lists(api.identifier)]


def _touch_clients(api: Api) -> None:
    for client in _locked_clients(api):
        apis.touch(client)


def _set_disabled(api: Api, disabled: bool) -> None:
    api.disabled_at = (api.disabled_at or clock.now()) if disabled else None


def _set_secret(api: Api, has_secret: bool, secret: str | None) -> str:
    """Give the API a secret, or take it away; return it."""
    if not has_secret:
        api.secret_digest = None
        return ""
    secret = secret or crypto_secrets.make_secret(crypto_secrets.CLIENT_SECRET)
    api.secret_digest = crypto_secrets.digest(secret)
    return secret


def _edit(api: Api, fields: Mapping[str, Any]) -> list[str]:
    """Check and set fields; return the errors."""
    errors: list[str | None] = []
    if "identifier" in fields:
        errors.append(_set_identifier(api, fields["identifier"]))
    if "name" in fields:
        errors.append(checks.text_error(checks.NAME, fields["name"]))
        api.name = fields["name"]
    if "scopes" in fields:
        errors += _scope_errors(fields["scopes"])
        api.scopes = dict(fields["scopes"])
    if "translations" in fields:
        api.translations = {
            language: dict(texts) for language, texts in fields["translations"].items()
        }
    if "scopes" in fields or "translations" in fields:
        errors += _translation_errors(api.translations, api.scopes)
    if "groups" in fields:
        errors += checks.group_errors(fields["groups"], api.groups or ())
        api.groups = list(dict.fromkeys(fields["groups"]))
    if "includes_groups" in fields:
        api.includes_groups = bool(fields["includes_groups"])
    if "access_token_lifetime" in fields:
        errors.append(_lifetime_error(fields["access_token_lifetime"]))
        api.access_token_lifetime = fields["access_token_lifetime"]
    if "disabled" in fields:
        _set_disabled(api, fields["disabled"])
    return [error for error in errors if error]


def _set_identifier(api: Api, text: str) -> Message | None:
    identifier = resources.normalized(text)
    if api.identifier and identifier != api.identifier:
        return Message("the identifier of an API stays; register another API instead")
    api.identifier = identifier
    if identifier == resources.normalized(context.settings().issuer):
        return Message("the identifier is this server's own; its API is userinfo")
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
        message = (
            "the scope %(scope)s is refused: a name has 1 to %(most)d letters, digits and . - _ : /"
        )
        return Message(message, scope=repr(name[:100]), most=MAX_SCOPE_NAME)
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
                message = "a translation is for %(scope)s, which is no scope of the API"
                errors.append(Message(message, scope=repr(name[:100])))
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
    """Return what the operator should know about a change."""
    notes = []
    if "scopes" in changes or "groups" in changes or "disabled" in changes:
        lifetime = api.access_token_lifetime or context.settings().access_token_lifetime
        notes.append(
            f"Access tokens that APIs verify by themselves keep what they have for up to "
            f"{lifetime} seconds."
        )
    return notes
