"""Reads tables of typed values: settings, providers and presets.

A dataclass describes a table. Each of its fields is read by the function that `key` gives it, or
else by its type. The function raises `ValueError` with the remedy. All errors are found at once.
"""

import dataclasses
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from difflib import get_close_matches
from functools import partial
from typing import Any, get_args, get_origin, get_type_hints

REQUIRED = dataclasses.MISSING
Read = Callable[[Any], Any]
Error = tuple[str, str]  # where it is, and what is wrong


class ManyErrors(ValueError):
    """Several errors in one value, such as the file that a setting names."""

    def __init__(self, errors: Iterable[str | Error]) -> None:
        self.located = [("", one) if isinstance(one, str) else one for one in errors]
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

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    located: list[Error] = field(default_factory=list)

    @property
    def errors(self) -> list[str]:
        return [f"{where}: {text}" for where, text in self.located]


def key(meaning: str, read: Read, default: Any = REQUIRED, *, secret: bool = False) -> Any:
    """Describe a field of a dataclass that is read from a table."""
    about = {"meaning": meaning, "read": read, "secret": secret}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=about)
    return field(default=default, repr=not secret, metadata=about)


def fields_of(kind: Any) -> tuple[Field, ...]:
    """Return the fields made by `key`; without any, all fields, which their types describe."""
    fields = dataclasses.fields(kind)
    if keys := [one for one in fields if one.metadata]:
        return tuple(Field(one.name, default=_default(one), **one.metadata) for one in keys)
    hints = get_type_hints(kind)
    return tuple(Field(one.name, reader_of(hints[one.name]), _default(one)) for one in fields)


def _default(one: "dataclasses.Field[Any]") -> Any:
    return one.default if one.default_factory is REQUIRED else one.default_factory()


class TableReader:
    """Reads tables with these fields. Subclasses choose the keys and word the errors."""

    def __init__(self, fields: Iterable[Field]) -> None:
        self.fields = {one.name: one for one in fields}
        self.keys = {one.name: self.keys_of(one) for one in self.fields.values()}
        self.known = {name for keys in self.keys.values() for name in keys}

    def read(self, table: Mapping[str, Any]) -> Reading:
        """Read every field. Never raises: the errors are in the answer."""
        unknown = sorted(table.keys() - self.known)
        reading = Reading(located=[(name, self.unknown(name)) for name in unknown])
        for one in self.fields.values():
            reading.values[one.name] = one.default
            try:
                self._read_field(one, table, reading)
            except ManyErrors as error:
                reading.located.extend(error.located)
        return reading

    def _read_field(self, one: Field, table: Mapping[str, Any], reading: Reading) -> None:
        reads = {name: read for name, read in self.keys[one.name].items() if name in table}
        if len(reads) > 1:
            raise ManyErrors([self.ambiguous(one, [*reads])])
        if not reads and one.default is REQUIRED:
            raise ManyErrors([self.missing(one)])
        for name, read in reads.items():
            value = _locate(name, read, table[name])
            if value is not None:
                reading.sources[one.name] = name
                reading.values[one.name] = _locate(one.name, partial(self.convert, one), value)

    def keys_of(self, one: Field) -> Mapping[str, Read]:
        """Return the keys that give this field, and what reads what each refers to.

        `None` counts as not given.
        """
        return {one.name: itself}

    def convert(self, one: Field, value: Any) -> Any:
        return one.read(value)

    def unknown(self, name: str) -> str:
        return "is unknown"

    def missing(self, one: Field) -> Error:
        return one.name, "is missing"

    def ambiguous(self, one: Field, names: Sequence[str]) -> Error:
        return " and ".join(names), "give one of them"


def itself(value: Any) -> Any:
    return value


def hint(name: str, known: Iterable[str], otherwise: str, cutoff: float = 0.6) -> str:
    """Say how to correct an unknown name."""
    near = get_close_matches(name, sorted(known), n=1, cutoff=cutoff)
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
