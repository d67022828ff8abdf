"""`flask user list` and `show`, and helpers of all commands about users. It loads fast."""

from typing import Any

import click

from sso.cli.commands import Group, json_option, only, unknown
from sso.cli.output import iso, print_json, print_line, print_record, print_table
from sso.models import User
from sso.store import users

group = Group("user", help="Users, their sessions and second factors.")
user_argument = click.argument("identifier", metavar="WHO")


@group.command("list")
@click.option("--search", metavar="TEXT", help="Only users with this text in the email or name.")
@click.option("--group", "member_of", metavar="GROUP", help="Only members of this group.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=100, show_default=True)
@json_option
def list_(search: str | None, member_of: str | None, limit: int, as_json: bool) -> None:
    """List users in the order of their email addresses."""
    rows = users.listed(search, member_of, limit + 1)
    if is_cut := len(rows) > limit:
        rows = rows[:limit]
    if as_json:
        print_json([whole(user) for user in rows])
    else:
        print_table(
            ("ID", "EMAIL", "NAME", "VERIFIED", "DISABLED", "GROUPS"),
            [
                (u.id, u.email, u.name, u.email_verified, u.is_disabled,
                 ", ".join(u.groups))
                for u in rows
            ],
        )  # fmt: skip
    if is_cut:
        click.echo(
            f"These are the first {limit}; there are more. Use --search, --group or --limit.",
            err=True,
        )
    most = users.MOST_LOOKED_THROUGH
    if search and member_of is None and users.is_search_bounded(most):
        click.echo(
            f"Only the first {most:,} users were looked through."
            " `user show` finds the beginning of an email or a name among all.",
            err=True,
        )


@group.command("show")
@user_argument
@json_option
def show(identifier: str, as_json: bool) -> None:
    """Show a user."""
    show_user(find_user(identifier), as_json)


def find_user(identifier: str, *, exactly: bool = False) -> User:
    """Find a user by id, email, name, or the beginning of one of these. Raises `Failure`.

    `exactly`: only by id or email.
    """
    if user := one_user(identifier, exactly=exactly):
        return user
    raise unknown("user", identifier)


def one_user(identifier: str, *, exactly: bool = False) -> User | None:
    """Find a user like `find_user`, or return `None`."""
    return only(
        users.matching(identifier),
        identifier,
        lambda user: f"{user.email} ({user.name})",
        "the email or id",
        exactly=exactly,
    )


def show_user(user: User, as_json: bool) -> None:
    view = whole(user)
    if as_json:
        print_json(view)
        return
    more = [(f"claim {name}", value) for name, value in view.pop("claims").items()]
    more += [(f"attribute {name}", value) for name, value in view.pop("attributes").items()]
    print_record([*view.items(), *more])


def brief(user: User) -> dict[str, Any]:
    return {
        "id": str(user.id),
        "email": user.email,
        "name": user.name,
        "email_verified": user.email_verified,
    }


def whole(user: User) -> dict[str, Any]:
    """Return all fields of a user to show."""
    return {
        **brief(user),
        "groups": user.groups,
        "group_ends": user.group_ends or {},
        "claims": user.claims,
        "attributes": user.attributes,
        "disabled": user.is_disabled,
        "ends_at": iso(user.ends_at),
        "last_active_at": iso(user.last_active_at),
        "terms_version": user.terms_version,
        "terms_accepted_at": iso(user.terms_accepted_at),
        "created_at": iso(user.created_at),
    }


def done(user: User, as_json: bool, sentence: str, **result: object) -> None:
    """Print the result of a change to a user."""
    if as_json:
        print_json({"id": str(user.id), "email": user.email, **result})
    else:
        print_line(f"{user.email} ({user.id}): {sentence}.")
