"""`flask client rotate-secret` and `end-old-secret`."""

from datetime import timedelta

import click

from sso import audit
from sso.cli.clients import (
    client_argument,
    find_client,
    group,
    known,
    show_client,
    show_secret,
)
from sso.cli.commands import json_option
from sso.cli.output import print_line
from sso.extensions import db
from sso.services import clients


@group.command("rotate-secret")
@client_argument
@click.option(
    "--keep-old",
    type=click.IntRange(0, 24 * 365),
    default=0,
    metavar="HOURS",
    help="Hours for which the old secret stays valid; by default it ends at once.",
)
@json_option
def rotate_secret(client_id: str, keep_old: int, as_json: bool) -> None:
    """Give an application a new secret, shown once."""
    find_client(client_id, exactly=True)
    with known(client_id):
        client, secret = clients.rotate_secret(
            audit.operator(), client_id, timedelta(hours=keep_old)
        )
    db.session.commit()
    show_secret(client, secret, as_json)
    if (until := client.previous_secret_expires_at) and not as_json:
        print_line(f"The old secret goes on until {until:%Y-%m-%d %H:%M} UTC.")


@group.command("end-old-secret")
@client_argument
@json_option
def end_old_secret(client_id: str, as_json: bool) -> None:
    """End the secret that a rotation has kept."""
    find_client(client_id, exactly=True)
    with known(client_id):
        client = clients.end_old_secret(audit.operator(), client_id)
    db.session.commit()
    show_client(client, as_json)
