"""Reads tables of typed values: settings, providers and presets.

A dataclass describes a table. Each of its fields is read by the function that `key` gives it, or
else by its type. The function raises `ValueError` with the remedy. All errors are found at once.
"""

import dataclasses
import types
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from functools import partial
from typing import Any, get_args, get_origin, get_type_hints

from sso.i18n.message import Message

REQUIRED = dataclasses.MISSING
Read = Callable[[Any], Any]
Error = tuple[str, str]  # where it is, and what is wrong


class ManyErrors(ValueError):
    """Several errors in one value, such as the file that a setting names."""

    def __init__(self, errors: Iterable[str | Error]) -> None:
        self.located = [("", error) if isinstance(error, str) else error for error in errors]
        self.errors = [text for _, text in self.located]
        super().__init__("; ".join(self.errors))


@dataclass(frozen=True)
class Field:
    """One field of a table. `read` turns what the table has into the value."""

    name: str
    read: Read
    default: Any = REQUIRED
    meaning: str = ""
    secret: bool = False


@dataclass(frozen=True)
class Reading:
    """The values by field, the key that each was read from, and every error."""

    values: dict[str, Any] = dataclasses.field(default_factory=dict)
    sources: dict[str, str] = dataclasses.field(default_factory=dict)
    located: list[Error] = dataclasses.field(default_factory=list)

    @property
    def errors(self) -> list[str]:
        return [f"{where}: {text}" for where, text in self.located]


def key(meaning: str, read: Read, default: Any = REQUIRED, *, secret: bool = False) -> Any:
    """Describe a field of a dataclass that is read from a table."""
    about = {"meaning": meaning, "read": read, "secret": secret}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=dict, metadata=about)
    return dataclasses.field(default=default, repr=not secret, metadata=about)


def fields_of(kind: Any) -> tuple[Field, ...]:
    """Return the fields made by `key`; without any, all fields, which their types describe."""
    fields = dataclasses.fields(kind)
    if keys := [field for field in fields if field.metadata]:
        return tuple(Field(field.name, default=_default(field), **field.metadata) for field in keys)
    hints = get_type_hints(kind)
    return tuple(
        Field(field.name, reader_of(hints[field.name]), _default(field)) for field in fields
    )


def _default(field: "dataclasses.Field[Any]") -> Any:
    return field.default if field.default_factory is REQUIRED else field.default_factory()


class TableReader:
    """Reads tables with these fields. Subclasses choose the keys and word the errors."""

    def __init__(self, fields: Iterable[Field]) -> None:
        self.fields = {field.name: field for field in fields}
        self.keys = {field.name: self.keys_of(field) for field in self.fields.values()}
        self.known = {name for keys in self.keys.values() for name in keys}

    def read(self, table: Mapping[str, Any]) -> Reading:
        """Read every field. Never raises: the errors are in the answer."""
        unknown = sorted(table.keys() - self.known)
        reading = Reading(located=[(name, self.unknown(name)) for name in unknown])
        for field in self.fields.values():
            reading.values[field.name] = field.default
            try:
                self._read_field(field, table, reading)
            except ManyErrors as error:
                reading.located.extend(error.located)
        return reading

    def _read_field(self, field: Field, table: Mapping[str, Any], reading: Reading) -> None:
        reads = {name: read for name, read in self.keys[field.name].items() if name in table}
        if len(reads) > 1:
            raise ManyErrors([self.ambiguous(field, [*reads])])
        if not reads and field.default is REQUIRED:
            raise ManyErrors([self.missing(field)])
        for name, read in reads.items():
            value = _locate(name, read, table[name])
            if value is not None:
                reading.sources[field.name] = name
                reading.values[field.name] = _locate(
                    field.name, partial(self.convert, field), value
                )

    def keys_of(self, field: Field) -> Mapping[str, Read]:
        """Return the keys that give this field, and what reads what each refers to.

        `None` counts as not given.
        """
        return {field.name: itself}

    def convert(self, field: Field, value: Any) -> Any:
        return field.read(value)

    def unknown(self, name: str) -> str:
        return "is unknown"

    def missing(self, field: Field) -> Error:
        return field.name, "is missing"

    def ambiguous(self, field: Field, names: Sequence[str]) -> Error:
        return " and ".join(names), "give one of them"


def itself(value: Any) -> Any:
    return value


MAX_NAME = 60  # an authenticator app cuts what is longer
_JOINERS = "\u200c\u200d"  # Persian and emoji need them


def one_of(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(f"give one of {', '.join(choices)}")
        return text

    return read


def _is_invisible(char: str) -> bool:
    category = unicodedata.category(char)
    return (category[0] == "C" and char not in _JOINERS) or category in ("Zl", "Zp")


def checked_name(text: str) -> str:
    """Check one line of visible text for pages, headers of mails, and other programs."""
    if len(text) > MAX_NAME:
        raise ValueError(
            Message("it is longer than %(most)d characters; shorten it", most=MAX_NAME)
        )
    return _visible_line(text)


def shortened_name(text: str) -> str:
    """Check a name as `checked_name` does, but cut one that is too long, with an ellipsis."""
    name = _visible_line(text)
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1].rstrip()}…"


def _visible_line(text: str) -> str:
    if any(_is_invisible(char) for char in text):
        raise ValueError(
            Message("it has invisible characters, such as marks of direction; remove them")
        )
    if not text.strip():
        raise ValueError("it is empty; give a name, or leave the setting off")
    return text.strip()


def checked_group(text: str) -> str:
    """Check the name of a group of users (see `services.checks.group_errors`)."""
    if "," in text or text != text.strip() or not text.isprintable() or len(text) > 200:
        raise ValueError("give one group, without commas, of at most 200 characters")
    return text


def hint(name: str, names: Iterable[str], otherwise: str, cutoff: float = 0.6) -> str:
    """Say how to correct an unknown name."""
    near = get_close_matches(name, sorted(names), n=1, cutoff=cutoff)
    return f"did you mean {near[0]}?" if near else otherwise


def _locate(where: str, read: Read, value: Any) -> Any:
    """Read a value. Raises `ManyErrors`, which says where the value is."""
    try:
        return read(value)
    except ManyErrors as error:
        raise ManyErrors((where + inner, text) for inner, text in error.located) from None
    except ValueError as error:
        raise ManyErrors([(where, str(error))]) from None


_NAMES: Mapping[type, str] = {
    str: "a text", bool: "true or false", date: "a date", list: "a list", dict: "a table",
}  # fmt: skip


def reader_of(kind: Any) -> Read:
    """Return what reads values of a type, or of a dataclass."""
    arguments = get_args(kind)
    if isinstance(kind, types.UnionType):  # X | None; TOML has no null
        return reader_of(arguments[0])
    if get_origin(kind) is tuple:
        return partial(_read_list, reader_of(arguments[0]))
    if get_origin(kind) is Mapping:
        return partial(_read_mapping, reader_of(arguments[1]))
    if dataclasses.is_dataclass(kind):
        return partial(_read_table, TableReader(fields_of(kind)), kind)
    return partial(_check_type, kind)


def _check_type(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise ValueError(f"is not {_NAMES[kind]}")
    return value


def _read_list(read: Read, value: Any) -> tuple[Any, ...]:
    items = enumerate(_check_type(list, value), 1)
    return tuple(_read_all(read, {f"[{number}]": item for number, item in items}))


def _read_mapping(read: Read, value: Any) -> Mapping[str, Any]:
    table = _check_type(dict, value)
    values = _read_all(read, {f".{name}": item for name, item in table.items()})
    return dict(zip(table, values, strict=True))


def _read_all(read: Read, values: Mapping[str, Any]) -> list[Any]:
    results: list[Any] = []
    located: list[Error] = []
    for where, value in values.items():
        try:
            results.append(_locate(where, read, value))
        except ManyErrors as error:
            located += error.located
    if located:
        raise ManyErrors(located)
    return results


def _read_table(reader: TableReader, kind: Any, value: Any) -> Any:
    reading = reader.read(_check_type(dict, value))
    if reading.located:
        raise ManyErrors((f".{where}", text) for where, text in reading.located)
    return kind(**reading.values)
