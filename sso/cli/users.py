"""`flask user`: the people who sign in. Their access is in `user_access`."""

from typing import Any

import click

from sso import audit, endings
from sso.cli import claims as operator_claims
from sso.cli import registration, views
from sso.cli.commands import Failure, Group, json_option
from sso.cli.new_password import ask, stdin_option
from sso.cli.output import print_json, print_line, print_record, print_table
from sso.cli.registration import RegistrationError
from sso.extensions import db
from sso.models import User
from sso.store import clients, users

group = Group("user", help="People who sign in.")
user_argument = click.argument("who", metavar="EMAIL|ID")
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
    audit.event("user_created", user=user.id)
    db.session.commit()
    if as_json:
        print_json(views.user(user))
    else:
        print_record(views.user(user).items())


@group.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List everybody."""
    found = users.every()
    if as_json:
        print_json([views.whole_user(user) for user in found])
    else:
        print_table(
            ("ID", "E-MAIL", "NAME", "VERIFIED", "DISABLED", "GROUPS"),
            [
                (u.id, u.email, u.name, u.email_verified, u.disabled_at is not None,
                 ", ".join(u.groups))
                for u in found
            ],
        )  # fmt: skip


@group.command("show")
@user_argument
@json_option
def show(who: str, as_json: bool) -> None:
    """Show what is known of a person."""
    show_user(find_user(who), as_json)


@group.command("update")
@user_argument
@click.option(
    "--email", help="A new address counts as unverified unless --email-verified is given."
)
@click.option("--name")
@click.option("--email-verified/--no-email-verified", default=None)
@_groups
@click.option("--no-groups", is_flag=True, help="Take all groups away.")
@_claims
@json_option
def update(
    who: str,
    email: str | None,
    name: str | None,
    email_verified: bool | None,
    groups: tuple[str, ...],
    no_groups: bool,
    claims: tuple[str, ...],
    as_json: bool,
) -> None:
    """Change what is given; groups are replaced whole, a claim with an empty value is removed."""
    if groups and no_groups:
        raise click.UsageError("--no-groups contradicts --group.")
    given = (email, name, email_verified, groups or None, no_groups or None, claims or None)
    if all(value is None for value in given):
        raise click.UsageError("There is nothing to change: give an option.")
    user = find_user(who)
    before = user.email
    registration.change_user(
        user,
        email=email,
        name=name,
        groups=groups if groups or no_groups else None,
        claims=_parsed(claims),
    )
    if email_verified is not None:
        user.email_verified = email_verified
    elif user.email != before:
        user.email_verified = False
    if groups or no_groups:
        endings.lost_memberships([user], clients.every())
    names = ("email", "name", "email_verified", "groups", "groups", "claims")
    what = [name for name, value in zip(names, given, strict=True) if value is not None]
    audit.event("user_changed", user=user.id, what=" ".join(dict.fromkeys(what)))
    db.session.commit()
    show_user(user, as_json)


def find_user(who: str) -> User:
    """The user whom an operator names. Raises `Failure`."""
    user = users.find_by_email_or_id(who)
    if user is None:
        raise Failure(f"there is no user {who}; see: flask user list")
    return user


def show_user(user: User, as_json: bool) -> None:
    shown: dict[str, Any] = views.whole_user(user)
    if as_json:
        print_json(shown)
        return
    shown.pop("claims")
    print_record([*shown.items(), *((f"claim {name}", v) for name, v in user.claims.items())])


def done(user: User, as_json: bool, words: str, **what: object) -> None:
    """Say what was done to a user who is not shown whole."""
    if as_json:
        print_json({"id": str(user.id), "email": user.email, **what})
    else:
        print_line(f"{user.email} ({user.id}): {words}.")


def _parsed(texts: tuple[str, ...]) -> dict[str, Any]:
    found, faults = operator_claims.parse(texts)
    if faults:
        raise RegistrationError(faults)
    return found
