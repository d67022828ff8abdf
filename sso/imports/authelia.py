"""Authelia, as the input of a migration: its configuration, its users file, and what it stores.

What it stores is read from its SQLite database, or from the YAML files that `authelia storage user
… export` writes, whichever database it has. Secrets in the database are encrypted.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from sso import clock
from sso.crypto import foreign_hashes
from sso.imports import authelia_clients, foreign_factors, reading, sqlite_files, yaml_files
from sso.imports.drafts import Answers
from sso.imports.files import Advance, Scratch
from sso.imports.findings import Fate, Finding
from sso.imports.foreign_factors import BROKEN_KEYS, MOST_PASSKEYS, OTHER_APPS, OTHER_HOST
from sso.imports.foreign_tables import Database
from sso.imports.person import APPS, KEYS, SHOWN, Factors, FileProblem, Person, mapping, text
from sso.imports.system import System
from sso.imports.yaml_files import is_on, listed, word

KIND = "authelia"
MOST_GROUPS, MOST_CLIENTS = 20_000, 5_000
_CONFIGURATION = (
    "identity_providers", "authentication_backend", "access_control", "session", "storage",
    "notifier", "server",
)  # fmt: skip
_STORED = ("identifiers", "totp_configurations", "webauthn_credentials")
_NEW_ENCRYPTION = 25  # the version of the schema that derives keys otherwise
_NONCE = 12  # bytes
_CRYPT = "{CRYPT}"  # before hashes, in old files
LOCKED_APPS = f"{APPS}: the encryption key is missing, or another (see --encryption-key)"
LOCKED_KEYS = f"{KEYS}: the encryption key is missing, or another (see --encryption-key)"
EXPORTED_KEYS = f"{KEYS}: only the SQLite database has all of them"
_IDENTIFIERS = (
    "authelia storage user identifiers generate --users NAMES; then name the database, or the file "
    "of: authelia storage user identifiers export"
)


@dataclass
class _Read:
    """What the files have. Of a person, by user name."""

    configuration: dict[str, Any] = field(default_factory=dict)
    users: dict[str, dict[str, Any]] = field(default_factory=dict)
    subjects: dict[str, str] = field(default_factory=dict)
    apps: dict[str, dict[str, Any]] = field(default_factory=dict)
    passkeys: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    handles: dict[tuple[str, str], str] = field(default_factory=dict)  # by relying party and user
    consents: dict[str, dict[str, list[str]]] = field(default_factory=dict)  # by subject
    key: bytes | None = None
    is_new_encryption: bool = False


def system(
    paths: Sequence[Path], answers: Answers, advance: Advance, rp_id: str, encryption_key: str
) -> System:
    """Read the files. Raises `FileProblem`.

    `rp_id`: the relying party of this server; `encryption_key`: that of Authelia's storage, "" if
    it is in the configuration, or not given.
    """
    files = _Read()
    for path in paths:
        if not sqlite_files.is_database(path):
            _take_yaml(files, path, advance)
    own_key = word(mapping(files.configuration.get("storage")).get("encryption_key"))
    if key := encryption_key or ("" if "{{" in own_key else own_key):
        files.key = hashlib.sha256(key.encode()).digest()
    for path in paths:
        if sqlite_files.is_database(path):
            _take_database(files, path)
            advance(path.stat().st_size * 2)
    if not (files.users or files.configuration):
        raise FileProblem("no file is a configuration or a users file of Authelia")
    oidc = mapping(mapping(files.configuration.get("identity_providers")).get("oidc"))
    drafts = list(authelia_clients.drafts(oidc, answers))
    groups = _groups(files)
    return System(
        kind=KIND,
        name=KIND,
        title=f"Authelia: {len(drafts):,} clients, {len(files.users):,} people",
        drafts=drafts,
        client_ids={draft.client_id for draft in drafts},
        groups=groups,
        people=lambda counts: _people(files, rp_id, counts),
        hash_methods=_methods(files),
        other_groups=sorted({g for d in drafts for g in (d.fields or {}).get("groups", ())}),
        findings=list(_findings(files, oidc)),
    )


def _take_yaml(files: _Read, path: Path, advance: Advance) -> None:
    content = mapping(yaml_files.read(path))
    advance(path.stat().st_size * 2)
    names = {name for name in (*_CONFIGURATION, "users", *_STORED) if name in content}
    if not names:
        raise FileProblem(
            f"{path} is neither a configuration of Authelia, nor a users file, nor an export"
        )
    if names & {*_CONFIGURATION}:
        files.configuration |= content
        clients = mapping(mapping(content.get("identity_providers")).get("oidc")).get("clients")
        ids = Counter(authelia_clients.client_id_of(mapping(c)) for c in listed(clients))
        if len(ids) > MOST_CLIENTS:
            raise FileProblem(f"{path} has more than {MOST_CLIENTS} clients")
        if twice := [name for name, count in ids.items() if count > 1 and name]:
            raise FileProblem(f"{path} has the client {twice[0][:60]} twice")
    for username, entry in mapping(content.get("users")).items():
        if username in files.users:
            raise FileProblem(f"{path}: {username[:60]!r} is in another file, too")
        files.users[username] = mapping(entry)
    for entry in map(mapping, listed(content.get("identifiers"))):
        _take_subject(files, entry)
    for entry in map(mapping, listed(content.get("totp_configurations"))):
        secret = foreign_factors.from_base64(word(entry.get("secret")))
        files.apps.setdefault(word(entry.get("username")), {**entry, "secret": secret})
    for entry in map(mapping, listed(content.get("webauthn_credentials"))):
        files.passkeys.setdefault(word(entry.get("username")), []).append({})


def _take_subject(files: _Read, entry: Mapping[str, Any]) -> None:
    # Others are the pairwise subjects of single clients.
    if word(entry.get("service")) == "openid" and not word(entry.get("sector_id")):
        files.subjects.setdefault(word(entry.get("username")), word(entry.get("identifier")))


def _take_database(files: _Read, path: Path) -> None:
    with sqlite_files.opened(path) as database:
        if "user_opaque_identifier" not in database.columns:
            raise FileProblem(f"{path} is no database of Authelia of version 4.35 or later")
        versions = [row["version_after"] for row in database.rows("migrations", ["version_after"])]
        newest = max((v for v in versions if isinstance(v, int)), default=0)
        files.is_new_encryption |= newest >= _NEW_ENCRYPTION
        of_subjects = ("service", "sector_id", "username", "identifier")
        for row in database.rows("user_opaque_identifier", of_subjects):
            _take_subject(files, row)
        of_apps = ("username", "algorithm", "digits", "period", "secret")
        for row in database.rows("totp_configurations", of_apps):
            secret = _decrypted(files, row.get("secret"))
            entry = {name: str(value) for name, value in row.items() if name != "secret"}
            files.apps.setdefault(word(row.get("username")), {**entry, "secret": secret})
        _take_passkeys(files, database)
        _take_consents(files, database)


def _take_passkeys(files: _Read, database: Database) -> None:
    for row in database.rows("webauthn_users", ("rpid", "username", "userid")):
        key = (word(row.get("rpid")), word(row.get("username")))
        files.handles[key] = text(row.get("userid"))
    columns = (
        "rpid", "username", "description", "kid", "transport", "sign_count", "public_key", "legacy",
    )  # fmt: skip
    for row in database.rows("webauthn_credentials", columns):
        row["public_key"] = _decrypted(files, row.get("public_key"))
        files.passkeys.setdefault(word(row.get("username")), []).append(row)
    for row in database.rows("webauthn_devices", ("username",)):  # before version 4.38
        files.passkeys.setdefault(word(row.get("username")), []).append({})


def _take_consents(files: _Read, database: Database) -> None:
    now = clock.now()
    columns = ("client_id", "subject", "expires_at", "revoked", "scopes")
    for row in database.rows("oauth2_consent_preconfiguration", columns):
        ends = row.get("expires_at")
        if row.get("revoked") or (ends is not None and not _is_later(str(ends), now)):
            continue
        scopes = text(row.get("scopes")).replace("|", " ").replace(",", " ").split()
        by_client = files.consents.setdefault(text(row.get("subject")), {})
        client_id = text(row.get("client_id"))
        if client_id.isprintable():
            by_client[client_id] = list(dict.fromkeys([*by_client.get(client_id, ()), *scopes]))


def _is_later(written: str, now: datetime) -> bool:
    """Return whether a time is after another; False if it cannot be read."""
    try:
        at = datetime.fromisoformat(written[:19])  # Go writes nanoseconds after that
    except ValueError:
        return False
    return at.replace(tzinfo=UTC) > now


def _decrypted(files: _Read, value: Any) -> bytes | None:
    """Decrypt a value of the database; `None` if that is not possible."""
    if files.key is None or not isinstance(value, bytes) or len(value) <= _NONCE:
        return None
    try:
        return AESGCM(files.key).decrypt(value[:_NONCE], value[_NONCE:], None)
    except InvalidTag:
        return None


def _groups(files: _Read) -> list[str]:
    names: dict[str, None] = {}
    for entry in files.users.values():
        names |= dict.fromkeys(filter(None, map(word, listed(entry.get("groups")))))
        if len(names) > MOST_GROUPS:
            raise FileProblem(f"the users file has more than {MOST_GROUPS} groups")
    return list(names)


def _methods(files: _Read) -> set[str]:
    methods = set[str]()
    for username, entry in files.users.items():
        method = foreign_hashes.method_of(_person(username, entry).password_hash)
        methods |= {method} if method else set()
    return methods


def _people(files: _Read, rp_id: str, counts: Counter[str]) -> Iterator[Person]:
    with closing(Scratch()) as scratch:
        for username, entry in files.users.items():
            person = _person(username, entry)
            person.source_id = files.subjects.get(username) or username
            _take_factors(person, username, files, rp_id)
            if person.refused is None:
                person.refused = reading.finished(person, KIND, scratch)
            is_taken = person.refused is None
            counts["without a subject of Authelia"] += is_taken and username not in files.subjects
            person.email = person.email[:SHOWN] if person.refused else person.email
            yield person


def _person(username: str, entry: Mapping[str, Any]) -> Person:
    person = Person(f"user {username[:SHOWN]}")
    person.email_verified = True  # Authelia says so to applications
    person.disabled = is_on(entry.get("disabled"))
    person.take_claims({name: word(value) for name, value in entry.items()})
    person.claims["preferred_username"] = username.strip()
    person.take_names(word(entry.get("displayname")), email=word(entry.get("email")),
                      username=username)  # fmt: skip
    person.groups = list(filter(None, map(word, listed(entry.get("groups")))))
    if mapping(entry.get("address")):
        person.lost.append("addresses")
    person.attributes = {
        name: value
        for name, content in mapping(entry.get("extra")).items()
        if (value := list(filter(None, map(word, listed(content)))))
    }
    stored = word(entry.get("password")).removeprefix(_CRYPT)
    person.take_password(lambda: foreign_hashes.from_text(stored))
    return person


def _take_factors(person: Person, username: str, files: _Read, rp_id: str) -> None:
    person.factors = factors = Factors()
    if app := files.apps.get(username):
        secret = app["secret"]
        settings = [word(app.get(name)) for name in ("algorithm", "digits", "period")]
        if secret is None:
            person.lost.append(LOCKED_APPS)
        elif settings != ["SHA1", "6", "30"]:
            person.lost.append(OTHER_APPS)
        else:
            plain = foreign_factors.from_base32(secret.decode("utf-8", "replace"))
            factors.totp = foreign_factors.totp_secret(plain)
            person.lost += [] if factors.totp else [OTHER_APPS]
    for row in files.passkeys.get(username, ()):
        if problem := _take_passkey(factors, row, files, rp_id):
            person.lost.append(problem)
    factors.consents = files.consents.get(files.subjects.get(username, ""), {})


def _take_passkey(factors: Factors, row: Mapping[str, Any], files: _Read, rp_id: str) -> str | None:
    """Take a passkey. Returns why it is lost."""
    host = text(row.get("rpid"))
    handle = files.handles.get((host, text(row.get("username"))), "")
    if not row or row.get("legacy") or not handle:
        return EXPORTED_KEYS
    if not rp_id or host.lower() != rp_id.lower():
        return OTHER_HOST
    if row["public_key"] is None:
        return LOCKED_KEYS
    passkey = foreign_factors.passkey(
        foreign_factors.from_base64(row.get("kid")), row["public_key"],
        count=row.get("sign_count", 0), transports=text(row.get("transport")).split(","),
        label=text(row.get("description")), user_handle=handle.encode(),
    )  # fmt: skip
    if passkey is None or len(factors.passkeys) >= MOST_PASSKEYS:
        return BROKEN_KEYS
    factors.passkeys.append(passkey)
    return None


def _findings(files: _Read, oidc: Mapping[str, Any]) -> Iterator[Finding]:
    if files.users and not files.subjects:
        yield Finding(
            Fate.QUESTION, "subject", "all", "", "no file has the subjects that applications get, "
            "so each of them would see new people", _IDENTIFIERS,
        )  # fmt: skip
    if files.is_new_encryption:
        yield Finding(
            Fate.NOT_TAKEN, "server", "encrypted storage", "", "this version encrypts otherwise",
            "for authenticator apps: authelia storage user totp export",
        )  # fmt: skip
    rules = listed(mapping(files.configuration.get("access_control")).get("rules"))
    if rules:
        yield Finding(
            Fate.NOT_TAKEN, "server", "access control", "",
            f"{len(rules)} rules about hosts behind a proxy",
            "register each application: docs/how-to/forward-auth.md",
        )  # fmt: skip
    if mapping(mapping(files.configuration.get("authentication_backend")).get("ldap")):
        yield Finding(
            Fate.NOT_TAKEN, "directory", "LDAP", "", "its people are not in the files",
            "connect the directory: docs/how-to/ldap.md",
        )  # fmt: skip
    if mapping(files.configuration.get("duo_api")):
        yield Finding(
            Fate.NOT_TAKEN, "server", "Duo", "", "this server has no push messages",
            "let people set up a passkey or an authenticator app",
        )  # fmt: skip
    if mapping(oidc.get("lifespans")):
        yield Finding(
            Fate.NOT_TAKEN, "server", "lifespans", "", "lifetimes are settings here",
            "docs/reference/settings.md",
        )  # fmt: skip
