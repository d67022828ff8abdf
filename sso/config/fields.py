"""The parts of the tables of fields: `client_fields` and `api_fields` have the entries.

A part of an entry says that a surface has the field: `option` the commands, `form` and `fact` the
pages of administration, `preset` the known applications. Each surface maps a `Kind` to what it
shows: an option of click, a field of WTForms, a type of JSON.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any

from sso.config.urls import strict_url_error
from sso.i18n import N_
from sso.i18n.message import Message


class Kind(Enum):
    """What a value is; it decides how surfaces ask for it, check it and show it."""

    TEXT = "a line of text"
    URL = "a URL"
    REDIRECT_URIS = "URIs that are compared exactly"
    WORDS = "a text of words with spaces between them"
    NAMES = "a list of names"
    APIS = "a list of APIs, each as URI or URI=SCOPE,…"
    ISSUERS = "a list of entries, each beginning with the issuer of an identity server"
    ORIGINS = "a list of web origins"
    PATHS = "a list of paths of URLs"
    ROLES = "a list of roles, each as ROLE or ROLE=GROUP"
    CLAIMS = "a list of an application's own claims, each as CLAIM=SOURCE"
    ATTRIBUTES = "a list of SAML attributes, each as NAME=CLAIM"
    CERTIFICATES = "X.509 certificates as PEM; commands read them from a file"
    NUMBER = "a number"
    TEXTS = "texts by name; commands take NAME=TEXT"
    TRANSLATIONS = "texts by language and name; commands take LANGUAGE:NAME=TEXT"
    CHOICE = "one of several texts"
    CHOICES = "a list of some of several texts"
    SWITCH = "true or false"
    OBJECT = "an object"
    KEY_SET = "a JWK set; commands read it from a file"
    IMAGE = "an image; commands read it from a file"


_TYPES: Mapping[Kind, type] = {
    Kind.REDIRECT_URIS: list,
    Kind.NAMES: list,
    Kind.APIS: list,
    Kind.ISSUERS: list,
    Kind.ORIGINS: list,
    Kind.PATHS: list,
    Kind.ROLES: list,
    Kind.CLAIMS: list,
    Kind.ATTRIBUTES: list,
    Kind.CHOICES: list,
    Kind.NUMBER: int,
    Kind.TEXTS: dict,
    Kind.TRANSLATIONS: dict,
    Kind.SWITCH: bool,
    Kind.OBJECT: dict,
    Kind.KEY_SET: dict,
}
LISTS = (
    *(Kind.REDIRECT_URIS, Kind.NAMES, Kind.APIS, Kind.ISSUERS, Kind.ORIGINS, Kind.PATHS),
    *(Kind.ROLES, Kind.CLAIMS, Kind.ATTRIBUTES, Kind.WORDS),
)
MAPPINGS = (Kind.TEXTS, Kind.TRANSLATIONS)  # whose entries commands add and remove
# Whose entries may have spaces.
SPACED = (Kind.NAMES, Kind.ISSUERS, Kind.PATHS, Kind.ROLES, Kind.CLAIMS, *MAPPINGS)


class Stored(IntEnum):
    """Where a field is stored."""

    METADATA = 1  # in `client_metadata`; those of APIs have columns
    COLUMN = 2
    APART = 3  # elsewhere; services handle it by itself


@dataclass(frozen=True)
class Option:
    """The option of `create` and `update`, without its dashes.

    `update`: the help of a switch there. `removal`: the help of the option that removes the value.
    `also`: another name of the option that adds to a list. `no_value`: what stands for no value.
    """

    name: str
    help: str = ""
    update: str = ""
    removal: str = ""
    metavar: str | None = None
    choices: Sequence[str] = ()
    also: str = ""
    no_value: str = ""


@dataclass(frozen=True)
class Input:
    """The field in the form of an administrator.

    `rows`: of a list, one on each line, or of a long text. `panel`: the title of the part of the
    form that is folded; without one, the field is at the beginning. `empty`: the title of no
    choice.
    """

    label: str
    hint: str = ""
    rows: int = 0
    panel: str = ""
    empty: str = ""


@dataclass(frozen=True)
class Fact:
    """The line on the page of administration. A value that is empty has one only with `empty`.

    `each_time`: in place of `on` and `off`, if people are asked for consent each time. Without
    `off`, a switch has a line only if it is on.
    """

    title: str = ""  # as in the form
    empty: str = ""
    on: str = N_("yes")
    off: str = N_("no")
    each_time: str = ""


@dataclass(frozen=True)
class InPreset:
    """The name in a preset's registration, and the label on its page of documentation."""

    name: str
    label: str = ""


@dataclass(frozen=True)
class Field:
    """A field. `name`: that of RFC 7591 or of another standard, where one has it.

    `noun`, `excess`: the field in errors, and the error for a list that is too long.
    `url_error`: why a URL, or an entry of a list of issuers, origins or paths, cannot be a value.
    `fapi_choices`: the choices with a profile. `is_of_managers`: also those change it who manage
    only some applications, since it gives the application no more of people, groups and APIs.
    """

    name: str
    kind: Kind
    meaning: str = ""
    default: Any = None
    stored: Stored = Stored.METADATA
    is_required: bool = False
    is_fixed: bool = False
    choices: Sequence[str] = ()
    fapi_choices: Sequence[str] = ()
    titles: Mapping[str, str] = field(default_factory=dict)
    noun: Message | None = None
    excess: str = ""
    url_error: Callable[[str], Message | None] = strict_url_error
    option: Option | None = None
    form: Input | None = None
    fact: Fact | None = None
    preset: InPreset | None = None
    is_of_managers: bool = False

    @property
    def json_type(self) -> type:
        """The type in JSON and TOML."""
        return _TYPES.get(self.kind, str)

    @property
    def is_removable(self) -> bool:
        """Whether an empty text, or the number 0, removes the value."""
        has_empty = self.json_type in (str, int)
        return self.stored is Stored.METADATA and has_empty and self.default is None

    @property
    def may_be_empty(self) -> bool:
        """Whether a list may have no values."""
        return not (self.is_required or self.default)

    @property
    def flag(self) -> str:
        """The option as it is typed: `--name`."""
        return f"--{self.option.name}" if self.option else ""

    @property
    def usage(self) -> str:
        """The option with its value: `--jwks FILE`."""
        return f"{self.flag} {self.option.metavar}" if self.option else ""

    @property
    def term(self) -> str:
        """The field in a message: its label for people, its option for commands."""
        return Message(self.form.label, for_commands=self.flag) if self.form else self.flag

    def value_term(self, value: str) -> Message:
        """Return a value in a message: its title for people, the option for commands."""
        return Message(self.titles[value], for_commands=f"{self.flag} {value}")


_TYPE_NAMES: Mapping[type, str] = {
    str: "a text", int: "a number", bool: "true or false", list: "a list of texts",
    dict: "an object",
}  # fmt: skip


def type_errors(table: Mapping[str, Field], values: Mapping[str, Any]) -> list[str]:
    """Return an error for each value of JSON or TOML whose type is not that of its field."""
    return [error for name, value in values.items() if (error := _type_error(table[name], value))]


def _type_error(field: Field, value: Any) -> str | None:
    match field.kind:
        case Kind.TEXTS:
            name = None if _is_texts(value) else "an object of texts"
        case Kind.TRANSLATIONS:
            is_object = isinstance(value, dict) and all(map(_is_texts, value.values()))
            name = None if is_object else "an object of texts by language"
        case _:
            name = None if _has_type(value, field.json_type) else _TYPE_NAMES[field.json_type]
    return f"{field.name} is not {name}" if name else None


def _has_type(value: Any, kind: type) -> bool:
    if kind is list:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    return isinstance(value, kind) and not (kind is int and isinstance(value, bool))


def _is_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
