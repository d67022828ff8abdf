"""Readers of files: CSV with a line of headings, and large JSON one entry at a time.

Data that has to be looked up while an export is read is stored in a private temporary file.
"""

import csv
import re
import sqlite3
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import ijson

from sso.config.user_fields import FIELDS
from sso.crypto import foreign_hashes
from sso.flow.profile_claims import CLAIMS, TEXT_CLAIMS, Format
from sso.imports.person import FileProblem, Person, text

Place = tuple[str | None, ...]  # the keys that lead to an entry; `ITEM` in a list
Advance = Callable[[int], None]  # called with the number of bytes that were read
ITEM = "[]"
LONGEST_ENTRY = 1024 * 1024  # bytes of an entry, and of a text outside of entries
DEEPEST = 40
_STARTS: dict[str, type[dict[str, Any]] | type[list[Any]]] = {
    "start_map": dict,
    "start_array": list,
}
_ENDS = ("end_map", "end_array")
_MARK = b"\xef\xbb\xbf"  # the byte order mark that Windows writes before UTF-8


class _Source:
    """A file that limits the length of texts, and reports the progress."""

    def __init__(self, file: BinaryIO, advance: Advance) -> None:
        self._file, self._advance, self._is_begun = file, advance, False
        self.without_event = 0

    def read(self, size: int) -> bytes:
        chunk = self._file.read(size)
        if chunk and not self._is_begun:  # ijson reads nothing first, to see the type
            chunk, self._is_begun = chunk.removeprefix(_MARK), True
        self._advance(len(chunk))
        self.without_event += len(chunk)
        if self.without_event > LONGEST_ENTRY + size:
            raise FileProblem(f"it has a text of more than {LONGEST_ENTRY} bytes")
        return chunk


def is_json(path: Path) -> bool:
    """Return whether a file begins like a list or an object. Raises `FileProblem`."""
    try:
        with path.open("rb") as file:
            return file.read(1024).removeprefix(_MARK).lstrip()[:1] in (b"{", b"[")
    except OSError as error:
        raise FileProblem(f"{path} cannot be read: {error.strerror}") from None


def entries(path: Path, places: Collection[Place], advance: Advance) -> Iterator[tuple[Place, Any]]:
    """Yield each object at one of the places, of one or several JSON values.

    Raises `FileProblem`.
    """
    count = 0
    try:
        with path.open("rb") as file:
            for entry in _entries(_Source(file, advance), places):
                count += 1
                yield entry
    except OSError as error:
        raise FileProblem(f"{path} cannot be read: {error.strerror}") from None
    except FileProblem as error:
        raise FileProblem(f"{path}, after entry {count}: {error}") from None
    except (ijson.JSONError, ValueError, OverflowError):
        raise FileProblem(f"{path}, after entry {count}: it is not JSON in UTF-8") from None


def _entries(source: _Source, places: Collection[Place]) -> Iterator[tuple[Place, Any]]:
    trail: list[str | None] = []
    open_: list[Any] = []  # containers of the entry that is being read, and the key in each
    keys: list[str | None] = []
    size = 0
    for event, value in ijson.basic_parse(source, use_float=True, multiple_values=True):
        source.without_event = 0
        if not open_:
            if event == "map_key":
                trail[-1] = value
            elif event in _ENDS:
                trail.pop()
            elif (here := tuple(trail)) in places and event != "start_array":
                if event == "start_map":
                    open_, keys, size = [{}], [None], 0
                else:
                    yield here, value
            elif event in _STARTS:
                trail.append(None if event == "start_map" else ITEM)
                _bound(len(trail), DEEPEST, "levels")
            continue
        size += 16 + (len(value) if isinstance(value, str) else 0)
        _bound(size, LONGEST_ENTRY, "bytes in one entry")
        if event == "map_key":
            keys[-1] = value
        elif event in _STARTS:
            inner = _STARTS[event]()
            _put(open_[-1], keys[-1], inner)
            open_.append(inner)
            keys.append(None)
            _bound(len(open_), DEEPEST, "levels")
        elif event in _ENDS:
            whole = open_.pop()
            keys.pop()
            if not open_:
                yield tuple(trail), whole
        else:
            _put(open_[-1], keys[-1], value)


def _put(container: Any, key: str | None, value: Any) -> None:
    if isinstance(container, list):
        container.append(value)
    else:
        container[key] = value


def _bound(number: int, most: int, unit: str) -> None:
    if number > most:
        raise FileProblem(f"it has more than {most} {unit}")


class Scratch:
    """A store of texts by kind and key, in memory or, if they are many, on disk."""

    def __init__(self) -> None:
        # Without a name, SQLite uses a temporary file that it deletes itself.
        self._file = sqlite3.connect("", isolation_level=None)
        self._file.execute("PRAGMA journal_mode = OFF")
        self._file.execute("PRAGMA synchronous = OFF")
        self._file.execute(
            "CREATE TABLE texts (kind TEXT, key TEXT, text TEXT, PRIMARY KEY (kind, key))"
            " WITHOUT ROWID"
        )

    def put(self, kind: str, key: str, text: str) -> str | None:
        """Store a text; if there is one already, keep and return it."""
        done = self._file.execute("INSERT OR IGNORE INTO texts VALUES (?, ?, ?)", (kind, key, text))
        return None if done.rowcount else self.get(kind, key)

    def get(self, kind: str, key: str) -> str | None:
        row = self._file.execute(
            "SELECT text FROM texts WHERE kind = ? AND key = ?", (kind, key)
        ).fetchone()
        return row[0] if row else None

    def close(self) -> None:
        self._file.close()


LONGEST_LINE, LONGEST_ROW = 100_000, 500_000  # characters
_ATTRIBUTE = "attribute."  # before the name of an attribute
_APART = ("claims", "attributes", "initial_password")
_OWN = tuple(name for name in FIELDS if name not in _APART)
_SWITCHES = tuple(name for name, claim in CLAIMS.items() if claim.format is Format.SWITCH)
_KNOWN = (*_OWN, *sorted(TEXT_CLAIMS), *_SWITCHES)
_FLAGS = {"": False, "0": False, "1": True} | {
    word: word in "true yes t" for word in ("true", "yes", "t", "false", "no", "f")
}


class _Lines:
    """The lines of a file, with limits on a line and on the lines of one row."""

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


def read_csv(path: Path, scratch: Scratch, advance: Advance, roles: bool) -> Iterator[Person]:
    """Yield the people in a CSV file. Raises `FileProblem`."""
    number = 0
    try:
        # Rows that are not UTF-8 are refused one by one.
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
                within = f"line {lines.number}: {error}"
                problem = FileProblem(f"{path}, {within}")
                problem.within = within
                raise problem from None
    except OSError as error:
        raise FileProblem(f"{path} cannot be read: {error.strerror}") from None


def _columns(line: str) -> tuple[list[str], str]:
    delimiter = max(",;\t", key=line.count)
    row = next(csv.reader([line], delimiter=delimiter, strict=True), [])
    columns = [name.strip().lower() for name in row]
    unknown = [name for name in columns if name not in _KNOWN and not _attribute_of(name)]
    if unknown:
        raise FileProblem(
            f"there is no column {unknown[0][:60]!r}; the first line names the columns, some of: "
            + ", ".join((*_KNOWN, f"{_ATTRIBUTE}NAME"))
        )
    if len(set(columns)) < len(columns) or "email" not in columns:
        raise FileProblem("each column is named once, and one of them is email")
    return columns, delimiter


def _texts(cell: str) -> list[str]:
    """Return the texts of a cell, which has commas between them, or lines as an export has."""
    return [part for text in re.split("[,\n]", cell) if (part := text.strip())]


def _attribute_of(column: str) -> str:
    """Return the name of the attribute whose values a column has; "" if it has none."""
    return column.removeprefix(_ATTRIBUTE) if column.startswith(_ATTRIBUTE) else ""


def _person(columns: list[str], row: list[str], where: str) -> Person:
    person = Person(where)
    if len(row) != len(columns):
        person.refused = f"the row does not have {len(columns)} fields"
        return person
    values = {name: value.strip() for name, value in zip(columns, row, strict=True)}
    flags = {}
    for name in ("email_verified", "disabled", *_SWITCHES):
        flags[name] = _FLAGS.get(values.get(name, "").lower())
        if flags[name] is None:
            person.refused = f"{name} is neither true nor false"
            return person
    person.source_id = text(values.get("id"))
    person.email_verified, person.disabled = bool(flags["email_verified"]), bool(flags["disabled"])
    person.ends_at = text(values.get("ends_at"))
    person.take_claims(values)
    person.claims |= {name: flags[name] for name in _SWITCHES if values.get(name)}
    person.names_attributes = True
    person.attributes = {
        attribute: value
        for name, value in values.items()
        if (attribute := _attribute_of(name)) and value
    }
    person.groups = _texts(values.get("groups", ""))
    for entry in _texts(values.get("group_ends", "")):
        name, _, end = entry.rpartition("=")
        person.group_ends[name.strip()] = end.strip()
    person.take_names(values.get("name"), email=values["email"], username="")
    person.take_password(lambda: foreign_hashes.from_text(values.get("password_hash", "")))
    return person
