"""People from Auth0: the export of password hashes, that of users, or both in one file.

Either is one JSON object a line. The format of Auth0's own bulk import is read, too.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sso.crypto import foreign_hashes
from sso.imports.json_files import ITEM, Advance, entries
from sso.imports.person import APPS, IDENTITIES, Person, flag, mapping, text, texts
from sso.imports.scratch import Scratch

_PLACES: tuple[tuple[str | None, ...], ...] = ((), (ITEM,))
_PREFIX = "auth0|"  # of ids in the export of users


def read(path: Path, scratch: Scratch, advance: Advance, roles: bool) -> Iterator[Person]:
    """Raises `FileProblem`."""
    for _, entry in entries(path, _PLACES, advance):
        found = mapping(entry)
        if oid := _id_of_hash(found):
            scratch.put("hash", oid, text(found.get("passwordHash")))
        elif user_id := text(found.get("user_id")):
            scratch.put("user", user_id.removeprefix(_PREFIX), "")
    for number, (_, entry) in enumerate(entries(path, _PLACES, advance), 1):
        found = mapping(entry)
        oid = _id_of_hash(found)
        if oid is None or scratch.get("user", oid) is None:
            yield _person(found, f"line {number}", scratch, roles)


def _id_of_hash(entry: dict[str, Any]) -> str | None:
    """The id in a line of the export of password hashes."""
    return text(mapping(entry.get("_id")).get("$oid")) or None


def _person(entry: dict[str, Any], where: str, scratch: Scratch, roles: bool) -> Person:
    user_id = text(entry.get("user_id")) or _id_of_hash(entry) or ""
    person = Person(where, source_id=user_id.removeprefix(_PREFIX))
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
    for one in map(mapping, identities if isinstance(identities, list) else ()):
        if text(one.get("provider")) not in ("", "auth0") and IDENTITIES not in person.lost:
            person.lost.append(IDENTITIES)
    if custom := mapping(entry.get("custom_password_hash")):
        person.take_password(lambda: foreign_hashes.from_auth0(custom))
    else:
        stored = text(entry.get("passwordHash")) or text(entry.get("password_hash"))
        stored = stored or scratch.get("hash", person.source_id) or ""
        person.take_password(lambda: foreign_hashes.from_text(stored))
    return person
