"""Pocket ID, as the input of a migration: its SQLite database.

People have no passwords there, only passkeys, which are bound to its host name.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sso.config import client_urls
from sso.config.auth_methods import ANY_AUTH_METHOD, NO_AUTH_METHOD
from sso.config.client_fields import AUTHORIZATION_CODE, REFRESH_TOKEN
from sso.config.urls import home_url_error
from sso.flow import attributes, own_claims
from sso.flow.scopes import ALL_CLAIMS
from sso.imports import foreign_factors, reading, sqlite_files
from sso.imports.drafts import (
    BAD_CLIENT_ID,
    CLIENT_ID,
    NEW_CLIENT_ID,
    POST_LOGOUT,
    REDIRECT,
    Answers,
    Draft,
)
from sso.imports.files import Advance, Scratch
from sso.imports.findings import Fate, Finding
from sso.imports.foreign_factors import BROKEN_KEYS, MOST_PASSKEYS, OTHER_HOST
from sso.imports.keycloak_mappers import attribute_name
from sso.imports.person import SHOWN, Factors, FileProblem, Person, flag, mapping, text, texts
from sso.imports.sqlite_files import Database
from sso.imports.system import System
from sso.process.program import COMMAND

KIND = "pocket-id"
MOST_GROUPS, MOST_CLIENTS = 20_000, 5_000
ADMINISTRATORS = "administer Pocket ID: give them a group that may administer this server"
NO_FACTOR = 'without a passkey that is taken: they set a password by "Forgot your password?"'
_LONGEST_JSON = 20_000  # characters
_CLAIM_JSON = "custom claims that are lists or objects"
_TABLES = ("users", "user_groups", "user_groups_users", "oidc_clients", "webauthn_credentials")
_CLIENT = (
    "id", "name", "secret", "callback_urls", "logout_callback_urls", "is_public", "pkce_enabled",
    "credentials", "launch_url", "requires_reauthentication", "is_group_restricted",
    "skip_consent", "image_type", "is_metadata_document", "backchannel_logout_url",
)  # fmt: skip
_USER = (
    "id", "username", "email", "email_verified", "first_name", "last_name", "display_name",
    "is_admin", "locale", "ldap_id", "disabled",
)  # fmt: skip
_SCOPE = "openid profile email groups offline_access"


@dataclass
class _Read:
    """What the database has, apart from its people. Of those, by ID."""

    clients: list[dict[str, Any]] = field(default_factory=list)
    groups: dict[str, str] = field(default_factory=dict)  # names by ID
    members: dict[str, list[str]] = field(default_factory=dict)  # IDs of groups
    allowed: dict[str, list[str]] = field(default_factory=dict)  # names of groups by client
    claims: dict[str, dict[str, str]] = field(default_factory=dict)  # of people and of groups
    passkeys: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    consents: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    are_verified: bool = False  # all email addresses, before each had a flag
    people: int = 0
    has_directory: bool = False
    others: list[str] = field(default_factory=list)  # tables of what is not taken


def system(path: Path, answers: Answers, advance: Advance, has_same_host: bool) -> System:
    """Read the database. Raises `FileProblem`. `has_same_host`: its passkeys work here."""
    if not sqlite_files.is_database(path):
        raise FileProblem(f"{path} is no SQLite database")
    with sqlite_files.opened(path) as database:
        stored = _read(path, database)
    advance(path.stat().st_size * 2)
    names = sorted({name for claims in stored.claims.values() for name in claims})
    by_claim, findings = _claims(names)
    drafts = [_draft(stored, entry, answers, by_claim) for entry in stored.clients]
    return System(
        kind=KIND,
        name=KIND,
        title=f"Pocket ID: {len(drafts):,} clients, {stored.people:,} people",
        drafts=drafts,
        client_ids={draft.client_id for draft in drafts},
        groups=list(dict.fromkeys(stored.groups.values())),
        people=lambda counts: _people(path, stored, has_same_host, counts),
        definitions=[
            {"name": attribute, "title": claim[:60], "type": attributes.STRING,
             "writers": [attributes.Party.ADMINISTRATOR]}
            for claim, attribute in by_claim.items()
        ],
        findings=[*findings, *_findings(stored)],
    )  # fmt: skip


def _read(path: Path, database: Database) -> _Read:
    if lacking := [name for name in _TABLES if name not in database.columns]:
        raise FileProblem(f"{path} is no database of Pocket ID: it has no table {lacking[0]}")
    stored = _Read()
    for row in database.rows("user_groups", ("id", "name")):
        stored.groups[text(row.get("id"))] = text(row.get("name"))
        _bound(path, len(stored.groups), MOST_GROUPS, "groups")
    for row in database.rows("user_groups_users", ("user_id", "user_group_id")):
        group_id = text(row.get("user_group_id"))
        if stored.groups.get(group_id):
            stored.members.setdefault(text(row.get("user_id")), []).append(group_id)
    for row in database.rows("oidc_clients", _CLIENT):
        stored.clients.append(row)
        _bound(path, len(stored.clients), MOST_CLIENTS, "clients")
    of_allowed = ("oidc_client_id", "user_group_id")
    for row in database.rows("oidc_clients_allowed_user_groups", of_allowed):
        name = stored.groups.get(text(row.get("user_group_id")))
        if name:
            stored.allowed.setdefault(text(row.get("oidc_client_id")), []).append(name)
    for row in database.rows("custom_claims", ("key", "value", "user_id", "user_group_id")):
        owner = text(row.get("user_id")) or text(row.get("user_group_id"))
        if owner and (name := text(row.get("key"))):
            stored.claims.setdefault(owner, {})[name] = text(row.get("value"))
    of_keys = ("name", "credential_id", "public_key", "transport", "user_id")
    for row in database.rows("webauthn_credentials", of_keys):
        stored.passkeys.setdefault(text(row.get("user_id")), []).append(row)
    for row in database.rows("user_authorized_oidc_clients", ("scope", "user_id", "client_id")):
        client_id = text(row.get("client_id"))
        if client_id.isprintable():
            by_client = stored.consents.setdefault(text(row.get("user_id")), {})
            by_client[client_id] = text(row.get("scope")).split()
    for table in ("app_config_variables", "application_configuration_variables"):
        for row in database.rows(table, ("key", "value")):
            is_flag = text(row.get("key")) == "emailsVerified"
            stored.are_verified |= is_flag and text(row.get("value")) == "true"
    for row in database.rows("users", ("id", "ldap_id")):
        stored.people += 1
        stored.has_directory |= bool(text(row.get("ldap_id")))
    stored.others = [
        name for name in ("api_keys", "scim_service_providers")
        if next(database.rows(name, ("id",)), None)
    ]  # fmt: skip
    return stored


def _bound(path: Path, number: int, most: int, things: str) -> None:
    if number > most:
        raise FileProblem(f"{path} has more than {most} {things}")


def _claims(names: Iterable[str]) -> tuple[dict[str, str], list[Finding]]:
    """Return the attributes for custom claims, by claim, and why others have none."""
    by_claim: dict[str, str] = {}
    findings: list[Finding] = []
    for name in names:
        attribute = attribute_name(name)
        why = ""
        if name in ALL_CLAIMS:
            why = "this server puts something else there"
        elif attribute in by_claim.values():
            why = f"another claim is the attribute {attribute} already"
        else:
            errors = own_claims.errors([_entry(name, attribute)])
            why = "; ".join(map(str, errors)) if attribute else "its name has no letters"
        if why:
            findings.append(Finding(Fate.NOT_TAKEN, "attribute", name[:200], "", why[:300]))
        elif len(by_claim) < own_claims.MOST:
            by_claim[name] = attribute
    return by_claim, findings


def _entry(claim: str, attribute: str) -> str:
    return f"{claim}=attribute:{attribute}"


def _draft(
    stored: _Read, entry: Mapping[str, Any], answers: Answers, by_claim: Mapping[str, str]
) -> Draft:
    client_id = text(entry.get("id"))
    draft = Draft(client_id, client_id[:200])
    if flag(entry.get("is_metadata_document")):
        draft.refuse(
            "its ID is the address of its metadata, and nobody registered it",
            "allow such clients: SSO_CLIENT_DOCUMENTS",
        )
        return draft
    if not CLIENT_ID.fullmatch(client_id):
        draft.refuse(BAD_CLIENT_ID, NEW_CLIENT_ID)
        return draft
    is_public = flag(entry.get("is_public"))
    uris = _urls(entry.get("callback_urls"))
    given_uris = list(answers.redirect_uris.get(client_id, ()))
    exact = draft.exact(
        REDIRECT, [*uris, *given_uris], is_public=is_public, is_answered=bool(given_uris)
    )
    if not exact:
        draft.refuse_redirects(uris)
        return draft
    draft.set("client_name", text(entry.get("name"))[:200] or client_id)
    draft.set("grant_types", [AUTHORIZATION_CODE, REFRESH_TOKEN])
    draft.set("redirect_uris", exact)
    after = draft.exact(
        POST_LOGOUT, _urls(entry.get("logout_callback_urls")), is_public=is_public,
        is_answered=False,
    )  # fmt: skip
    draft.set("post_logout_redirect_uris", after)
    draft.set("require_pkce", is_public or flag(entry.get("pkce_enabled")))
    draft.set("token_endpoint_auth_method", NO_AUTH_METHOD if is_public else ANY_AUTH_METHOD)
    if not is_public:
        draft.take_secret_hash(text(entry.get("secret")), answers)
    draft.set("scope", _SCOPE)
    draft.set("id_token_claims", "all")
    draft.set("first_party", flag(entry.get("skip_consent")))
    draft.set("own_claims", [_entry(*pair) for pair in by_claim.items()])
    if answers.issuer:
        draft.set("issuer", answers.issuer)
    _take_urls(draft, entry)
    _take_groups(draft, stored, entry)
    return draft


def _take_urls(draft: Draft, entry: Mapping[str, Any]) -> None:
    for column, name, what, check in (
        ("launch_url", "home_url", "launch URL", home_url_error),
        ("backchannel_logout_url", "backchannel_logout_uri", "back-channel logout URL",
         client_urls.backchannel_error),
    ):  # fmt: skip
        url = text(entry.get(column))
        if url and (error := check(url)):
            draft.note(Fate.NOT_TAKEN, what, f"{url[:200]}: {error}")
        elif url:
            draft.set(name, url)
    if text(entry.get("image_type")):
        draft.note(
            Fate.NOT_TAKEN, "logo", "it is not in the database",
            f"{COMMAND} client update {draft.client_id} --logo FILE",
        )  # fmt: skip
    if flag(entry.get("requires_reauthentication")):
        draft.note(
            Fate.NOT_TAKEN, "reauthentication", "people sign in once for all applications here",
            "let the application send prompt=login or max_age",
        )  # fmt: skip
    if mapping(_json(entry.get("credentials"))).get("federatedIdentities"):
        draft.note(
            Fate.NOT_TAKEN, "federated credentials", "they need more to be said here",
            "see: docs/how-to/services.md",
        )  # fmt: skip


def _take_groups(draft: Draft, stored: _Read, entry: Mapping[str, Any]) -> None:
    """Take who may use a client. Without the switch, groups alone say that it is restricted."""
    groups = list(dict.fromkeys(stored.allowed.get(draft.client_id, ())))
    is_restricted = flag(entry.get("is_group_restricted", bool(groups)))
    draft.set("groups", groups if is_restricted else [])
    draft.set("disabled", is_restricted and not groups)
    if is_restricted and not groups:
        draft.note(
            Fate.QUESTION, "groups", "it is restricted to no group; so the client is disabled",
            f"say who may use it: {COMMAND} client update {draft.client_id} --add-group …, then: "
            f"{COMMAND} client enable {draft.client_id}",
        )  # fmt: skip


def _people(
    path: Path, stored: _Read, has_same_host: bool, counts: Counter[str]
) -> Iterator[Person]:
    with closing(Scratch()) as scratch, sqlite_files.opened(path) as database:
        for row in database.rows("users", _USER):
            counts[ADMINISTRATORS] += flag(row.get("is_admin"))
            person = _person(row, stored, has_same_host)
            if person.refused is None:
                person.refused = reading.finished(person, KIND, scratch)
            counts[NO_FACTOR] += person.refused is None and not person.factors.passkeys
            person.email = person.email[:SHOWN] if person.refused else person.email
            yield person


def _person(row: Mapping[str, Any], stored: _Read, has_same_host: bool) -> Person:
    user_id, username = text(row.get("id")), text(row.get("username"))
    person = Person(f"user {username[:SHOWN]}", source_id=user_id)
    person.email_verified = flag(row.get("email_verified", stored.are_verified))
    person.disabled = flag(row.get("disabled"))
    person.take_claims({
        "given_name": row.get("first_name"), "family_name": row.get("last_name"),
        "preferred_username": username, "locale": row.get("locale"),
    })  # fmt: skip
    person.take_names(text(row.get("display_name")), email=row.get("email"), username=username)
    group_ids = stored.members.get(user_id, [])
    person.groups = [stored.groups[group_id] for group_id in group_ids]
    claims: dict[str, str] = {}
    for owner in (*group_ids, user_id):  # their own claims win
        claims |= stored.claims.get(owner, {})
    for name, value in claims.items():
        if value.startswith(("{", "[")):
            person.lost.append(_CLAIM_JSON)
        elif (attribute := attribute_name(name)) and name not in ALL_CLAIMS:
            person.attributes[attribute] = value
    _take_factors(person, user_id, stored, has_same_host)
    return person


def _take_factors(person: Person, user_id: str, stored: _Read, has_same_host: bool) -> None:
    person.factors = factors = Factors(consents=stored.consents.get(user_id, {}))
    for row in stored.passkeys.get(user_id, ()):
        if not has_same_host:
            person.lost.append(OTHER_HOST)
            continue
        passkey = foreign_factors.passkey(
            _raw(row.get("credential_id")), _raw(row.get("public_key")),
            transports=texts(_json(row.get("transport"))), label=text(row.get("name")),
        )  # fmt: skip
        if passkey is None or len(factors.passkeys) >= MOST_PASSKEYS:
            person.lost.append(BROKEN_KEYS)
        else:
            factors.passkeys.append(passkey)


def _findings(stored: _Read) -> Iterator[Finding]:
    if stored.has_directory:
        yield Finding(
            Fate.NOT_TAKEN, "directory", "LDAP", "", "people come, but not their directory",
            "connect it: docs/how-to/ldap.md",
        )  # fmt: skip
    remedies = {"api_keys": "api-tokens", "scim_service_providers": "provision-outwards"}
    for table in stored.others:
        yield Finding(
            Fate.NOT_TAKEN, "server", table.replace("_", " "), "", "they know its addresses",
            f"see: docs/how-to/{remedies[table]}.md",
        )  # fmt: skip


def _raw(value: Any) -> bytes:
    """Return the bytes of a column; early versions stored some as texts in base64."""
    return value if isinstance(value, bytes) else foreign_factors.from_base64(value)


def _json(value: Any) -> Any:
    plain = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    try:
        return json.loads(plain[:_LONGEST_JSON]) if isinstance(plain, str) else None
    except (ValueError, RecursionError):
        return None


def _urls(value: Any) -> list[str]:
    return texts(_json(value))
