"""People from a realm of Keycloak: `kc.sh export`, in one file or a file of users."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from sso.crypto import foreign_hashes
from sso.imports.json_files import ITEM, Advance, entries
from sso.imports.person import APPS, CODES, IDENTITIES, KEYS, Person, flag, mapping, text, texts
from sso.imports.scratch import Scratch

_PLACES = (("users", ITEM), (ITEM, "users", ITEM))
_LOST = {
    "otp": APPS, "totp": APPS, "hotp": APPS, "webauthn": KEYS, "webauthn-passwordless": KEYS,
    "recovery-authn-codes": CODES,
}  # fmt: skip
_USUAL_ROLES = ("offline_access", "uma_authorization")
_USUAL_ROLES_OF_REALM = "default-roles-"
_MOST_JSON = 10_000  # characters


def read(path: Path, scratch: Scratch, advance: Advance, roles: bool) -> Iterator[Person]:
    """Raises `FileProblem`."""
    for number, (_, entry) in enumerate(entries(path, _PLACES, advance), 1):
        yield _person(mapping(entry), f"user {number}", roles)


def _person(entry: dict[str, Any], where: str, roles: bool) -> Person:
    person = Person(where, source_id=text(entry.get("id")))
    person.email_verified = flag(entry.get("emailVerified"))
    person.disabled = not flag(entry.get("enabled", True))
    attributes = mapping(entry.get("attributes"))
    person.take_claims({name: next(iter(texts(found)), "") for name, found in attributes.items()})
    person.take_claims({"given_name": entry.get("firstName"), "family_name": entry.get("lastName")})
    person.take_names(email=entry.get("email"), username=entry.get("username"))
    person.groups = [one.removeprefix("/") for one in texts(entry.get("groups"))]
    if roles:
        person.groups += [
            one
            for one in texts(entry.get("realmRoles"))
            if one not in _USUAL_ROLES and not one.startswith(_USUAL_ROLES_OF_REALM)
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
    """JSON in a text."""
    try:
        return mapping(json.loads(value[:_MOST_JSON]) if isinstance(value, str) else value)
    except (ValueError, RecursionError):
        return {}
