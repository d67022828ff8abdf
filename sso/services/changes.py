"""What a change did: before and after by field, with what a list gained and lost."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sso.config.client_fields import FIELDS
from sso.config.fields import Kind
from sso.errors import OperatorError
from sso.i18n.message import Message

Differences = dict[str, dict[str, Any]]
# Texts by RFC 7591, but lists of words.
_SETS = {field.name for field in FIELDS.values() if field.kind is Kind.WORDS}


@dataclass(frozen=True)
class Outcome:
    """What an update did, and what the operator should know about it."""

    changes: Differences
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class ListEdit:
    """Values to add to a list and to remove from it, or the whole list that replaces it."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    whole: tuple[str, ...] | None = None

    def applied_to(self, current: Sequence[str]) -> list[str]:
        """The list after the edit, in its order, each value once."""
        if self.whole is not None:
            return list(dict.fromkeys(self.whole))
        kept = [value for value in current if value not in self.removed]
        return list(dict.fromkeys([*kept, *self.added]))

    def without_effect(self, current: Sequence[str]) -> list[str]:
        """Why parts of it change nothing, a sentence each."""
        return [
            *(f"{value} is there already." for value in self.added if value in current),
            *(f"{value} is not there." for value in self.removed if value not in current),
        ]


class Changed(OperatorError):
    """Somebody has changed the same thing meanwhile: `differences`, from what was seen to now."""

    def __init__(self, differences: Differences) -> None:
        super().__init__(Message("it was changed in the meantime; look at it again"))
        self.differences = differences


def require_unchanged(seen: Mapping[str, Any] | None, now: Mapping[str, Any]) -> None:
    """Raise `Changed` unless these fields are still as they were seen. Call it under the lock."""
    seen = seen or {}
    if found := between(seen, {name: now.get(name) for name in seen}):
        raise Changed(found)


def between(before: Mapping[str, Any], after: Mapping[str, Any]) -> Differences:
    """The fields that differ."""
    return {
        name: of_field(name, before.get(name), after.get(name))
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    }


def of_field(name: str, before: Any, after: Any) -> dict[str, Any]:
    """One field's difference, as commands print it as JSON and the audit trail keeps it."""
    found = {"before": before, "after": after}
    if isinstance(before, list) or isinstance(after, list) or name in _SETS:
        old, new = _listed(before), _listed(after)
        found["added"] = [one for one in new if one not in old]
        found["removed"] = [one for one in old if one not in new]
    return found


def _listed(value: Any) -> Iterable[Any]:
    return value.split() if isinstance(value, str) else value or []
