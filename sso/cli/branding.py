"""`flask branding`: name, logo, accent color and links, as they are stored in the database."""

from typing import Any

import click

from sso import audit, context
from sso.cli.clients import Function, decorated, option_of
from sso.cli.commands import Group, confirm, json_option, yes_option
from sso.cli.output import print_changes, print_json, print_record
from sso.config.branding import FIELDS, in_environment, setting_of
from sso.extensions import db
from sso.observability.setting_values import DATABASE, DEFAULT, ENVIRONMENT, of_database
from sso.services import branding, checks
from sso.services.changes import Differences

group = Group("branding", help="Name, logo, color and links of pages and mail.")
_FIELDS = [(field, field.option) for field in FIELDS.values() if field.option]


def _set_options(function: Function) -> Function:
    return decorated(function, [option_of(*pair) for pair in _FIELDS])


@group.command("show")
@json_option
def show(as_json: bool) -> None:
    """Show the branding in use, and where each value comes from."""
    values = _values()
    if as_json:
        print_json(values)
    else:
        print_record(
            (name, f"{field['value'] or '-'} ({field['source']})") for name, field in values.items()
        )


def _values() -> dict[str, dict[str, Any]]:
    settings = context.settings()
    from_environment, in_use = in_environment(settings), of_database(context.branding())
    values = {}
    for name in FIELDS:
        value = in_use.get(setting_of(name))
        source = DATABASE if value else DEFAULT
        if name in from_environment:
            source = ENVIRONMENT
        values[name] = {"value": value, "source": source}
    return values


@group.command("set")
@_set_options
@json_option
def set_(as_json: bool, logo: str | None, **texts: str | None) -> None:
    """Store values; pages show them within seconds, without a restart.

    What the environment sets cannot be stored. An empty value removes one.
    """
    fields: dict[str, Any] = {name: text for name, text in texts.items() if text is not None}
    if logo is not None:
        fields["logo"] = checks.logo(logo)
    if not fields:
        raise click.UsageError("There is nothing to change: give an option.")
    _change(fields, as_json)


@group.command("reset")
@click.argument("names", metavar="[FIELD]...", type=click.Choice([*FIELDS]), nargs=-1)
@yes_option
@json_option
def reset(names: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Remove stored values, by default all of them."""
    what = ", ".join(names) or "all values"
    confirm(f"Remove {what} of the stored branding?", yes)
    _change(dict.fromkeys(names or FIELDS), as_json)


def _change(fields: dict[str, Any], as_json: bool) -> None:
    changes: Differences = branding.change(audit.operator(), fields)
    db.session.commit()
    context.forget_branding()
    if as_json:
        print_json({**_values(), "changes": changes})
    print_changes(changes, [], as_json)
