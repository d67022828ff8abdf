"""Attributes of people that the operator defines: types, values, and who may read and change them.

A value is a JSON value. An empty text or list is no value; false and 0 are values.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from enum import StrEnum
from typing import Any, Protocol

from sso.i18n import N_
from sso.i18n.message import Message

STRING, NUMBER, BOOLEAN = "string", "number", "boolean"
DATE, LIST, CHOICE = "date", "list", "choice"
TYPES: Mapping[str, str] = {
    STRING: N_("A line of text"),
    NUMBER: N_("A number"),
    BOOLEAN: N_("Yes or no"),
    DATE: N_("A date"),
    LIST: N_("A list of texts"),
    CHOICE: N_("One of several texts"),
}


class Party(StrEnum):
    """Who reads or changes values, besides the operator at the command line, who may always."""

    PERSON = "person"
    HELPDESK = "helpdesk"
    ADMINISTRATOR = "administrator"
    SCIM = "scim"
    UPSTREAM = "upstream"


READERS: Mapping[str, str] = {
    Party.PERSON: N_("The person"),
    Party.HELPDESK: N_("The helpdesk"),
    Party.SCIM: N_("Programs that provision people (SCIM)"),
}  # administrators read all
WRITERS: Mapping[str, str] = {
    **READERS,
    Party.ADMINISTRATOR: N_("Administrators"),
    Party.UPSTREAM: N_("Sign-in providers"),
}

# Who set a value, as people have it stored with it. That of `UPSTREAM` has the provider's ID behind
# a colon (`from_provider`).
OPERATOR, IMPORT = "operator", "import"
ORIGINS: Mapping[str, str] = {
    Party.PERSON: N_("set by the person"),
    Party.HELPDESK: N_("set by the helpdesk"),
    Party.ADMINISTRATOR: N_("set by an administrator"),
    Party.SCIM: N_("set by a program that provisions people (SCIM)"),
    Party.UPSTREAM: N_("from the sign-in provider %(name)s"),
    OPERATOR: N_("set at the command line"),
    IMPORT: N_("imported"),
}

# Whether people give a value when they create their account or accept an invitation.
NOT_ASKED, OPTIONAL, REQUIRED = "no", "optional", "required"
AT_SIGN_UP: Mapping[str, str] = {
    NOT_ASKED: N_("It is not asked for"),
    OPTIONAL: N_("It may stay empty"),
    REQUIRED: N_("It has to be filled in"),
}

MOST = 100  # definitions
MAX_TEXT = 2000  # characters of a string
MAX_ITEMS, MAX_ITEM = 100, 200  # of a list, and characters of each; of choices, too
MAX_VALUES = 16 * 1024  # bytes of all values of a person, as JSON
_LARGEST = 2**53 - 1  # which every reader of JSON can represent
NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_OF_SCIM = ("schemas", "id", "external_id", "meta")  # each resource has them already
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_INTEGER = re.compile(r"-?[0-9]{1,16}")
# As Python writes each decimal number that is not too large, such as 1e-07.
_DECIMAL = re.compile(r"-?[0-9]{1,16}(\.[0-9]{1,21})?(e-[0-9]{1,3})?")
_SWITCHES = {"true": True, "false": False}


class Definition(Protocol):
    """The part of a definition that decides about values."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def choices(self) -> Sequence[str]: ...
    @property
    def readers(self) -> Sequence[str]: ...
    @property
    def writers(self) -> Sequence[str]: ...


def may_write(definition: Definition, party: Party | None) -> bool:
    """Return whether a party may change values; `None` is the operator at the command line."""
    return party is None or party in definition.writers


def may_read(definition: Definition, party: Party) -> bool:
    """Return whether a party may read values. Who may change them may read them, too."""
    is_reader = party in definition.readers or party is Party.ADMINISTRATOR
    return is_reader or may_write(definition, party)


def from_provider(provider_id: str) -> str:
    """Return the origin of values that a sign-in provider writes."""
    return f"{Party.UPSTREAM}:{provider_id}"


def origins_after(
    origins: Mapping[str, str], before: Mapping[str, Any], after: Mapping[str, Any], origin: str
) -> dict[str, str]:
    """Return the origins of values after a change: `origin` for those that differ from before."""
    kept = {
        name: origins[name]
        for name in after
        if name in origins and is_same(before.get(name), after[name])
    }
    new = {name: origin for name in after if not is_same(before.get(name), after[name])}
    return {**kept, **new}


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the names of the values that differ, in order."""
    names = sorted({**before, **after})
    return [name for name in names if not is_same(before.get(name), after.get(name))]


def is_same(old: Any, new: Any) -> bool:
    return type(old) is type(new) and bool(old == new)  # True is not 1


def tidy(value: Any) -> Any:
    """Return a value as it is stored: texts without spaces around them; `None` if it is empty."""
    if isinstance(value, str):
        return value.strip() or None
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return list(dict.fromkeys(filter(None, (item.strip() for item in value)))) or None
    return value


def parsed(kind: str, text: str, separator: str = ",") -> Any:
    """Return the value of a type that a text stands for; `None` if it is empty.

    A text that stands for none is returned as it is, which `value_error` refuses.
    """
    text = text.strip()
    match kind:
        case _ if not text:
            return None
        case "number" if _INTEGER.fullmatch(text):
            return int(text)
        case "number" if _DECIMAL.fullmatch(text):
            return float(text)
        case "boolean":
            return _SWITCHES.get(text.lower(), text)
        case "list":
            return tidy(text.split(separator))
    return text


def of_provider(kind: str, value: Any) -> Any:
    """Return the value of a type that a claim or the texts of a directory stand for; `None` without
    one.

    What stands for none is returned as it is, which `value_error` refuses.
    """
    if kind == LIST:
        return tidy([value] if isinstance(value, str) else value)
    if isinstance(value, list) and len(value) < 2:
        value = value[0] if value else None
    return parsed(kind, value) if isinstance(value, str) else value


def text_of(value: Any, separator: str = ", ") -> str:
    """Return a value as text, which `parsed` understands."""
    if value is None:
        return ""
    if isinstance(value, list):
        return separator.join(map(str, value))
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def value_error(definition: Definition, value: Any) -> Message | None:
    """Return why a value, which is not `None`, cannot be one of an attribute."""
    name = repr(definition.name)
    match definition.type:
        case "number":
            if not _is_number(value):
                return Message("the attribute %(name)s is no number", name=name)
        case "boolean":
            if not isinstance(value, bool):
                return Message("the attribute %(name)s is neither true nor false", name=name)
        case "date":
            if not _is_date(value):
                return Message("the attribute %(name)s is no date such as 2030-01-31", name=name)
        case "list":
            if not _is_list(value):
                return Message(
                    "the attribute %(name)s is no list of at most %(most)d texts, each on one line "
                    "and of at most %(longest)d characters",
                    name=name, most=MAX_ITEMS, longest=MAX_ITEM,
                )  # fmt: skip
        case "choice":
            if value not in definition.choices:
                return Message(
                    "the attribute %(name)s is none of %(choices)s",
                    name=name,
                    choices=", ".join(definition.choices)[:MAX_TEXT],
                )
        case _:
            if not is_line(value, MAX_TEXT):
                return Message(
                    "the attribute %(name)s is no text on one line of at most %(most)d characters",
                    name=name,
                    most=MAX_TEXT,
                )
    return None


def definition_errors(definition: Definition) -> Iterable[Message]:
    """Yield why an attribute cannot be defined like this."""
    if not NAME.fullmatch(definition.name):
        yield Message(
            "the name %(name)s is refused: a name has 1 to 64 small letters, digits and _, and "
            "begins with a letter",
            name=repr(definition.name[:100]),
        )
    elif definition.name in _OF_SCIM:
        yield Message(
            "the name %(name)s is refused: SCIM gives it another meaning",
            name=repr(definition.name),
        )
    if definition.title and not is_line(definition.title, MAX_ITEM):
        yield Message("the title is no text on one line of at most %(most)d characters",
                      most=MAX_ITEM)  # fmt: skip
    for label, values, choices in (
        (Message("the type"), [definition.type], TYPES),
        (Message("the reader"), definition.readers, READERS),
        (Message("the writer"), definition.writers, WRITERS),
    ):
        for value in values:
            if value not in choices:
                yield Message(
                    "%(label)s %(value)s is none of %(choices)s",
                    label=label, value=repr(value[:100]), choices=", ".join(choices),
                )  # fmt: skip
    if definition.type == CHOICE:
        if not (definition.choices and _is_list(list(definition.choices))):
            yield Message(
                "the values to choose from are no list of 1 to %(most)d texts, each on one line "
                "and of at most %(longest)d characters",
                most=MAX_ITEMS,
                longest=MAX_ITEM,
            )
    elif definition.choices:
        yield Message("only an attribute of the type choice has values to choose from")


def sign_up_error(at_sign_up: str) -> Message | None:
    """Return why an attribute cannot be asked for like this."""
    if at_sign_up in AT_SIGN_UP:
        return None
    return Message(
        "%(label)s %(value)s is none of %(choices)s",
        label=Message("the sign-up"), value=repr(at_sign_up[:100]), choices=", ".join(AT_SIGN_UP),
    )  # fmt: skip


def is_line(value: Any, most: int) -> bool:
    """Return whether a value is a visible text on one line."""
    return (
        isinstance(value, str)
        and 0 < len(value) <= most
        and value == value.strip()
        and not any(c < " " or "\x7f" <= c < "\xa0" or "\ud800" <= c <= "\udfff" for c in value)
        and not any(c in value for c in "\u2028\u2029")
    )


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and abs(value) <= _LARGEST and math.isfinite(value)


def _is_date(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(_DATE.fullmatch(value) and date.fromisoformat(value))
    except ValueError:
        return False


def _is_list(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= MAX_ITEMS
        and all(is_line(item, MAX_ITEM) for item in value)
        and len(set(value)) == len(value)
    )
