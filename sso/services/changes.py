"""Differences: the fields of an object before and after a change, and edits of lists."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sso.config.client_fields import FIELDS
from sso.config.fields import Kind
from sso.errors import OperatorError
from sso.flow import own_claims, role_claims
from sso.i18n.message import Message

Differences = dict[str, dict[str, Any]]
# RFC 7591 defines these as strings of words; they are compared as lists.
_SETS = {field.name for field in FIELDS.values() if field.kind is Kind.WORDS}


@dataclass(frozen=True)
class Outcome:
    """The changes that an update made, and notes for the operator."""

    changes: Differences
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class ListEdit:
    """Values to add to a list and to remove from it, or the whole list that replaces it."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    whole: tuple[str, ...] | None = None

    def applied_to(self, current: Sequence[str]) -> list[str]:
        """Return the edited list, in order and without duplicates."""
        if self.whole is not None:
            return list(dict.fromkeys(self.whole))
        remaining = [value for value in current if value not in self.removed]
        return list(dict.fromkeys([*remaining, *self.added]))

    def without_effect(self, current: Sequence[str]) -> list[str]:
        """Return a sentence about each value that the edit does not change."""
        return [
            *(f"{value} is there already." for value in self.added if value in current),
            *(f"{value} is not there." for value in self.removed if value not in current),
        ]


def edited_roles(current: Sequence[str], edit: ListEdit) -> list[str]:
    """Return the entries of roles after an edit; to remove a role alone removes all its entries."""
    if edit.whole is not None:
        return role_claims.tidy(edit.whole)
    return role_claims.tidy([*role_claims.without(current, edit.removed), *edit.added])


def edited_claims(current: Sequence[str], edit: ListEdit) -> list[str]:
    """Return the entries of own claims after an edit; to remove a claim removes all its entries."""
    if edit.whole is not None:
        return own_claims.tidy(edit.whole)
    return own_claims.tidy([*own_claims.without(current, edit.removed), *edit.added])


class Changed(OperatorError):
    """The object was changed meanwhile; `differences` compares what was shown with what is now."""

    def __init__(self, differences: Differences) -> None:
        super().__init__(Message("it was changed in the meantime; look at it again"))
        self.differences = differences


def require_unchanged(expected: Mapping[str, Any] | None, current: Mapping[str, Any]) -> None:
    """Raise `Changed` unless these fields have the expected values. Call it under the lock."""
    expected = expected or {}
    if differences := between(expected, {name: current.get(name) for name in expected}):
        raise Changed(differences)


def between(before: Mapping[str, Any], after: Mapping[str, Any]) -> Differences:
    """Return the fields that differ. An empty list or mapping is the same as none."""
    return {
        name: of_field(name, before.get(name), after.get(name))
        for name in {**before, **after}
        if _or_none(before.get(name)) != _or_none(after.get(name))
    }


def _or_none(value: Any) -> Any:
    return None if value in ([], {}) else value


def of_field(name: str, before: Any, after: Any) -> dict[str, Any]:
    """Return a field's difference, in the format of JSON output and of the audit trail."""
    difference = {"before": before, "after": after}
    if isinstance(before, list) or isinstance(after, list) or name in _SETS:
        old, new = _listed(before), _listed(after)
        difference["added"] = [value for value in new if value not in old]
        difference["removed"] = [value for value in old if value not in new]
    return difference


def _listed(value: Any) -> Iterable[Any]:
    return value.split() if isinstance(value, str) else value or []
