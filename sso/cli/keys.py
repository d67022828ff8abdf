"""`flask key`: the life of the signing keys. For `reencrypt` see the file of that name."""

from collections.abc import Sequence
from typing import Any

import click

from sso import audit, context
from sso.cli.commands import Failure, Group, json_option
from sso.cli.output import iso, print_json, print_table
from sso.extensions import db
from sso.models import SigningKey
from sso.process.program import COMMAND
from sso.services import signing_keys
from sso.store import keys

group = Group("key", help="Signing keys: next, active, retired.")


@group.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List all signing keys, oldest first."""
    _show(keys.every_signing_key(), as_json)


@group.command("rotate")
@click.option(
    "--force",
    is_flag=True,
    help="Rotate now, although applications may not know the next keys yet.",
)
@click.option(
    "--lost-secret-key",
    is_flag=True,
    help="Make new keys where SSO_SECRET_KEY does not open those there are, because the secret key "
    "that does is lost for good. Implies --force.",
)
@json_option
def rotate(force: bool, lost_secret_key: bool, as_json: bool) -> None:
    """Make the next keys active, and publish new next keys."""
    activated = signing_keys.rotate(
        audit.operator(),
        context.settings().secret_keys,
        force or lost_secret_key,
        discard=lost_secret_key,
    )
    db.session.commit()
    context.forget_keys()
    _show(activated, as_json)


# A kid is a thumbprint and may begin with a dash.
@group.command("retire", context_settings={"ignore_unknown_options": True})
@click.argument("kid")
@json_option
def retire(kid: str, as_json: bool) -> None:
    """Replace a next key before it is used, or remove a retired key from the key set.

    If a key was stolen: rotate --force, then retire the key that was active.
    """
    try:
        key = signing_keys.retire(audit.operator(), kid, context.settings().secret_keys)
    except LookupError:
        raise Failure(f"there is no key {kid}; see: {COMMAND} key list") from None
    db.session.commit()
    context.forget_keys()
    if as_json:
        print_json(_view(key))
    else:
        _show([key], as_json)


def _view(key: SigningKey) -> dict[str, Any]:
    return {
        "kid": key.kid,
        "alg": key.alg,
        "state": str(key.state),
        "created_at": iso(key.created_at),
        "activated_at": iso(key.activated_at),
        "retired_at": iso(key.retired_at),
    }


def _show(keys: Sequence[SigningKey], as_json: bool) -> None:
    if as_json:
        print_json([_view(key) for key in keys])
    else:
        print_table(
            ("KID", "ALG", "STATE", "MADE", "IN USE SINCE", "RETIRED"),
            [
                (k.kid, k.alg, k.state, k.created_at, k.activated_at, k.retired_at)
                for k in keys
            ],
        )  # fmt: skip
