"""authentik, as the input of a migration: a blueprint, answers of its API, rows of its tables.

A blueprint has all objects and no secrets of people; the API has the subjects (`uid`); the tables
have everything. What several files say about a person is joined.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sso.crypto import foreign_hashes, secrets
from sso.flow import attributes
from sso.flow.attributes import Party
from sso.imports import authentik_clients, authentik_files, foreign_factors, reading
from sso.imports.authentik_clients import SubMode
from sso.imports.authentik_files import Entry, Kind, key_of, listed
from sso.imports.drafts import Answers
from sso.imports.files import Advance, Scratch
from sso.imports.findings import Fate, Finding
from sso.imports.foreign_factors import BROKEN_KEYS, MOST_PASSKEYS, OTHER_APPS, OTHER_HOST
from sso.imports.keycloak_credentials import MORE_APPS, ONLY_CODES
from sso.imports.person import CODES, SHOWN, Factors, FileProblem, Person, mapping, text
from sso.imports.system import System
from sso.imports.yaml_files import is_on

KIND = "authentik"
MOST_GROUPS, MOST_CLIENTS = 20_000, 5_000
SERVICES = "service accounts: register what uses them as services"
WITHOUT_HASH = 'without a password hash: they set a password by "Forgot your password?"'
_ANONYMOUS = "AnonymousUser"
_MOST_CODES = 50  # of one person
_CODE = range(8, 101)  # characters
_OF_API = "the users of its API: GET /api/v3/core/users/"
_OTHERS = (
    ("authentik_providers_saml", "SAML applications", "register them: docs/how-to/saml.md"),
    ("authentik_providers_proxy", "proxy providers", "see: docs/how-to/forward-auth.md"),
    ("authentik_providers_ldap", "LDAP providers", "this server has no LDAP interface"),
    ("authentik_providers_scim", "SCIM providers", "see: docs/how-to/provision-outwards.md"),
    ("authentik_sources_", "sources", "connect them: docs/how-to/upstream.md or ldap.md"),
    ("authentik_policies_expression", "expression policies", "they are programs; use groups"),
    ("authentik_enterprise", "enterprise features", "see what this server has instead"),
)


@dataclass
class _Read:
    """What the files have. People, and what belongs to one, by the primary key of the user."""

    entries: authentik_files.Entries
    groups: dict[str, str] = field(default_factory=dict)  # names by key
    members: dict[str, list[str]] = field(default_factory=dict)  # keys of groups by user
    devices: dict[Kind, dict[str, list[Entry]]] = field(default_factory=dict)
    codes: dict[str, list[str]] = field(default_factory=dict)
    install_id: str = ""
    modes: set[SubMode] = field(default_factory=set)


def system(paths: Sequence[Path], answers: Answers, advance: Advance, rp_id: str) -> System:
    """Read the files. Raises `FileProblem`. `rp_id`: the relying party of this server."""
    read = _Read(authentik_files.read(paths, advance))
    entries = read.entries
    if not (entries.of(Kind.USER) or entries.of(Kind.PROVIDER)):
        raise FileProblem("no file has users or OAuth2 providers of authentik")
    _join(read)
    drafts = list(authentik_clients.drafts(entries, read.groups, answers))
    if len(drafts) > MOST_CLIENTS:
        raise FileProblem(f"the files have more than {MOST_CLIENTS} OAuth2 providers")
    read.modes = {SubMode(mode) for mode in SubMode if _uses(drafts, mode)}
    people = [entry for entry in entries.of(Kind.USER) if _is_person(entry)]
    return System(
        kind=KIND,
        name=KIND,
        title=f"authentik: {len(drafts):,} clients, {len(people):,} people",
        drafts=drafts,
        client_ids={draft.client_id for draft in drafts},
        groups=list(dict.fromkeys(filter(None, read.groups.values()))),
        people=lambda counts: _people(read, people, rp_id, counts),
        hash_methods=_methods(people),
        definitions=[
            {"name": mode.attribute, "title": f"Subject of authentik: {mode}",
             "type": attributes.STRING, "writers": [Party.ADMINISTRATOR]}
            for mode in sorted(read.modes) if mode.attribute
        ],
        findings=list(_findings(read, people)),
    )  # fmt: skip


def _uses(drafts: Sequence[Any], mode: SubMode) -> bool:
    names = {(draft.fields or {}).get("subject_attribute") for draft in drafts}
    return mode.attribute in names if mode.attribute else False


def _join(read: _Read) -> None:
    entries = read.entries
    for entry in entries.of(Kind.GROUP):
        read.groups[entry.key] = text(entry.values.get("name"))
    if len(read.groups) > MOST_GROUPS:
        raise FileProblem(f"the files have more than {MOST_GROUPS} groups")
    for entry in entries.of(Kind.USER):
        groups = [entries.key(value) for value in listed(entry.values.get("groups"))]
        read.members[entry.key] = [key for key in groups if key]
    for entry in entries.of(Kind.GROUP):
        for user in listed(entry.values.get("users")):
            read.members.setdefault(entries.key(user), []).append(entry.key)
    for row in entries.of(Kind.MEMBERSHIP):
        user, group = key_of(row.values.get("user_id")), key_of(row.values.get("group_id"))
        read.members.setdefault(user, []).append(group)
    owners: dict[str, str] = {}
    for kind in (Kind.TOTP, Kind.PASSKEY, Kind.STATIC):
        by_user = read.devices.setdefault(kind, {})
        for row in entries.of(kind):
            user = key_of(row.values.get("user_id")) or key_of(row.values.get("user"))
            if is_on(row.values.get("confirmed", True)):
                by_user.setdefault(user, []).append(row)
                owners[row.key] = user if kind is Kind.STATIC else owners.get(row.key, "")
    for row in entries.of(Kind.CODE):
        user = owners.get(key_of(row.values.get("device_id")), "")
        code = "".join(c for c in text(row.values.get("token")).lower() if c.isalnum())
        codes = read.codes.setdefault(user, [])
        if user and len(code) in _CODE and len(codes) < _MOST_CODES:
            codes.append(secrets.digest(code))
    ids = [text(row.values.get("id")) for row in entries.of(Kind.INSTALLATION)]
    read.install_id = next(filter(None, ids), "")


def _is_person(entry: Entry) -> bool:
    return not _is_service(entry) and text(entry.values.get("username")) != _ANONYMOUS


def _is_service(entry: Entry) -> bool:
    return "service_account" in text(entry.values.get("type"))


def _methods(people: Sequence[Entry]) -> set[str]:
    methods = set[str]()
    for entry in people:
        person = Person("")
        person.take_password(lambda: _hash(entry.values))  # noqa: B023 (called at once)
        method = foreign_hashes.method_of(person.password_hash)
        methods |= {method} if method else set()
    return methods


def _hash(values: Mapping[str, Any]) -> str | None:
    """Return the password hash. A blueprint by hand may have a password in clear instead."""
    stored = text(values.get("password")) or text(values.get("password_hash"))
    return foreign_hashes.from_text(stored) if "$" in stored or stored[:1] == "!" else None


def _people(
    read: _Read, people: Sequence[Entry], rp_id: str, counts: Counter[str]
) -> Iterator[Person]:
    services = [entry for entry in read.entries.of(Kind.USER) if _is_service(entry)]
    counts[SERVICES] += len(services)
    with closing(Scratch()) as scratch:
        for entry in people:
            person = _person(read, entry)
            _take_factors(person, read, entry, rp_id)
            _take_subjects(person, read, entry, scratch)
            if person.refused is None:
                person.refused = reading.finished(person, KIND, scratch)
            counts[WITHOUT_HASH] += person.refused is None and not person.password_hash
            person.email = person.email[:SHOWN] if person.refused else person.email
            yield person


def _person(read: _Read, entry: Entry) -> Person:
    values = entry.values
    username = text(values.get("username"))
    person = Person(f"user {username[:SHOWN]}")
    person.source_id = text(values.get("uuid")) or entry.key
    person.disabled = not is_on(values.get("is_active", True))
    person.take_claims({"preferred_username": username, "nickname": username})
    person.take_names(text(values.get("name")), email=values.get("email"), username=username)
    names = (read.groups.get(key, "") for key in read.members.get(entry.key, ()))
    person.groups = list(dict.fromkeys(filter(None, names)))
    for name, value in mapping(values.get("attributes")).items():
        plain = [item for item in listed(value) if isinstance(item, str) and item]
        if attributes.NAME.fullmatch(name) and plain:
            person.attributes[name] = plain if isinstance(value, list) else plain[0]
    person.take_password(lambda: _hash(values))
    return person


def _take_subjects(person: Person, read: _Read, entry: Entry, scratch: Scratch) -> None:
    """Take the person's subjects. Two people who would be one to an application are refused."""
    for mode in sorted(read.modes):
        value = subject(entry, mode, read.install_id)
        if not value:
            person.lost.append(f"subjects of the mode {mode}, which no file has")
        elif before := scratch.put(mode, value, person.where):
            person.refused = f"another in the file has the same subject ({mode})"
            person.detail = f"see {before}"
        else:
            person.attributes[mode.attribute] = value
            person.subjects.add(mode.attribute)


def subject(entry: Entry, mode: SubMode, install_id: str) -> str:
    """Return what authentik calls a user in this mode; "" if the files do not say."""
    values = entry.values
    match mode:
        case SubMode.UUID:
            return text(values.get("uuid"))
        case SubMode.ID:
            return entry.key
        case SubMode.USERNAME:
            return text(values.get("username"))
        case SubMode.EMAIL:
            return text(values.get("email"))
        case SubMode.UPN if upn := text(mapping(values.get("attributes")).get("upn")):
            return upn
    uid = text(values.get("uid"))
    if not uid and install_id:
        uid = hashlib.sha256(f"{entry.key}-{install_id}".encode()).hexdigest()
    return uid


def _take_factors(person: Person, read: _Read, entry: Entry, rp_id: str) -> None:
    key, handle = entry.key, subject(entry, SubMode.HASH, read.install_id).encode()
    person.factors = factors = Factors()
    for row in read.devices[Kind.TOTP].get(key, ()):
        plain = _from_hex(text(row.values.get("key")))
        settings = [key_of(row.values.get(name)) for name in ("digits", "step", "t0")]
        secret = foreign_factors.totp_secret(plain) if settings == ["6", "30", "0"] else ""
        if factors.totp or not secret:
            person.lost.append(MORE_APPS if factors.totp else OTHER_APPS)
        else:
            factors.totp = secret
    for row in read.devices[Kind.PASSKEY].get(key, ()):
        host = text(row.values.get("rp_id")).lower()
        if not rp_id or host != rp_id.lower():
            person.lost.append(OTHER_HOST)
            continue
        passkey = foreign_factors.passkey(
            foreign_factors.from_base64(row.values.get("credential_id")),
            foreign_factors.from_base64(row.values.get("public_key")),
            count=row.values.get("sign_count", 0), label=text(row.values.get("name")),
            user_handle=handle,
        )  # fmt: skip
        if passkey is None or len(factors.passkeys) >= MOST_PASSKEYS:
            person.lost.append(BROKEN_KEYS)
        else:
            factors.passkeys.append(passkey)
    factors.recovery_codes = read.codes.get(key, [])
    if factors.recovery_codes and not (factors.totp or factors.passkeys):
        factors.recovery_codes = []
        person.lost.append(ONLY_CODES)
    elif read.devices[Kind.STATIC].get(key) and not factors.recovery_codes:
        person.lost.append(CODES)


def _from_hex(digits: str) -> bytes:
    try:
        return bytes.fromhex(digits)
    except ValueError:
        return b""


def _findings(read: _Read, people: Sequence[Entry]) -> Iterator[Finding]:
    entries = read.entries
    for mode in sorted(read.modes):
        lacking = sum(not subject(entry, mode, read.install_id) for entry in people)
        if lacking:
            yield Finding(
                Fate.QUESTION, "subject", str(mode), "",
                f"the files do not have it for {lacking:,} people: new ones to applications",
                f"name the file of {_OF_API}",
            )  # fmt: skip
    if not entries.is_whole and not entries.of(Kind.BINDING):
        yield Finding(
            Fate.QUESTION, "server", "policy bindings", "",
            "no file has them, so everybody may use all clients here",
            "name the file of GET /api/v3/policies/bindings/",
        )  # fmt: skip
    for prefix, what, remedy in _OTHERS:
        number = sum(count for model, count in entries.others.items() if model.startswith(prefix))
        if number:
            yield Finding(Fate.NOT_TAKEN, "server", what, "", f"{number:,} of them", remedy)
    if entries.unknown:
        yield Finding(
            Fate.NOT_TAKEN, "server", "other objects", "",
            f"{entries.unknown:,} entries are none that a migration takes",
        )  # fmt: skip
