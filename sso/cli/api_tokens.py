"""`flask api-token`: tokens of programs that administer the server."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import click

from sso import audit, clock
from sso.cli.audit import Moment
from sso.cli.commands import Group, by_id, confirm, json_option, yes_option
from sso.cli.output import iso, print_json, print_line, print_once, print_table
from sso.extensions import db
from sso.models import ApiToken
from sso.services import api_tokens
from sso.store import keys, users

group = Group("api-token", help="Tokens of programs that administer the server.")
_LIFETIME = re.compile(r"(\d{1,6})([hd])")


class Lifetime(click.ParamType[timedelta]):
    """How long something is valid: 12h, 90d."""

    name = "time"

    def convert(
        self, value: str | timedelta, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        if isinstance(value, timedelta):
            return value
        match = _LIFETIME.fullmatch(value)
        if match is None:
            self.fail("give hours or days: 12h, 90d", param, ctx)
        return timedelta(hours=int(match[1]) * (24 if match[2] == "d" else 1))


@group.command("create")
@click.option("--name", required=True, help="Which program uses it.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    metavar="SCOPE",
    help="May be repeated. "
    + "; ".join(f"{name}: {meaning}" for name, meaning in api_tokens.SCOPES.items())
    + ".",
)
@click.option("--expires-in", type=Lifetime(), help="How long it is valid: 12h, 90d. [365d]")
@click.option("--expires", type=Moment(), help="When it expires: 2027-11-21, in UTC.")
@json_option
def create(
    name: str,
    scopes: Sequence[str],
    expires_in: timedelta | None,
    expires: datetime | None,
    as_json: bool,
) -> None:
    """Create an API token; it is shown once."""
    if expires_in and expires:
        raise click.UsageError("--expires contradicts --expires-in.")
    lifetime = expires - clock.now() if expires else expires_in or api_tokens.DEFAULT_LIFETIME
    scope_names = [scope for text in scopes for scope in text.split()]
    token, secret = api_tokens.create(audit.operator(), name, scope_names, lifetime)
    db.session.commit()
    print_once(
        {**_view(token, {}), "token": secret},
        ("id", "name", "scope", "expires_at", "token"),
        "The token is shown this once; send it as: Authorization: Bearer TOKEN",
        as_json,
    )


@group.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List all API tokens."""
    tokens = keys.every_api_token()
    owners = users.emails(str(token.owner_id) for token in tokens if token.owner_id)
    if as_json:
        print_json([_view(token, owners) for token in tokens])
    else:
        print_table(
            ("ID", "NAME", "OWNER", "STATE", "SCOPE", "EXPIRES", "LAST USED", "FROM"),
            [
                (
                    *(token.id, token.name, owners.get(str(token.owner_id), token.owner_id)),
                    *(token.state, token.scope, token.expires_at),
                    *(token.last_used_at, token.last_used_address),
                )
                for token in tokens
            ],
        )


@group.command("revoke")
@click.argument("token_id", metavar="ID")
@yes_option
@json_option
def revoke(token_id: str, yes: bool, as_json: bool) -> None:
    """Revoke an API token; it stops at once."""
    match = keys.matching_api_tokens(token_id)
    token = by_id("api-token", match, token_id, lambda token: token.name, exactly=True)
    owners = users.emails([str(token.owner_id)] if token.owner_id else [])
    confirm(f"Revoke the API token {token.name} ({token.id})?", yes)
    token = api_tokens.revoke(audit.operator(), token.id)
    db.session.commit()
    if as_json:
        print_json(_view(token, owners))
    else:
        print_line(f"Revoked {token.name} ({token.id}).")


def _view(token: ApiToken, owners: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a token to show, without its secret. `owners`: email addresses by id."""
    return {
        "id": str(token.id),
        "name": token.name,
        "owner_id": str(token.owner_id) if token.owner_id else None,
        "owner": owners.get(str(token.owner_id)),
        "scope": token.scope,
        "state": token.state,
        "created_at": iso(token.created_at),
        "expires_at": iso(token.expires_at),
        "revoked_at": iso(token.revoked_at),
        "last_used_at": iso(token.last_used_at),
        "last_used_address": token.last_used_address,
    }
