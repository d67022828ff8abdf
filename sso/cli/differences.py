"""What a change did: before and after by field, with what a list gained and lost."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from sso.cli.output import harmless, print_line

Differences = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Outcome:
    """What an update did, and what the operator should know about it."""

    changes: Differences
    notes: Sequence[str] = ()


_SETS = frozenset({"scope"})  # a text by RFC 7591, but a list of words


def between(before: Mapping[str, Any], after: Mapping[str, Any]) -> Differences:
    """The fields that are not the same."""
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


def tell(outcome: Outcome, as_json: bool) -> None:
    """Print what changed; notes go to standard error, with --json, too."""
    for note in outcome.notes:
        click.echo(harmless(note), err=True)
    if as_json:
        return
    print_line()
    if not outcome.changes:
        print_line("Nothing changed.")
    for line in lines(outcome.changes):
        print_line(line)


def lines(changes: Differences) -> Iterator[str]:
    """A line for each value that came or went."""
    for name, field in changes.items():
        moved = [("added", one) for one in field.get("added", ())]
        moved += [("removed", one) for one in field.get("removed", ())]
        yield from (f"{name}: {verb} {one}" for verb, one in moved)
        if not moved:
            yield f"{name}: {_text(field['before'])} -> {_text(field['after'])}"


def _listed(value: Any) -> Iterable[Any]:
    return value.split() if isinstance(value, str) else value or []


def _text(value: Any) -> str:
    if value is None or value in ("", [], {}):
        return "-"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
