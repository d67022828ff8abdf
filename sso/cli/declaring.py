"""`flask export` and `flask apply`: the registered, as a file that one keeps and reviews."""

import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
from flask.cli import with_appcontext

from sso import audit
from sso.audit.events import Event
from sso.cli import declaration, differences, planning
from sso.cli.commands import Command, Failure, confirm, json_option, yes_option
from sso.cli.output import print_json, print_line
from sso.cli.planning import Change
from sso.extensions import db
from sso.store import clients, users

_DONE = {"create": "created", "update": "changed", "delete": "deleted"}
_SIGNS = {"create": "+", "update": "~", "delete": "-"}
_file = click.Path(path_type=Path, dir_okay=False)


@click.command("export", cls=Command)
@click.argument("path", metavar="[FILE]", type=_file, required=False)
@json_option
@with_appcontext
def export_command(path: Path | None, as_json: bool) -> None:
    """Write clients, users and their groups into FILE (TOML; mode 0600), or print them.

    No secret, password or digest is in it. With --json it is printed as JSON, which apply takes
    too, from a file whose name ends in .json.
    """
    content = declaration.document(clients.every(), users.every())
    audit.event(Event.EXPORTED, file=path)
    if path:
        try:
            _write(path, declaration.as_toml(content))
        except OSError as error:
            raise Failure(f"{path} cannot be written: {error.strerror}") from None
    if as_json:
        print_json(content)
    elif not path:
        click.echo(declaration.as_toml(content), nl=False)


@click.command("apply", cls=Command)
@click.argument("path", metavar="FILE", type=_file)
@click.option("--plan", "only_plan", is_flag=True, help="Say what would change; change nothing.")
@click.option("--prune", is_flag=True, help="Delete what the file doesn't have.")
@yes_option
@json_option
@with_appcontext
def apply_command(path: Path, only_plan: bool, prune: bool, yes: bool, as_json: bool) -> None:
    """Make clients, users and their groups as FILE says, all or nothing.

    What an entry leaves out stays as it is. --prune deletes clients only if FILE has clients, and
    users only if it has users.
    """
    wanted = declaration.read(path)
    changes = planning.plan(wanted, prune)
    db.session.rollback()  # nobody waits for a person who reads
    if not as_json:
        _show(changes)
    if not only_plan:
        deleted = [change.name for change in changes if change.action == "delete"]
        if deleted:
            confirm(f"Delete {len(deleted)} with all their sessions and tokens?", yes)
        changes = planning.plan(wanted, prune)
        if [change.name for change in changes if change.action == "delete"] != deleted:
            raise Failure("somebody else changed what would be deleted; try again")
        planning.finish(changes)
        for change in changes:
            audit.event(Event(f"{change.kind}_{_DONE[change.action]}"), **_of(change))
        db.session.commit()
    if as_json:
        shown = [_json(one, applied=not only_plan) for one in changes]
        print_json({"applied": not only_plan, "changes": shown})
    elif only_plan and changes:
        print_line("Nothing is changed yet.")
    elif changes:
        for change in changes:
            if _has_new_id(change):
                print_line(f"{change.name} has the id {change.id}")
        print_line(f"{len(changes)} changed.")


def _has_new_id(change: Change) -> bool:
    """Whether the file gives none to somebody who is new."""
    return change.kind == "user" and change.action == "create" and "id" not in change.fields


def _of(change: Change) -> dict[str, object]:
    """Whom a change is about, and what changed."""
    about: dict[str, object] = {change.kind: change.id, "by": "apply"}
    if "invitation" in change.fields:
        return {**about, "what": "invitation"}
    if change.action != "update":
        return about
    changes = {name: differences.of_field(name, *pair) for name, pair in change.fields.items()}
    return {**about, "what": " ".join(changes), "changes": changes}


def _show(changes: Iterable[Change]) -> None:
    shown = False
    for change in changes:
        shown = True
        print_line(f"{_SIGNS[change.action]} {change.kind} {change.name}")
        for name, (before, after) in change.fields.items():
            if change.action == "create" and after not in (None, "", [], {}, False):
                print_line(f"    {name}: {after}")
            elif change.action == "update":
                for line in differences.lines({name: differences.of_field(name, before, after)}):
                    print_line(f"    {line}")
    if not shown:
        print_line("Everything is as the file says.")


def _json(change: Change, applied: bool) -> dict[str, Any]:
    pairs = {**change.fields}
    if applied and _has_new_id(change):
        pairs["id"] = (None, change.id)
    fields = {k: {"before": before, "after": after} for k, (before, after) in pairs.items()}
    return {"action": change.action, "kind": change.kind, "name": change.name, "fields": fields}


def _write(path: Path, text: str) -> None:
    """Whole or not at all; it holds people's names and addresses."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
