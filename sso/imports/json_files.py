"""Entries of large JSON files, one at a time."""

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import ijson

from sso.imports.person import FileProblem

Place = tuple[str | None, ...]  # the keys that lead to an entry; `ITEM` in a list
Advance = Callable[[int], None]  # so many bytes have been read
ITEM = "[]"
LONGEST = 1024 * 1024  # of an entry, and of a text elsewhere
DEEPEST = 40
_STARTS: dict[str, type[dict[str, Any]] | type[list[Any]]] = {
    "start_map": dict,
    "start_array": list,
}
_ENDS = ("end_map", "end_array")
_MARK = b"\xef\xbb\xbf"  # with which Windows begins UTF-8


class _Source:
    """Lets no text grow beyond all bounds, and says how far we are."""

    def __init__(self, file: BinaryIO, advance: Advance) -> None:
        self._file, self._advance, self._is_begun = file, advance, False
        self.without_event = 0

    def read(self, size: int) -> bytes:
        found = self._file.read(size)
        if not self._is_begun:
            found, self._is_begun = found.removeprefix(_MARK), True
        self._advance(len(found))
        self.without_event += len(found)
        if self.without_event > LONGEST + size:
            raise FileProblem(f"it has a text of more than {LONGEST} bytes")
        return found


def entries(path: Path, places: Collection[Place], advance: Advance) -> Iterator[tuple[Place, Any]]:
    """Each object at one of the places, of one JSON value or several. Raises `FileProblem`."""
    count = 0
    try:
        with path.open("rb") as file:
            for found in _entries(_Source(file, advance), places):
                count += 1
                yield found
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
        _bound(size, LONGEST, "bytes in one entry")
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


def _bound(number: int, most: int, what: str) -> None:
    if number > most:
        raise FileProblem(f"it has more than {most} {what}")
