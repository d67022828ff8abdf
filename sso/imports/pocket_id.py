"""Pocket ID, as the input of a migration: its database, in SQLite or PostgreSQL.

People have no passwords there, only passkeys, which are bound to its host name.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from sso.config import client_urls
from sso.config.auth_methods import ANY_AUTH_METHOD, NO_AUTH_METHOD
from sso.config.client_fields import AUTHORIZATION_CODE, REFRESH_TOKEN
from sso.config.urls import home_url_error
from sso.flow import attributes, own_claims
from sso.flow.scopes import ALL_CLAIMS
from sso.imports import databases, foreign_factors, foreign_tables, reading
from sso.imports.databases import Source
from sso.imports.drafts import (
    BAD_CLIENT_ID,
    CLIENT_ID,
    NEW_CLIENT_ID,
    Answers,
    Draft,
)
from sso.imports.files import Advance, Scratch
from sso.imports.findings import Fate, Finding
from sso.imports.foreign_factors import BROKEN_KEYS, MOST_PASSKEYS, OTHER_HOST
from sso.imports.foreign_tables import Database, Reference, Row
from sso.imports.keycloak_mappers import attribute_name
from sso.imports.person import (
    SHOWN,
    Factors,
    FileProblem,
    Person,
    flag,
    json_value,
    mapping,
    text,
    texts,
)
from sso.imports.system import System
from sso.process.program import COMMAND

KIND = "pocket-id"
MOST_GROUPS, MOST_CLIENTS, MOST_ALLOWED, MOST_CLAIMS = 20_000, 5_000, 100_000, 10_000
ADMINISTRATORS = "administer Pocket ID: give them a group that may administer this server"
NO_FACTOR = 'without a passkey that is taken: they set a password by "Forgot your password?"'
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


_PEOPLE = Reference("users", _USER, "id")
# What belongs to a person.
_OF_PERSON = {
    "groups": Reference("user_groups_users", ("user_id", "user_group_id"), "user_id"),
    "claims": Reference("custom_claims", ("key", "value", "user_id"), "user_id"),
    "passkeys": Reference(
        "webauthn_credentials", ("name", "credential_id", "public_key", "transport", "user_id"),
        "user_id",
    ),
    "consents": Reference(
        "user_authorized_oidc_clients", ("scope", "user_id", "client_id"), "user_id"
    ),
}  # fmt: skip


@dataclass
class _Read:
    """What the database has, apart from its people."""

    clients: list[Row] = field(default_factory=list)
    groups: dict[str, str] = field(default_factory=dict)  # names by ID
    allowed: dict[str, list[str]] = field(default_factory=dict)  # names of groups by client
    claims: dict[str, dict[str, str]] = field(default_factory=dict)  # of groups, by ID
    claim_names: set[str] = field(default_factory=set)  # also of people
    are_verified: bool = False  # all email addresses, before each had a flag
    people: int = 0
    has_directory: bool = False
    others: list[str] = field(default_factory=list)  # tables of what is not taken


def system(source: Source, answers: Answers, advance: Advance, has_same_host: bool) -> System:
    """Read the database. Raises `FileProblem`. `has_same_host`: its passkeys work here."""
    with databases.opened(source) as database:
        databases.require_tables(source, database, "Pocket ID", *_TABLES)
        stored = _read(database)
    databases.has_been_read(source, advance)
    by_claim, findings = _claims(sorted(stored.claim_names))
    drafts = [_draft(stored, entry, answers, by_claim) for entry in stored.clients]
    return System(
        kind=KIND,
        name=KIND,
        title=f"Pocket ID: {len(drafts):,} clients, {stored.people:,} people",
        drafts=drafts,
        client_ids={draft.client_id for draft in drafts},
        groups=list(dict.fromkeys(stored.groups.values())),
        people=lambda counts: _people(source, stored, has_same_host, counts),
        definitions=[
            {"name": attribute, "title": claim[:60], "type": attributes.STRING,
             "writers": [attributes.Party.ADMINISTRATOR]}
            for claim, attribute in by_claim.items()
        ],
        findings=[*findings, *_findings(stored)],
    )  # fmt: skip


def _read(database: Database) -> _Read:
    stored = _Read()
    for row in database.few("user_groups", ("id", "name"), MOST_GROUPS, "groups"):
        stored.groups[text(row.get("id"))] = text(row.get("name"))
    stored.clients = database.few("oidc_clients", _CLIENT, MOST_CLIENTS, "clients")
    of_allowed = ("oidc_client_id", "user_group_id")
    table = "oidc_clients_allowed_user_groups"
    for row in database.few(table, of_allowed, MOST_ALLOWED, "groups of clients"):
        name = stored.groups.get(text(row.get("user_group_id")))
        if name:
            stored.allowed.setdefault(text(row.get("oidc_client_id")), []).append(name)
    _read_claims(database, stored)
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


def _read_claims(database: Database, stored: _Read) -> None:
    of_groups = 0
    for row in database.rows("custom_claims", ("key", "value", "user_id", "user_group_id")):
        group_id, name = text(row.get("user_group_id")), text(row.get("key"))
        if not name:
            continue
        stored.claim_names.add(name)
        if group_id and not text(row.get("user_id")):
            stored.claims.setdefault(group_id, {})[name] = text(row.get("value"))
            of_groups += 1
        if of_groups > MOST_CLAIMS or len(stored.claim_names) > MOST_CLAIMS:
            raise FileProblem(f"{database.origin} has more than {MOST_CLAIMS} custom claims")


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
    if not draft.take_redirects(
        _urls(entry.get("callback_urls")), _urls(entry.get("logout_callback_urls")), answers,
        is_public=is_public,
    ):  # fmt: skip
        return draft
    draft.set("client_name", text(entry.get("name"))[:200] or client_id)
    draft.set("grant_types", [AUTHORIZATION_CODE, REFRESH_TOKEN])
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
    if mapping(json_value(entry.get("credentials"))).get("federatedIdentities"):
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
    source: Source, stored: _Read, has_same_host: bool, counts: Counter[str]
) -> Iterator[Person]:
    with closing(Scratch()) as scratch, databases.opened(source) as database:
        for number, (row, others) in enumerate(
            foreign_tables.joined(database, _PEOPLE, _OF_PERSON), 1
        ):
            counts[ADMINISTRATORS] += flag(row.get("is_admin"))
            person = _person(row, number, others, stored)
            _take_factors(person, others, has_same_host)
            if person.refused is None:
                person.refused = reading.finished(person, KIND, scratch)
            counts[NO_FACTOR] += person.refused is None and not person.factors.passkeys
            person.email = person.email[:SHOWN] if person.refused else person.email
            yield person


def _person(row: Row, number: int, others: Mapping[str, list[Row]], stored: _Read) -> Person:
    username = text(row.get("username"))
    person = Person(f"user {number}, {username[:SHOWN]}", source_id=text(row.get("id")))
    person.email_verified = flag(row.get("email_verified", stored.are_verified))
    person.disabled = flag(row.get("disabled"))
    person.take_claims({
        "given_name": row.get("first_name"), "family_name": row.get("last_name"),
        "preferred_username": username, "locale": row.get("locale"),
    })  # fmt: skip
    person.take_names(text(row.get("display_name")), email=row.get("email"), username=username)
    group_ids = [text(member.get("user_group_id")) for member in others["groups"]]
    group_ids = [group_id for group_id in group_ids if stored.groups.get(group_id)]
    person.groups = [stored.groups[group_id] for group_id in group_ids]
    claims: dict[str, str] = {}
    for group_id in group_ids:
        claims |= stored.claims.get(group_id, {})
    for claim in others["claims"]:  # their own claims win
        claims[text(claim.get("key"))] = text(claim.get("value"))
    for name, value in claims.items():
        if value.startswith(("{", "[")):
            person.lost.append(_CLAIM_JSON)
        elif (attribute := attribute_name(name)) and name not in ALL_CLAIMS:
            person.attributes[attribute] = value
    return person


def _take_factors(person: Person, others: Mapping[str, list[Row]], has_same_host: bool) -> None:
    person.factors = factors = Factors()
    for row in others["consents"]:
        client_id, scope = text(row.get("client_id")), row.get("scope")
        if client_id.isprintable():  # newer versions have a list
            factors.consents[client_id] = texts(json_value(scope)) or text(scope).split()
    for row in others["passkeys"]:
        if not has_same_host:
            person.lost.append(OTHER_HOST)
            continue
        passkey = foreign_factors.passkey(
            _raw(row.get("credential_id")), _raw(row.get("public_key")),
            transports=texts(json_value(row.get("transport"))), label=text(row.get("name")),
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
    remedies = {
        "api_keys": "docs/how-to/provision.md",
        "scim_service_providers": "docs/how-to/provision-outwards.md",
    }
    for table in stored.others:
        yield Finding(
            Fate.NOT_TAKEN, "server", table.replace("_", " "), "", "they know its addresses",
            f"see: {remedies[table]}",
        )  # fmt: skip


def _raw(value: Any) -> bytes:
    """Return the bytes of a column; early versions stored some as texts in base64."""
    return value if isinstance(value, bytes) else foreign_factors.from_base64(value)


def _urls(value: Any) -> list[str]:
    return texts(json_value(value))
