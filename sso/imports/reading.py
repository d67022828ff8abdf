"""All formats: read the people of a file, with normalized emails and without duplicates."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from uuid import UUID, uuid5

from sso.config import email_addresses
from sso.crypto import foreign_hashes
from sso.imports import files, formats
from sso.imports.files import Advance, Scratch
from sso.imports.person import KEYS_OF_OTHERS, LINKS_OF_OTHERS, SHOWN, FileProblem, Person

# A reader, and the number of times that it reads the file.
FORMATS: Mapping[str, tuple[Callable[[Path, Scratch, Advance, bool], Iterator[Person]], int]] = {
    "csv": (files.read_csv, 1),
    "keycloak": (formats.read_keycloak, 1),
    "auth0": (formats.read_auth0, 2),
    "django": (formats.read_django, 2),
    "better-auth": (formats.read_better_auth, 2),
}
# Ids are derived from it and from the source's ids: never change it.
_NAMESPACE = UUID("5b1f5a6e-6c0b-4f43-9d0e-0f0c1a7f3f52")


def read(
    kind: str, path: Path, *, source: str, roles: bool, report: Callable[[int, int], None] | None
) -> Iterator[Person]:
    """Yield the people in a file. Raises `FileProblem`.

    `source` distinguishes several systems of one kind whose ids overlap. `report`: called with the
    number of bytes that were read, and the total.
    """
    reader, times = FORMATS[kind]
    try:
        if not path.is_file():  # a pipe cannot be read twice
            raise FileNotFoundError(0, "there is no such file")
        size = path.stat().st_size * times
    except OSError as error:
        raise FileProblem(f"{path} cannot be read: {error.strerror}") from None

    def advance(done: int) -> None:
        if report:
            report(done, size)

    with closing(Scratch()) as scratch:
        for person in reader(path, scratch, advance, roles):
            if person.refused is None:
                person.refused = finished(person, source, scratch)
            person.email = person.email[:SHOWN] if person.refused else person.email
            yield person


def methods(kind: str, path: Path, most: int) -> set[str]:
    """Return at most `most` methods of the password hashes in a file, as far as it is readable."""
    reader, _ = FORMATS[kind]
    hash_methods: set[str] = set()
    with closing(Scratch()) as scratch, suppress(FileProblem, OSError):
        for person in reader(path, scratch, lambda _: None, False):
            method = foreign_hashes.method_of(person.password_hash)
            if method and len(hash_methods) < most:
                hash_methods.add(method)
    return hash_methods


def finished(person: Person, source: str, scratch: Scratch) -> str | None:
    """Normalize the email address, set the user's ID, and leave out factors of an earlier person.

    Returns why that cannot be done.
    """
    try:
        person.email = email_addresses.normalized(person.email)
        person.email.encode()
    except ValueError as error:
        person.detail = str(error)[:SHOWN]
        return "the email address is not valid"
    if before := scratch.put("email", person.email, person.where):
        person.detail = f"see {before}"
        return "another in the file has the same email address"
    if person.source_id:
        try:
            person.user_id = _id(person.source_id, source)
        except ValueError:
            return "the ID is not valid"
        if before := scratch.put("id", person.user_id.hex, person.where):
            person.detail = f"see {before}"
            return "another in the file has the same ID"
    _leave_out_factors(person, scratch)
    return None


def _leave_out_factors(person: Person, scratch: Scratch) -> None:
    """Leave out passkeys and links that an earlier person of the file has: one of both lies."""
    factors = person.factors
    keys = [key for key in factors.passkeys if _is_first(person, "key", key.credential_id, scratch)]
    links = [
        link for link in factors.identities
        if _is_first(person, "link", "\n".join(link[1:]), scratch)
    ]  # fmt: skip
    if len(keys) < len(factors.passkeys):
        person.lost.append(KEYS_OF_OTHERS)
    if len(links) < len(factors.identities):
        person.lost.append(LINKS_OF_OTHERS)
    factors.passkeys, factors.identities = keys, links


def _is_first(person: Person, kind: str, key: str, scratch: Scratch) -> bool:
    return scratch.put(kind, key, person.where) in (None, person.where)


def _id(text: str, source: str) -> UUID:
    """Return the user id for an id of the source. UUIDs stay, so that applications keep them."""
    try:
        if str(user_id := UUID(text)) == text.lower():
            return user_id
    except ValueError:
        pass
    return uuid5(_NAMESPACE, f"{source}:{text}")
