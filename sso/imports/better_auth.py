"""People from better-auth: the tables of users and accounts, in one JSON object."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sso.crypto import foreign_hashes
from sso.imports.json_files import ITEM, Advance, entries
from sso.imports.person import APPS, IDENTITIES, KEYS, Person, flag, mapping, text
from sso.imports.scratch import Scratch

_USERS = (("user", ITEM), ("users", ITEM))
_OTHERS = {"account": "account", "accounts": "account", "passkey": "passkey", "passkeys": "passkey"}


def read(path: Path, scratch: Scratch, advance: Advance, roles: bool) -> Iterator[Person]:
    """Raises `FileProblem`."""
    for place, entry in entries(path, [(name, ITEM) for name in _OTHERS], advance):
        found = mapping(entry)
        user_id = str(_of(found, "userId", "user_id"))
        if _OTHERS[str(place[0])] == "passkey":
            scratch.put("passkey", user_id, "")
        elif _of(found, "providerId", "provider_id") == "credential":
            scratch.put("password", user_id, text(found.get("password")))
        else:
            scratch.put("identity", user_id, "")
    for number, (_, entry) in enumerate(entries(path, _USERS, advance), 1):
        yield _person(mapping(entry), f"user {number}", scratch, roles)


def _of(entry: dict[str, Any], *names: str) -> Any:
    """A column, by its name in camel or in snake case."""
    return next((entry[name] for name in names if name in entry), None)


def _person(entry: dict[str, Any], where: str, scratch: Scratch, roles: bool) -> Person:
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
    for kind, words in (("identity", IDENTITIES), ("passkey", KEYS)):
        if scratch.get(kind, person.source_id) is not None:
            person.lost.append(words)
    stored = scratch.get("password", person.source_id) or ""
    person.take_password(lambda: foreign_hashes.from_better_auth(stored))
    return person
