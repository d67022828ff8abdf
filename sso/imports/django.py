"""People from Django: `manage.py dumpdata auth`, also of a user model of its own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sso.crypto import foreign_hashes
from sso.imports.json_files import ITEM, Advance, entries
from sso.imports.person import Person, flag, mapping, text
from sso.imports.scratch import Scratch

_PLACES: tuple[tuple[str | None, ...], ...] = ((), (ITEM,))  # json and jsonl
_PRIVILEGES = "is_staff, is_superuser and permissions"


def read(path: Path, scratch: Scratch, advance: Advance, roles: bool) -> Iterator[Person]:
    """Raises `FileProblem`."""
    for _, entry in entries(path, _PLACES, advance):
        found = mapping(entry)
        if text(found.get("model")).lower() == "auth.group":
            name = text(mapping(found.get("fields")).get("name"))
            scratch.put("group", str(found.get("pk")), name)
    for number, (_, entry) in enumerate(entries(path, _PLACES, advance), 1):
        found = mapping(entry)
        fields = mapping(found.get("fields"))
        if isinstance(fields.get("password"), str):  # a user, in whatever application
            yield _person(fields, found.get("pk"), f"entry {number}", scratch)


def _person(fields: dict[str, Any], key: Any, where: str, scratch: Scratch) -> Person:
    person = Person(where, source_id=str(key)[:200] if isinstance(key, int | str) else "")
    person.disabled = not flag(fields.get("is_active", True))
    person.take_claims(
        {"given_name": fields.get("first_name"), "family_name": fields.get("last_name")}
    )
    person.email_verified = flag(fields.get("email_verified"))
    names = (fields.get("name"), fields.get("full_name"))
    person.take_names(*names, email=fields.get("email"), username=fields.get("username"))
    groups = fields.get("groups")
    for one in groups if isinstance(groups, list) else ():
        natural = text(one[0]) if isinstance(one, list) and one else ""
        if name := natural or scratch.get("group", str(one)[:200]):
            person.groups.append(name)
        else:
            person.lost.append("groups that the file does not name")
    if any(map(fields.get, ("is_staff", "is_superuser", "user_permissions"))):
        person.lost.append(_PRIVILEGES)
    person.take_password(lambda: foreign_hashes.from_text(text(fields["password"])))
    return person
