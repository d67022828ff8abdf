"""The parts of a preset, and the check of its shape: every error at once."""

import dataclasses
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from sso.config.auth_methods import PRIVATE_KEY_JWT, has_secret
from sso.errors import OperatorError


@dataclass(frozen=True)
class Registration:
    """What is registered here; texts are templates."""

    redirect_uris: tuple[str, ...]
    scope: str
    auth_method: str
    require_pkce: bool
    id_token_claims: str
    post_logout_redirect_uris: tuple[str, ...] = ()
    backchannel_logout_uri: str | None = None
    id_token_alg: str = "RS256"  # noqa: S105 (no password)
    public: bool = False
    home_url: str | None = None
    profile: str | None = None


@dataclass(frozen=True)
class Option:
    """What varies between installations; without a default it is required."""

    help: str
    default: str | None = None
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Block:
    """A piece of the other side's configuration. `title`, `where` and `text` are templates."""

    title: str
    kind: str
    text: str
    where: str = ""
    alternative: str | None = None
    language: str = "text"


@dataclass(frozen=True)
class Note:
    text: str


@dataclass(frozen=True)
class Source:
    """Where a fact comes from: the application's documentation or code."""

    fact: str
    url: str


@dataclass(frozen=True)
class Preset:
    """An application. `url` is an example; None: the application has no address of its own.

    `preparation`: commands that make its keys, before it is registered.
    """

    name: str
    title: str
    summary: str
    homepage: str
    version: str
    looked_up: date
    test: str
    registration: Registration
    setup: tuple[Block, ...]
    sources: tuple[Source, ...]
    aliases: tuple[str, ...] = ()
    url: str | None = None
    preparation: str = ""
    requires: tuple[str, ...] = ()
    options: Mapping[str, Option] = dataclasses.field(default_factory=dict)
    notes: tuple[Note, ...] = ()

    @property
    def has_secret(self) -> bool:
        return has_secret(self.registration.auth_method)

    @property
    def has_keys(self) -> bool:
        return self.registration.auth_method == PRIVATE_KEY_JWT

    @property
    def alternatives(self) -> list[str]:
        """The ways to set it up, of which one is enough."""
        return list(dict.fromkeys(one.alternative for one in self.setup if one.alternative))


_WORDS: Mapping[Any, str] = {str: "a text", bool: "true or false", date: "a date"}


def build(kind: type, table: Any, where: str, errors: list[str]) -> Any:
    """An object of this dataclass, or None; what is wrong is added to `errors`."""
    if not isinstance(table, dict):
        errors.append(f"{where or 'it'} is not a table")
        return None
    prefix, before = f"{where}." if where else "", len(errors)
    fields, hints = dataclasses.fields(kind), _hints(kind)
    unknown = table.keys() - hints.keys()
    errors += [f"{prefix}{name} is unknown" for name in sorted(unknown)]
    found = {}
    for field in fields:
        if field.name in table:
            value = table[field.name]
            found[field.name] = _value(hints[field.name], value, prefix + field.name, errors)
        elif field.default is field.default_factory is dataclasses.MISSING:
            errors.append(f"{prefix}{field.name} is missing")
    return None if len(errors) > before else kind(**found)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _value(hint: Any, value: Any, where: str, errors: list[str]) -> Any:
    arguments = get_args(hint)
    if isinstance(hint, types.UnionType):  # X | None; TOML has no null
        hint = arguments[0]
    if get_origin(hint) is tuple:
        return tuple(_items(arguments[0], value, where, errors))
    if get_origin(hint) is Mapping:
        return dict(_entries(arguments[1], value, where, errors))
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return build(hint, value, where, errors)
    if type(value) is not hint:
        errors.append(f"{where} is not {_WORDS[hint]}")
    return value


def _items(hint: Any, value: Any, where: str, errors: list[str]) -> Iterable[Any]:
    if not isinstance(value, list):
        errors.append(f"{where} is not a list")
        return
    for number, item in enumerate(value, 1):
        yield _value(hint, item, f"{where}[{number}]", errors)


def _entries(hint: Any, value: Any, where: str, errors: list[str]) -> Iterable[tuple[str, Any]]:
    if not isinstance(value, dict):
        errors.append(f"{where} is not a table")
        return
    for name, item in value.items():
        yield name, _value(hint, item, f"{where}.{name}", errors)


class PresetError(OperatorError, ValueError):
    """`errors` has one line for each reason."""

    def __init__(self, errors: Sequence[str]) -> None:
        super().__init__("; ".join(errors))
        self.errors = list(errors)
