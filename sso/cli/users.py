"""`flask user`, continued: create, invite, update, disable, enable, delete."""

import json
from collections.abc import Iterable
from typing import Any

import click

from sso import audit, context
from sso.cli.commands import (
    Failure,
    ask_password,
    confirm,
    json_option,
    password_stdin_option,
    yes_option,
)
from sso.cli.lookup import unknown
from sso.cli.options import ListOption, with_options
from sso.cli.output import print_changes, print_json, print_line, print_notes, print_record
from sso.cli.people import brief, done, find_user, group, show_user, user_argument, whole
from sso.extensions import db
from sso.process.program import COMMAND
from sso.services import accounts
from sso.services import groups as memberships
from sso.services.checks import ADDRESS, PHONE_VERIFIED
from sso.store import keys

_GROUPS = ListOption(
    "groups", "group", "groups", "GROUP", has_spaces=True, former=("--group", "--no-groups")
)
_email = click.option("--email", required=True)
_name = click.option("--name", required=True, help="The name that applications see.")
_groups = click.option("--group", "groups", multiple=True, help="A group. May be repeated.")
_claims = click.option(
    "--claim",
    "claims",
    multiple=True,
    metavar="NAME=VALUE",
    callback=lambda _ctx, _option, texts: _parsed(texts),
    help="A standard claim such as given_name or locale; address as JSON. May be repeated.",
)


@group.command("create")
@_email
@_name
@password_stdin_option
@click.option("--email-verified", is_flag=True, help="The address belongs to the user.")
@click.option("--admin", is_flag=True, help="May administer the server in the browser.")
@_groups
@_claims
@json_option
def create(as_json: bool, password_stdin: bool, admin: bool, **given: Any) -> None:
    """Create a user; asks for the password."""
    if admin:
        given["groups"] = [*given["groups"], context.settings().admin_group]
    user = accounts.create(audit.operator(), password=ask_password(password_stdin), **given)
    db.session.commit()
    print_notes(memberships.not_known(user.groups, user))
    if as_json:
        print_json(brief(user))
    else:
        print_record(brief(user).items())


@group.command("invite")
@_email
@_name
@_groups
@json_option
def invite(as_json: bool, **given: Any) -> None:
    """Create a user, and mail a link to set the password."""
    user, is_sent = accounts.invite(audit.operator(), **given)
    db.session.commit()
    left_out = [] if is_sent else [f"No mail is sent to {user.email}: too many, or none arrives."]
    print_notes([*memberships.not_known(user.groups, user), *left_out])
    if as_json:
        print_json(brief(user))
    else:
        sends = f"; {COMMAND} worker sends the mail" if is_sent else ""
        print_line(f"{user.email} ({user.id}): invited{sends}.")


@group.command("update")
@user_argument
@click.option("--email", help="The new address is unverified unless --email-verified is given.")
@click.option("--name")
@click.option("--email-verified/--no-email-verified", default=None)
@with_options(_GROUPS)
@_claims
@json_option
def update(who: str, as_json: bool, **options: Any) -> None:
    """Change a user, and print what changed; an empty claim is removed."""
    options["memberships"] = _GROUPS.edit(options)
    wanted = {name: value for name, value in options.items() if value not in (None, {})}
    if not wanted:
        raise click.UsageError("There is nothing to change: give an option.")
    try:
        user, outcome = accounts.update(audit.operator(), find_user(who, exactly=True).id, **wanted)
    except LookupError:  # deleted at this moment
        raise unknown("user", who) from None
    db.session.commit()
    if as_json:
        print_json({**whole(user), "changes": outcome.changes})
    else:
        show_user(user, as_json)
    added = outcome.changes.get("groups", {}).get("added", [])
    print_changes(outcome.changes, [*outcome.notes, *memberships.not_known(added, user)], as_json)


@group.command("disable")
@user_argument
@json_option
def disable(who: str, as_json: bool) -> None:
    """Disable a user; all their sessions, tokens and API tokens end at once."""
    user = find_user(who, exactly=True)
    accounts.disable(audit.operator(), user)
    db.session.commit()
    show_user(user, as_json)


@group.command("enable")
@user_argument
@json_option
def enable(who: str, as_json: bool) -> None:
    """Enable a user again; ended sessions stay ended."""
    user = find_user(who, exactly=True)
    accounts.enable(audit.operator(), user)
    db.session.commit()
    show_user(user, as_json)


@group.command("delete")
@user_argument
@yes_option
@json_option
def delete(who: str, yes: bool, as_json: bool) -> None:
    """Delete a user with sessions, tokens, consents and API tokens."""
    user = find_user(who, exactly=True)
    names = ", ".join(one.name for one in keys.of_owner(user.id))
    confirm(
        f"Delete {user.email} ({user.id})"
        f"{f', and revoke the API tokens {names}' if names else ''}?",
        yes,
    )
    accounts.delete(audit.operator(), user)
    db.session.commit()
    done(user, as_json, "deleted", deleted=True)


def _parsed(texts: Iterable[str]) -> dict[str, Any]:
    """Claims by name, `None` where the value is empty."""
    found: dict[str, Any] = {}
    errors = []
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator:
            errors.append(f"the claim {text!r} is not NAME=VALUE")
        elif name in found:
            errors.append(f"the claim {name!r} is given twice")
        else:
            found[name] = _typed(name, value) if value else None
    if errors:
        raise Failure("; ".join(errors))
    return found


def _typed(name: str, value: str) -> Any:
    if name == ADDRESS:
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value  # `checks` says that it is no JSON object
    if name == PHONE_VERIFIED:
        return {"true": True, "false": False}.get(value, value)
    return value
