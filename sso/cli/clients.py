"""`flask client`: register applications and look after them."""

from datetime import timedelta
from typing import Any

import click

from sso import audit, clock, context
from sso.audit.events import Event
from sso.cli import client_options, registration, updating, views
from sso.cli.commands import Failure, Group, confirm, json_option, yes_option
from sso.cli.differences import tell
from sso.cli.output import print_json, print_line, print_record, print_table
from sso.crypto import digests
from sso.extensions import db
from sso.models import Client
from sso.store import clients, grants, logout_deliveries

group = Group("client", help="Applications that people sign in to.")
_SHOWN_GRANTS = 50
_SWITCHES = ("first_party", "require_pkce", "require_mfa")
_client_id = click.argument("client_id", metavar="ID")


@group.command("create")
@client_options.create_options
@json_option
def create(as_json: bool, **options: Any) -> None:
    """Register an application; its secret is shown once."""
    for name, option in (("name", "--name"), ("redirect_uris", "--redirect-uri")):
        if not options[name]:
            raise click.UsageError(f"Missing option '{option}'.")
    client, secret = registration.register_client(**client_options.given(options))
    audit.event(Event.CLIENT_CREATED, client=client.client_id)
    db.session.commit()
    _show_secret(client, secret, as_json)
    if not as_json and not client.require_pkce:
        print_line("PKCE is recommended for it, not required. To refuse requests without PKCE:")
        print_line(f"  flask client update {client.client_id} --require-pkce")


@group.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List all applications."""
    found = clients.every()
    if as_json:
        print_json([views.client(client) for client in found])
    else:
        print_table(
            ("ID", "NAME", "FIRST PARTY", "DISABLED", "REGISTERED"),
            [
                (c.client_id, c.name, c.first_party, c.disabled_at is not None, c.created_at)
                for c in found
            ],
        )


@group.command("show")
@_client_id
@json_option
def show(client_id: str, as_json: bool) -> None:
    """Show how an application is registered, and the newest of its live grants."""
    client = _find(client_id)
    count, newest = grants.live_at(client_id, limit=_SHOWN_GRANTS)
    told = {
        "live_grants": count,
        "newest_grants": [views.grant(grant) for grant in newest],
        "logout_tokens_waiting": logout_deliveries.waiting_for(client_id),
    }
    if as_json:
        print_json({**views.client(client), **told})
        return
    _show(client, as_json)
    print_record([(name, told[name]) for name in ("live_grants", "logout_tokens_waiting")])
    if newest:
        print_line()
        print_table(
            ("USER", "SCOPE", "SESSION", "SINCE"),
            [(g.user.email, g.scope, g.sid, g.created_at) for g in newest],
        )


@group.command("update")
@_client_id
@client_options.update_options
@json_option
def update(client_id: str, as_json: bool, **options: Any) -> None:
    """Change what is given, and say what changed."""
    switches = {name: value for name in _SWITCHES if (value := options.pop(name)) is not None}
    lists = client_options.edits(options)
    metadata = client_options.metadata(options)
    if not (metadata or lists or switches):
        raise click.UsageError("There is nothing to change: give an option.")
    try:
        client, outcome = updating.update_client(client_id, metadata, lists, switches)
    except LookupError:
        raise _unknown(client_id) from None
    db.session.commit()
    if as_json:
        print_json({**views.client(client), "changes": outcome.changes})
    else:
        _show(client, as_json)
    tell(outcome, as_json)


@group.command("rotate-secret")
@_client_id
@click.option(
    "--keep-old",
    type=click.IntRange(0, 24 * 365),
    default=0,
    metavar="HOURS",
    help="Hours for which the old secret goes on; without it, it stops at once.",
)
@json_option
def rotate_secret(client_id: str, keep_old: int, as_json: bool) -> None:
    """Give an application a new secret, shown once."""
    client = _locked(client_id)
    secret = digests.make(digests.CLIENT_SECRET)
    until = clock.now() + timedelta(hours=keep_old) if keep_old else None
    clients.replace_secret(client, digests.digest(secret), until)
    audit.event(Event.CLIENT_SECRET_ROTATED, client=client_id, old_until=until)
    db.session.commit()
    _show_secret(client, secret, as_json)
    if until and not as_json:
        print_line(f"The old secret goes on until {until:%Y-%m-%d %H:%M} UTC.")


@group.command("disable")
@_client_id
@json_option
def disable(client_id: str, as_json: bool) -> None:
    """Shut an application out, at once; its tokens end."""
    client = _locked(client_id)
    client.disabled_at = client.disabled_at or clock.now()
    grants.end_of_client(client.client_id, "client_disabled")
    audit.event(Event.CLIENT_DISABLED, client=client_id)
    db.session.commit()
    _show(client, as_json)


@group.command("enable")
@_client_id
@json_option
def enable(client_id: str, as_json: bool) -> None:
    """Let an application in again; ended tokens stay ended."""
    client = _locked(client_id)
    client.disabled_at = None
    audit.event(Event.CLIENT_ENABLED, client=client_id)
    db.session.commit()
    _show(client, as_json)


@group.command("delete")
@_client_id
@yes_option
@json_option
def delete(client_id: str, yes: bool, as_json: bool) -> None:
    """Delete an application with its tokens and consents."""
    client = _find(client_id)
    confirm(f"Delete the application {client.name} ({client.client_id})?", yes)
    if clients.lock_to_remove(client_id) is None:
        raise _unknown(client_id)
    grants.end_of_client(client.client_id, "client_deleted")
    clients.remove(client)
    audit.event(Event.CLIENT_DELETED, client=client_id)
    db.session.commit()
    if as_json:
        print_json({"client_id": client_id, "deleted": True})
    else:
        print_line(f"Deleted {client_id}.")


def _find(client_id: str) -> Client:
    client = clients.find(client_id)
    if client is None:
        raise _unknown(client_id)
    return client


def _locked(client_id: str) -> Client:
    """To change it: the commands wait for each other, and codes are not issued meanwhile."""
    client = clients.lock(client_id)
    if client is None:
        raise _unknown(client_id)
    return client


def _unknown(client_id: str) -> Failure:
    return Failure(f"there is no client {client_id}; see: flask client list")


def _show(client: Client, as_json: bool) -> None:
    shown = views.client(client)
    if as_json:
        print_json(shown)
    else:
        shown["client_id_issued_at"] = client.created_at
        print_record(shown.items())


def _show_secret(client: Client, secret: str, as_json: bool) -> None:
    if as_json:
        print_json(views.client_with_secret(client, secret))
        return
    print_record(
        [
            ("client_id", client.client_id),
            ("client_secret", secret),
            ("issuer", context.settings().issuer),
        ]
    )
    print_line("The secret is shown this once; keep it safe.")
