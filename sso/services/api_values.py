"""Convert the fields of an API between JSON and the entries that commands and forms take.

An entry of `scopes` is `NAME=DESCRIPTION`, one of `translations` is `LANG:NAME=DESCRIPTION`.
"""

from collections.abc import Collection, Mapping
from typing import Any

from sso.config.api_fields import FIELDS
from sso.config.fields import Kind, type_errors
from sso.services import changes as differences
from sso.services.changes import ListEdit
from sso.services.checks import Invalid

# Of a new API.
DEFAULTS: Mapping[str, Any] = {
    field.name: field.default for field in FIELDS.values() if not field.is_required
}


def entries_of(name: str, value: Any) -> list[str]:
    """Return the entries of a field, as commands take them and forms show them."""
    match FIELDS[name].kind:
        case Kind.TEXTS:
            return [f"{key}={text}" for key, text in value.items()]
        case Kind.TRANSLATIONS:
            return [f"{key}:{entry}" for key, texts in value.items()
                    for entry in entries_of("scopes", texts)]  # fmt: skip
    return list(value)


def edited(name: str, current: Any, edit: ListEdit) -> Any:
    """Return a field after an edit of its entries."""
    if FIELDS[name].kind is Kind.NAMES:
        return edit.applied_to(current)
    if FIELDS[name].kind is Kind.ROLES:
        return differences.edited_roles(current, edit)
    removed = {_key(entry) for entry in edit.removed}
    entries = {_key(entry): entry for entry in entries_of(name, current)}
    kept = [entry for key, entry in entries.items() if key not in removed]
    return parsed_entries(name, [*(kept if edit.whole is None else edit.whole), *edit.added])


def without_effect(name: str, current: Any, edit: ListEdit) -> list[str]:
    """Return a sentence for each part of an edit that changes nothing."""
    entries = entries_of(name, current)
    if FIELDS[name].kind is Kind.ROLES:
        return []
    keys = {_key(entry) for entry in entries}
    return [
        *(f"{entry} is there already." for entry in edit.added if entry in entries),
        *(f"{entry} is not there." for entry in edit.removed if _key(entry) not in keys),
    ]


def _key(entry: str) -> str:
    return entry.partition("=")[0].strip()


def parsed_entries(name: str, entries: Collection[str]) -> dict[str, Any]:
    """Return scopes or translations as they are stored, from `NAME=TEXT` or `LANG:NAME=TEXT`.

    A later entry replaces an earlier one. A missing part is empty, which is refused later.
    """
    is_translated = FIELDS[name].kind is Kind.TRANSLATIONS
    values: dict[str, Any] = {}
    for entry in entries:
        key, _, text = entry.partition("=")
        language, _, scope = key.partition(":")
        if is_translated:
            values.setdefault(language.strip(), {})[scope.strip()] = text.strip()
        else:
            values[key.strip()] = text.strip()
    return values


def parsed(body: Any) -> dict[str, Any]:
    """Return the fields of a body after a check of their types. Raises `Invalid`.

    Unknown fields are ignored, as for clients. A field that is `null` counts as left out.
    """
    if not isinstance(body, dict):
        raise Invalid(["the body is no JSON object"])
    fields = {name: body[name] for name in FIELDS if body.get(name) is not None}
    if errors := type_errors(FIELDS, fields):
        raise Invalid(errors)
    return fields


def replacing(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return all fields for replacing an API.

    Fields that are left out get their defaults, except for `identifier`, `introspection` and
    `disabled`, which stay.
    """
    stay = ("identifier", "introspection", "disabled")
    return {**{name: field.default for name, field in FIELDS.items() if name not in stay}, **fields}
