"""`flask user`: people are added and changed. Their access is in `user_access`."""

from typing import Any

import click

from sso import audit
from sso.audit.events import Event
from sso.cli import claims as operator_claims
from sso.cli import lists, registration, updating, views
from sso.cli.commands import json_option
from sso.cli.differences import tell
from sso.cli.lists import ListOption
from sso.cli.new_password import ask, stdin_option
from sso.cli.output import print_json, print_record
from sso.cli.people import find_user, group, show_user, unknown, user_argument
from sso.cli.registration import RegistrationError
from sso.extensions import db

_GROUPS = ListOption(
    "groups", "group", "groups", "GROUP", has_spaces=True, former=("--group", "--no-groups")
)
_groups = click.option("--group", "groups", multiple=True, help="A group. May be repeated.")
_claims = click.option(
    "--claim",
    "claims",
    multiple=True,
    metavar="NAME=VALUE",
    help="A standard claim such as given_name or locale; address as JSON. May be repeated.",
)


@group.command("create")
@click.option("--email", required=True)
@click.option("--name", required=True, help="The name that applications see.")
@stdin_option
@click.option("--email-verified", is_flag=True, help="The address is known to be theirs.")
@_groups
@_claims
@json_option
def create(
    email: str,
    name: str,
    password_stdin: bool,
    email_verified: bool,
    groups: tuple[str, ...],
    claims: tuple[str, ...],
    as_json: bool,
) -> None:
    """Add a person; asks for the password."""
    user = registration.create_user(
        email=email,
        name=name,
        email_verified=email_verified,
        groups=groups,
        claims=_parsed(claims),
        password=ask(password_stdin),
    )
    audit.event(Event.USER_CREATED, user=user.id)
    db.session.commit()
    if as_json:
        print_json(views.user(user))
    else:
        print_record(views.user(user).items())


@group.command("update")
@user_argument
@click.option(
    "--email", help="A new address counts as unverified unless --email-verified is given."
)
@click.option("--name")
@click.option("--email-verified/--no-email-verified", default=None)
@lists.with_options(_GROUPS)
@_claims
@json_option
def update(who: str, claims: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Change what is given, and say what changed; a claim with an empty value is removed."""
    groups = _GROUPS.edit(options)
    wanted = {name: value for name, value in options.items() if value is not None}
    if not (wanted or groups or claims):
        raise click.UsageError("There is nothing to change: give an option.")
    try:
        user, outcome = updating.update_user(
            find_user(who).id, groups=groups, claims=_parsed(claims), **wanted
        )
    except LookupError:  # deleted at this moment
        raise unknown(who) from None
    db.session.commit()
    if as_json:
        print_json({**views.whole_user(user), "changes": outcome.changes})
    else:
        show_user(user, as_json)
    tell(outcome, as_json)


def _parsed(texts: tuple[str, ...]) -> dict[str, Any]:
    found, faults = operator_claims.parse(texts)
    if faults:
        raise RegistrationError(faults)
    return found
