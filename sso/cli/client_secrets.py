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

_ends_at = click.option(
    "--ends-at",
    metavar="TIME",
    help="When the secret ends: 2027-01-31T18:00+01:00; without an offset, it is UTC.",
)


@group.command("rotate-secret")
@client_argument
@click.option(
    "--keep-old",
    type=click.IntRange(0, 24 * 365),
    default=0,
    metavar="HOURS",
    help="Hours for which the old secret stays valid; by default it ends at once.",
)
@_ends_at
@json_option
def rotate_secret(client_id: str, keep_old: int, ends_at: str | None, as_json: bool) -> None:
    """Give an application a new secret, shown once."""
    find_client(client_id, exactly=True)
    with known(client_id):
        client, secret = clients.rotate_secret(
            audit.operator(), client_id, timedelta(hours=keep_old), ends_at or ""
        )
    db.session.commit()
    show_secret(client, secret, as_json)
    if (until := client.previous_secret_expires_at) and not as_json:
        print_line(f"The old secret goes on until {until:%Y-%m-%d %H:%M} UTC.")


@group.command("limit-secret")
@client_argument
@_ends_at
@click.option("--no-ends-at", is_flag=True, help="Remove the end of the secret.")
@json_option
def limit_secret(client_id: str, ends_at: str | None, no_ends_at: bool, as_json: bool) -> None:
    """Set when the secret of an application ends."""
    if (ends_at is None) is not no_ends_at:
        raise click.UsageError("Give --ends-at or --no-ends-at.")
    find_client(client_id, exactly=True)
    with known(client_id):
        client = clients.limit_secret(audit.operator(), client_id, ends_at or "")
    db.session.commit()
    show_client(client, as_json)


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
