"""The exports of other systems, read one person at a time.

Keycloak: `kc.sh export` of a realm, in one file or a file of users. Django: `manage.py dumpdata
auth`, also of a custom user model. better-auth: the tables of users and accounts, in one JSON
object. Auth0: the export of password hashes, that of users, or both in one file, one JSON object a
line; the format of Auth0's own bulk import is read, too.
"""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from sso.crypto import foreign_hashes
from sso.flow.profile_claims import CLAIMS
from sso.imports.files import ITEM, Advance, Scratch, entries
from sso.imports.person import APPS, CODES, IDENTITIES, KEYS, Person, flag, mapping, text, texts

_AUTH0_PLACES: tuple[tuple[str | None, ...], ...] = ((), (ITEM,))
_PREFIX = "auth0|"  # of ids in the export of users
AUTH0_SUBJECTS = "auth0_user_id"  # the attribute for what Auth0's applications know people by


def read_auth0(path: Path, scratch: Scratch, advance: Advance, roles: bool) -> Iterator[Person]:
    """Yield the people in an Auth0 export. Raises `FileProblem`."""
    for _, entry in entries(path, _AUTH0_PLACES, advance):
        fields = mapping(entry)
        if oid := _id_of_hash(fields):
            scratch.put("hash", oid, text(fields.get("passwordHash")))
        elif user_id := text(fields.get("user_id")):
            scratch.put("user", user_id.removeprefix(_PREFIX), "")
    for number, (_, entry) in enumerate(entries(path, _AUTH0_PLACES, advance), 1):
        fields = mapping(entry)
        oid = _id_of_hash(fields)
        if oid is None or scratch.get("user", oid) is None:
            yield _auth0_person(fields, f"line {number}", scratch, roles)


def _id_of_hash(entry: dict[str, Any]) -> str | None:
    """Return the id in a line of the export of password hashes."""
    return text(mapping(entry.get("_id")).get("$oid")) or None


def _auth0_person(entry: dict[str, Any], where: str, scratch: Scratch, roles: bool) -> Person:
    user_id = text(entry.get("user_id")) or _id_of_hash(entry) or ""
    person = Person(where, source_id=user_id.removeprefix(_PREFIX))
    if user_id:
        person.attributes[AUTH0_SUBJECTS] = user_id if "|" in user_id else _PREFIX + user_id
        person.subjects = {AUTH0_SUBJECTS}
    person.email_verified = flag(entry.get("email_verified"))
    person.disabled = flag(entry.get("blocked"))
    person.take_claims(entry)
    person.take_names(entry.get("name"), email=entry.get("email"), username=entry.get("username"))
    if roles:
        of_app = mapping(entry.get("app_metadata"))
        person.groups = texts(of_app.get("roles")) or texts(entry.get("roles"))
    if any(entry.get(name) for name in ("multifactor", "mfa_factors", "guardian_authenticators")):
        person.lost.append(APPS)
    identities = entry.get("identities")
    for identity in map(mapping, identities if isinstance(identities, list) else ()):
        if text(identity.get("provider")) not in ("", "auth0") and IDENTITIES not in person.lost:
            person.lost.append(IDENTITIES)
    if custom := mapping(entry.get("custom_password_hash")):
        person.take_password(lambda: foreign_hashes.from_auth0(custom))
    else:
        stored = text(entry.get("passwordHash")) or text(entry.get("password_hash"))
        stored = stored or scratch.get("hash", person.source_id) or ""
        person.take_password(lambda: foreign_hashes.from_text(stored))
    return person


_USERS = (("user", ITEM), ("users", ITEM))
_OTHERS = {"account": "account", "accounts": "account", "passkey": "passkey", "passkeys": "passkey"}


def read_better_auth(
    path: Path, scratch: Scratch, advance: Advance, roles: bool
) -> Iterator[Person]:
    """Yield the people in a better-auth export. Raises `FileProblem`."""
    for place, entry in entries(path, [(name, ITEM) for name in _OTHERS], advance):
        fields = mapping(entry)
        user_id = str(_of(fields, "userId", "user_id"))
        if _OTHERS[str(place[0])] == "passkey":
            scratch.put("passkey", user_id, "")
        elif _of(fields, "providerId", "provider_id") == "credential":
            scratch.put("password", user_id, text(fields.get("password")))
        else:
            scratch.put("identity", user_id, "")
    for number, (_, entry) in enumerate(entries(path, _USERS, advance), 1):
        yield _better_auth_person(mapping(entry), f"user {number}", scratch, roles)


def _of(entry: dict[str, Any], *names: str) -> Any:
    """Return a column by its name in camel case or snake case."""
    return next((entry[name] for name in names if name in entry), None)


def _better_auth_person(entry: dict[str, Any], where: str, scratch: Scratch, roles: bool) -> Person:
    key = entry.get("id")
    person = Person(where, source_id=str(key)[:200] if isinstance(key, int | str) else "")
    person.email_verified = flag(_of(entry, "emailVerified", "email_verified"))
    person.disabled = flag(entry.get("banned"))
    person.take_claims({**entry, "picture": entry.get("image")})
    person.take_names(entry.get("name"), email=entry.get("email"), username=entry.get("username"))
    if roles:
        person.groups = [r.strip() for r in text(entry.get("role")).split(",") if r.strip()]
    if flag(_of(entry, "twoFactorEnabled", "two_factor_enabled")):
        person.lost.append(APPS)
    for kind, description in (("identity", IDENTITIES), ("passkey", KEYS)):
        if scratch.get(kind, person.source_id) is not None:
            person.lost.append(description)
    stored = scratch.get("password", person.source_id) or ""
    person.take_password(lambda: foreign_hashes.from_better_auth(stored))
    return person


_DJANGO_PLACES: tuple[tuple[str | None, ...], ...] = ((), (ITEM,))  # json and jsonl
_PRIVILEGES = "is_staff, is_superuser and permissions"


def read_django(path: Path, scratch: Scratch, advance: Advance, roles: bool) -> Iterator[Person]:
    """Yield the people in a Django export. Raises `FileProblem`."""
    for _, entry in entries(path, _DJANGO_PLACES, advance):
        row = mapping(entry)
        if text(row.get("model")).lower() == "auth.group":
            name = text(mapping(row.get("fields")).get("name"))
            scratch.put("group", str(row.get("pk")), name)
    for number, (_, entry) in enumerate(entries(path, _DJANGO_PLACES, advance), 1):
        row = mapping(entry)
        fields = mapping(row.get("fields"))
        if isinstance(fields.get("password"), str):  # a user, in whatever application
            yield _django_person(fields, row.get("pk"), f"entry {number}", scratch)


def _django_person(fields: dict[str, Any], key: Any, where: str, scratch: Scratch) -> Person:
    person = Person(where, source_id=str(key)[:200] if isinstance(key, int | str) else "")
    person.disabled = not flag(fields.get("is_active", True))
    person.take_claims(
        {"given_name": fields.get("first_name"), "family_name": fields.get("last_name")}
    )
    person.email_verified = flag(fields.get("email_verified"))
    names = (fields.get("name"), fields.get("full_name"))
    person.take_names(*names, email=fields.get("email"), username=fields.get("username"))
    groups = fields.get("groups")
    for group in groups if isinstance(groups, list) else ():
        natural = text(group[0]) if isinstance(group, list) and group else ""
        if name := natural or scratch.get("group", str(group)[:200]):
            person.groups.append(name)
        else:
            person.lost.append("groups that the file does not name")
    if any(map(fields.get, ("is_staff", "is_superuser", "user_permissions"))):
        person.lost.append(_PRIVILEGES)
    person.take_password(lambda: foreign_hashes.from_text(text(fields["password"])))
    return person


KEYCLOAK_PLACES = (("users", ITEM), (ITEM, "users", ITEM))
_LOST = {
    "otp": APPS, "totp": APPS, "hotp": APPS, "webauthn": KEYS, "webauthn-passwordless": KEYS,
    "recovery-authn-codes": CODES,
}  # fmt: skip
_USUAL_ROLES = ("offline_access", "uma_authorization")
_USUAL_ROLES_OF_REALM = "default-roles-"
_MOST_JSON = 10_000  # characters


def read_keycloak(path: Path, scratch: Scratch, advance: Advance, roles: bool) -> Iterator[Person]:
    """Yield the people in a Keycloak export. Raises `FileProblem`."""
    for number, (_, entry) in enumerate(entries(path, KEYCLOAK_PLACES, advance), 1):
        yield keycloak_person(mapping(entry), f"user {number}", roles)


def keycloak_person(entry: dict[str, Any], where: str, roles: bool) -> Person:
    """Return a person of an export; with `roles`, those of the realm are groups."""
    person = Person(where, source_id=text(entry.get("id")))
    person.email_verified = flag(entry.get("emailVerified"))
    person.disabled = not flag(entry.get("enabled", True))
    attributes = mapping(entry.get("attributes"))
    # Where it is allowed, people choose the names of attributes, but not their user name.
    person.take_claims({
        name: next(iter(texts(values)), "") for name, values in attributes.items()
        if name != "preferred_username"
    })  # fmt: skip
    person.attributes = {
        name: values
        for name, listed in attributes.items()
        if name not in CLAIMS and (values := texts(listed))
    }
    person.take_claims({"given_name": entry.get("firstName"), "family_name": entry.get("lastName")})
    person.take_names(email=entry.get("email"), username=entry.get("username"))
    person.groups = [path.removeprefix("/") for path in texts(entry.get("groups"))]
    if roles:
        person.groups += [
            role
            for role in texts(entry.get("realmRoles"))
            if role not in _USUAL_ROLES and not role.startswith(_USUAL_ROLES_OF_REALM)
        ]
    if entry.get("serviceAccountClientId"):
        person.refused = "it is the service account of a client"
    if entry.get("federatedIdentities"):
        person.lost.append(IDENTITIES)
    credentials = entry.get("credentials")
    for credential in map(mapping, credentials if isinstance(credentials, list) else ()):
        kind = text(credential.get("type"))
        if kind == "password" and not (person.password_hash or person.password_problem):
            person.take_password(partial(_password, credential))
        elif kind in _LOST:
            person.lost.append(_LOST[kind])
    return person


def _password(credential: dict[str, Any]) -> str | None:
    if "hashedSaltedValue" in credential:  # before version 8
        old = {"value": credential["hashedSaltedValue"], "salt": credential.get("salt")}
        return foreign_hashes.from_keycloak(old, credential)
    return foreign_hashes.from_keycloak(
        _parsed(credential.get("secretData")), _parsed(credential.get("credentialData"))
    )


def _parsed(value: Any) -> dict[str, Any]:
    """Return the JSON object in a text; empty if it is invalid."""
    try:
        return mapping(json.loads(value[:_MOST_JSON]) if isinstance(value, str) else value)
    except (ValueError, RecursionError):
        return {}
