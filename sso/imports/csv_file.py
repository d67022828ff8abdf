"""People from a table: CSV with a line of headings."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from sso.crypto import foreign_hashes
from sso.imports.json_files import Advance
from sso.imports.person import TEXT_CLAIMS, FileProblem, Person, text
from sso.imports.scratch import Scratch

LONGEST_LINE, LONGEST_ROW = 100_000, 500_000  # characters
_OWN = ("email", "name", "id", "email_verified", "disabled", "groups", "password_hash")
_KNOWN = (*_OWN, *sorted(TEXT_CLAIMS), "phone_number_verified")
_FLAGS = {"": False, "0": False, "1": True} | {
    word: word in "true yes t" for word in ("true", "yes", "t", "false", "no", "f")
}


class _Lines:
    """The lines of a file, none of them too long, nor too many in one row."""

    def __init__(self, file: TextIO, advance: Advance) -> None:
        self._file, self._advance, self.number, self.of_row = file, advance, 0, 0

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        line = self._file.readline(LONGEST_LINE)
        if not line:
            raise StopIteration
        self.number += 1
        self.of_row += len(line)
        if len(line) == LONGEST_LINE:
            raise FileProblem(f"it is longer than {LONGEST_LINE} characters")
        if self.of_row > LONGEST_ROW:
            raise FileProblem("the row has no end; is a quotation mark missing?")
        self._advance(len(line))
        return line


def read(path: Path, scratch: Scratch, advance: Advance, roles: bool) -> Iterator[Person]:
    """Raises `FileProblem`."""
    number = 0
    try:
        # What is not UTF-8 is refused with its row.
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            lines = _Lines(file, advance)
            try:
                first = next(lines, "")
                columns, delimiter = _columns(first)
                rows = csv.reader(lines, delimiter=delimiter, strict=True)
                for row in rows:
                    number, lines.of_row = lines.number, 0
                    if row:
                        yield _person(columns, row, f"line {number}")
            except (csv.Error, FileProblem) as error:
                raise FileProblem(f"{path}, line {lines.number}: {error}") from None
    except OSError as error:
        raise FileProblem(f"{path} cannot be read: {error.strerror}") from None


def _columns(line: str) -> tuple[list[str], str]:
    delimiter = max(",;\t", key=line.count)
    row = next(csv.reader([line], delimiter=delimiter, strict=True), [])
    columns = [one.strip().lower() for one in row]
    unknown = [one for one in columns if one not in _KNOWN]
    if unknown:
        raise FileProblem(
            f"there is no column {unknown[0][:60]!r}; the first line names the columns, some of: "
            + ", ".join(_KNOWN)
        )
    if len(set(columns)) < len(columns) or "email" not in columns:
        raise FileProblem("each column is named once, and one of them is email")
    return columns, delimiter


def _person(columns: list[str], row: list[str], where: str) -> Person:
    person = Person(where)
    if len(row) != len(columns):
        person.refused = f"the row does not have {len(columns)} fields"
        return person
    found = {name: value.strip() for name, value in zip(columns, row, strict=True)}
    flags = {}
    for name in ("email_verified", "disabled", "phone_number_verified"):
        flags[name] = _FLAGS.get(found.get(name, "").lower())
        if flags[name] is None:
            person.refused = f"{name} is neither true nor false"
            return person
    person.source_id = text(found.get("id"))
    person.email_verified, person.disabled = bool(flags["email_verified"]), bool(flags["disabled"])
    person.take_claims(found)
    if found.get("phone_number_verified"):
        person.claims["phone_number_verified"] = flags["phone_number_verified"]
    person.groups = [one.strip() for one in found.get("groups", "").split(",") if one.strip()]
    person.take_names(found.get("name"), email=found["email"], username="")
    person.take_password(lambda: foreign_hashes.from_text(found.get("password_hash", "")))
    return person
