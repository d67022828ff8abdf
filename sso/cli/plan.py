"""What a command would change: shown before it does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sso.cli.output import change_lines, print_line
from sso.services.changes import of_field

_SIGNS = {"create": "+", "update": "~", "delete": "-"}


@dataclass(frozen=True)
class Change:
    """One line of a plan; `fields` has before and after by name, never a secret."""

    action: str  # create, update, delete
    kind: str
    name: str
    id: str
    fields: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)

    @property
    def has_new_id(self) -> bool:
        """Whether it is a new user whose id is not in the file."""
        return self.kind == "user" and self.action == "create" and "id" not in self.fields


def show(changes: Sequence[Change]) -> None:
    for change in changes:
        print_line(f"{_SIGNS[change.action]} {change.kind} {change.name}")
        for name, (before, after) in change.fields.items():
            if change.action == "create" and after not in (None, "", [], {}, False):
                print_line(f"    {name}: {after}")
            elif change.action == "update":
                for line in change_lines({name: of_field(name, before, after)}):
                    print_line(f"    {line}")
    if not changes:
        print_line("Everything is as the file says.")


def as_json(change: Change, applied: bool) -> dict[str, Any]:
    pairs = {**change.fields}
    if applied and change.has_new_id:
        pairs["id"] = (None, change.id)
    fields = {k: {"before": before, "after": after} for k, (before, after) in pairs.items()}
    return {"action": change.action, "kind": change.kind, "name": change.name, "fields": fields}
