"""`flask attribute`: the attributes of people that the operator defines."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from sso import audit
from sso.cli.clients import (
    Function,
    decorated,
    list_when_created,
    list_when_updated,
    option_of,
    with_options,
)
from sso.cli.commands import (
    Group,
    confirm,
    json_option,
    named_texts,
    unknown,
    yes_option,
)
from sso.cli.output import print_changes, print_json, print_line, print_record, print_table
from sso.config.attribute_fields import FIELDS, FIXED
from sso.extensions import db
from sso.flow.attributes import Party
from sso.models import Attribute
from sso.services import attributes
from sso.services.changes import ListEdit
from sso.store import attributes as stored

group = Group("attribute", help="Attributes of users that the operator defines.")
name_argument = click.argument("name", metavar="NAME")
_FIELDS = [(field, field.option) for field in FIELDS.values() if field.option]
_LISTS = [pair for pair in _FIELDS if pair[0].json_type is list]
_SINGLE = [pair for pair in _FIELDS if pair not in _LISTS]
_EDITS = [list_when_updated(*pair) for pair in _LISTS]
_LISTED_PARTIES = ("readers", "writers")
_SELF_SERVICE = "Users may read and change it on their account page."


def _define_options(function: Function) -> Function:
    return decorated(
        function,
        [
            *(option_of(*pair, required=pair[0].name == "type") for pair in _SINGLE),
            *(list_when_created(*pair) for pair in _LISTS),
            click.option("--self-service", is_flag=True, help=_SELF_SERVICE),
        ],
    )


def _update_options(function: Function) -> Function:
    single = [option_of(*pair) for pair in _SINGLE if pair[0].name not in FIXED]
    switch = click.option(
        "--self-service/--no-self-service", default=None,
        help="Whether users may read and change it on their account page.",
    )  # fmt: skip
    return with_options(*_EDITS)(decorated(function, [*single, switch]))


@group.command("define")
@name_argument
@_define_options
@json_option
def define(name: str, self_service: bool, as_json: bool, **options: Any) -> None:
    """Define an attribute of users.

    Without --writer, administrators may change it. The command line may always.
    """
    fields = {key: value for key, value in options.items() if value not in (None, ())}
    fields |= {key: list(fields[key]) for key in fields if FIELDS[key].json_type is list}
    if self_service:
        writers = fields.get("writers", FIELDS["writers"].default)
        fields["writers"] = list(dict.fromkeys([*writers, Party.PERSON]))
    attribute = attributes.define(audit.operator(), {"name": name, **fields})
    db.session.commit()
    _print(attribute, as_json)


@group.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List all attributes by name."""
    rows = stored.every()
    if as_json:
        print_json([attributes.described(row) for row in rows])
    else:
        print_table(
            ("NAME", "TITLE", "TYPE", "READ BY", "CHANGED BY"),
            [
                (row.name, row.title, row.type, ", ".join(row.readers), ", ".join(row.writers))
                for row in rows
            ],
        )


@group.command("show")
@name_argument
@json_option
def show(name: str, as_json: bool) -> None:
    """Show an attribute, and how many users have a value."""
    attribute = _find(name)
    _print(attribute, as_json, users=stored.count_values(attribute.name))


@group.command("update")
@name_argument
@_update_options
@json_option
def update(name: str, self_service: bool | None, as_json: bool, **options: Any) -> None:
    """Change an attribute, and print what changed; its name and type stay."""
    lists = {option.field: edit for option in _EDITS if (edit := option.edit(options))}
    fields = {key: value for key, value in options.items() if value is not None}
    if self_service is not None:
        if lists.keys() & {*_LISTED_PARTIES}:
            raise click.UsageError("--self-service contradicts the options of readers and writers.")
        person = (Party.PERSON.value,)
        edit = ListEdit(added=person) if self_service else ListEdit(removed=person)
        lists["writers"] = edit
        lists |= {} if self_service else {"readers": edit}
    if not (fields or lists):
        raise click.UsageError("There is nothing to change: give an option.")
    with _defined(name):
        attribute, outcome = attributes.change(audit.operator(), name, fields, lists=lists)
    db.session.commit()
    notes = [] if self_service is not None else outcome.notes
    _print(attribute, as_json, **({"changes": outcome.changes} if as_json else {}))
    print_changes(outcome.changes, notes, as_json)


@group.command("delete")
@name_argument
@yes_option
@json_option
def delete(name: str, yes: bool, as_json: bool) -> None:
    """Delete an attribute with the values of all users."""
    attribute = _find(name)
    count = stored.count_values(attribute.name)
    confirm(f"Delete the attribute {name}, which {count} users have a value of?", yes)
    with _defined(name):
        count = attributes.delete(audit.operator(), name)
    db.session.commit()
    if as_json:
        print_json({"name": name, "users": count, "deleted": True})
    else:
        print_line(f"Deleted {name}, with the values of {count} users.")


def edits_of(texts: Iterable[str]) -> dict[str, Any]:
    """Return the values of NAME=VALUE, by the types of the attributes; `None` if they are empty.

    Raises `Failure`.
    """
    edits = named_texts(texts, "attribute")
    return attributes.of_texts(edits) if edits else {}


def _find(name: str) -> Attribute:
    attribute = stored.find(name)
    if attribute is None:
        raise unknown("attribute", name)
    return attribute


@contextmanager
def _defined(name: str) -> Iterator[None]:
    try:
        yield
    except LookupError:
        raise unknown("attribute", name) from None


def _print(attribute: Attribute, as_json: bool, **more: Any) -> None:
    view = {**attributes.described(attribute), **more}
    if as_json:
        print_json(view)
    else:
        print_record(view.items())
