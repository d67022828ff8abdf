"""`flask client`: look after registered applications. `cli.connecting` registers them."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import click

from sso import audit, clock, context
from sso.cli import options
from sso.cli.commands import Group, confirm, json_option, yes_option
from sso.cli.lookup import only, unknown
from sso.cli.output import iso, print_changes, print_json, print_line, print_record, print_table
from sso.config import urls
from sso.extensions import db
from sso.models import Client, Grant
from sso.services import clients, groups
from sso.services.clients import SWITCHES
from sso.store import clients as stored_clients
from sso.store import grants, outbox

group = Group("client", help="Applications that users sign in to.")
client_argument = click.argument("client_id", metavar="ID")
_SHOWN_GRANTS = 50


@group.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List all applications."""
    found = stored_clients.every()
    if as_json:
        print_json([view(client) for client in found])
    else:
        print_table(
            ("ID", "NAME", "PUBLIC", "FIRST PARTY", "DISABLED", "REGISTERED"),
            [
                (
                    *(c.client_id, c.name, c.is_public, c.first_party),
                    *(c.disabled_at is not None, c.created_at),
                )
                for c in found
            ],
        )


@group.command("show")
@client_argument
@json_option
def show(client_id: str, as_json: bool) -> None:
    """Show an application's registration and its newest grants."""
    client = find_client(client_id)
    count, newest = grants.live_at(client.client_id, limit=_SHOWN_GRANTS)
    more = {
        "live_grants": count,
        "newest_grants": [_grant(grant) for grant in newest],
        "logout_tokens_waiting": outbox.logouts_waiting_for(client.client_id),
    }
    if as_json:
        print_json({**view(client), **more})
        return
    _show(client, as_json)
    more["live_grants"] = f"{count} or more" if count == grants.MOST_COUNTED else count
    print_record([(name, more[name]) for name in ("live_grants", "logout_tokens_waiting")])
    if newest:
        print_line()
        print_table(
            ("USER", "SCOPE", "SESSION", "SINCE"),
            [(g.user.email, g.scope, g.sid, g.created_at) for g in newest],
        )


@group.command("update")
@client_argument
@options.update_options
@json_option
def update(client_id: str, as_json: bool, **given: Any) -> None:
    """Change a registration, and print what changed."""
    switches, lists = options.switches(given), options.edits(given)
    logo, metadata = options.logo(given), options.metadata(given)
    if not (metadata or lists or switches or logo is not None):
        raise click.UsageError("There is nothing to change: give an option.")
    client_id = find_client(client_id).client_id
    with _known(client_id):
        client, outcome = clients.change(
            audit.operator(), client_id, metadata, lists=lists, switches=switches, logo=logo
        )
    db.session.commit()
    if as_json:
        print_json({**view(client), "changes": outcome.changes})
    else:
        _show(client, as_json)
    added = outcome.changes.get("groups", {}).get("added", [])
    notes = [*outcome.notes, *groups.without_members(added)]
    print_changes(outcome.changes, notes, as_json)


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
    with _known(client_id):
        client, secret = clients.rotate_secret(
            audit.operator(), client_id, timedelta(hours=keep_old)
        )
    db.session.commit()
    show_secret(client, secret, as_json)
    if (until := client.previous_secret_expires_at) and not as_json:
        print_line(f"The old secret goes on until {until:%Y-%m-%d %H:%M} UTC.")


@group.command("disable")
@client_argument
@json_option
def disable(client_id: str, as_json: bool) -> None:
    """Disable an application; its tokens end at once."""
    find_client(client_id, exactly=True)
    with _known(client_id):
        client = clients.disable(audit.operator(), client_id)
    db.session.commit()
    _show(client, as_json)


@group.command("enable")
@client_argument
@json_option
def enable(client_id: str, as_json: bool) -> None:
    """Enable an application again; ended tokens stay ended."""
    client_id = find_client(client_id).client_id
    with _known(client_id):
        client = clients.enable(audit.operator(), client_id)
    db.session.commit()
    _show(client, as_json)


@group.command("delete")
@client_argument
@yes_option
@json_option
def delete(client_id: str, yes: bool, as_json: bool) -> None:
    """Delete an application with its tokens and consents."""
    client = find_client(client_id, exactly=True)
    confirm(f"Delete the application {client.name} ({client.client_id})?", yes)
    with _known(client_id):
        clients.delete(audit.operator(), client_id)
    db.session.commit()
    if as_json:
        print_json({"client_id": client_id, "deleted": True})
    else:
        print_line(f"Deleted {client_id}.")


def find_client(client_id: str, *, exactly: bool = False) -> Client:
    """The client that an operator means, by client ID, name, or how one of these begins.

    `exactly`: by client ID alone. Raises `Failure`.
    """
    if found := one_client(client_id, exactly=exactly):
        return found
    raise unknown("client", client_id)


def one_client(client_id: str, *, exactly: bool = False) -> Client | None:
    """As `find_client`, or `None` if there is none."""
    return only(
        stored_clients.matching(client_id),
        client_id,
        lambda client: f"{client.client_id} ({client.name})",
        "the client ID",
        exactly=exactly,
    )


@contextmanager
def _known(client_id: str) -> Iterator[None]:
    try:
        yield
    except LookupError:  # deleted at this moment
        raise unknown("client", client_id) from None


def view(client: Client) -> dict[str, Any]:
    """What commands show of a client, by RFC 7591 names: never a secret or its digest."""
    logo = stored_clients.logo_digest(client.client_id)
    return {
        "client_id": client.client_id,
        "client_id_issued_at": clock.timestamp(client.created_at),
        **client.client_metadata,
        **({"logo_uri": urls.client_logo(context.settings().base_url, logo)} if logo else {}),
        **{name: getattr(client, name) for name in SWITCHES},
        "disabled": client.disabled_at is not None,
    }


def _grant(grant: Grant) -> dict[str, Any]:
    return {
        "user": grant.user.email,
        "scope": grant.scope,
        "sid": grant.sid,
        "since": iso(grant.created_at),
    }


def _show(client: Client, as_json: bool) -> None:
    shown = view(client)
    if as_json:
        print_json(shown)
    else:
        shown["client_id_issued_at"] = client.created_at
        print_record(shown.items())


def with_secret(client: Client, secret: str) -> dict[str, Any]:
    """The answer to a registration (RFC 7591 §3.2.1); with a secret, where the client has one."""
    issued = {"client_secret": secret, "client_secret_expires_at": 0} if client.has_secret else {}
    return {"client_id": client.client_id, **issued, **view(client)}


def show_secret(client: Client, secret: str, as_json: bool) -> None:
    """The secret is shown this once."""
    if as_json:
        print_json(with_secret(client, secret))
        return
    issued = [("client_secret", secret)] if client.has_secret else []
    issuer = context.settings().issuer
    server = [("issuer", issuer), ("discovery", f"{issuer}/.well-known/openid-configuration")]
    print_record([("client_id", client.client_id), *issued, *server])
    if client.is_public:
        print_line("It is public: it has no secret and has to use PKCE.")
    elif not client.has_secret:
        print_line("It has no secret: it signs with its private key.")
    else:
        print_line("The secret is shown this once; keep it safe.")
