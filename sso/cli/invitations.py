"""`flask user invite`: an account whose owner sets the password."""

import click

from sso import audit
from sso.audit.events import Event
from sso.cli import registration, views
from sso.cli.commands import json_option
from sso.cli.output import print_json, print_line
from sso.cli.people import group
from sso.extensions import db


@group.command("invite")
@click.option("--email", required=True)
@click.option("--name", required=True, help="The name that applications see.")
@click.option("--group", "groups", multiple=True, help="A group. May be repeated.")
@json_option
def invite(email: str, name: str, groups: tuple[str, ...], as_json: bool) -> None:
    """Add a person, and mail a link with which they set their password."""
    user = registration.create_user(
        email=email, name=name, groups=groups, password=None, invited=True
    )
    audit.event(Event.USER_INVITED, user=user.id)
    db.session.commit()
    if as_json:
        print_json(views.user(user))
    else:
        print_line(f"{user.email} ({user.id}): invited; flask worker sends the mail.")
