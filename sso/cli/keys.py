"""`flask key`: rotate signing keys, and encrypt stored secrets with a new secret key."""

import time
from collections.abc import Sequence
from typing import Any

import click

from sso import audit, context
from sso.audit import chain
from sso.audit.chain import ChainBroken
from sso.cli.commands import Failure, Group, json_option
from sso.cli.output import ProgressReport, iso, print_json, print_line, print_table, progress_bar
from sso.crypto.keys import ALGORITHMS, SAML
from sso.extensions import db
from sso.jobs import upkeep
from sso.jobs.upkeep import ReencryptionCount
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
@click.option(
    "--saml",
    is_flag=True,
    help="Rotate the key of SAML alone. Service providers that do not read the metadata by "
    "themselves need its certificate first.",
)
@json_option
def rotate(force: bool, lost_secret_key: bool, saml: bool, as_json: bool) -> None:
    """Make the next keys active, and publish new next keys."""
    activated = signing_keys.rotate(
        audit.operator(),
        context.settings().secret_keys,
        force or lost_secret_key,
        discard=lost_secret_key,
        algorithms=(SAML,) if saml else ALGORITHMS,
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


PAUSE = 0.02  # seconds between two batches, so that servers can write to SQLite


@group.command("reencrypt")
@click.option(
    "--over-faults",
    is_flag=True,
    help=f"Continue after audit events that were tampered with; run {COMMAND} audit verify first.",
)
@json_option
def reencrypt(over_faults: bool, as_json: bool) -> None:
    """Encrypt stored secrets with SSO_SECRET_KEY instead of SSO_SECRET_KEY_PREVIOUS.

    These are signing keys, secrets of authenticator apps and of webhooks, tokens for SCIM services,
    and the chain of the audit trail. The service keeps running. The command can be interrupted and
    run again; when it ends with 0 everywhere, nothing needs the previous key.
    """
    signing_keys.require_any_open(context.settings().secret_keys)
    report: dict[str, ReencryptionCount] = {"signing_keys": upkeep.reencrypt_signing_keys()}
    with progress_bar("Authenticator apps", as_json) as done:
        report["totp_secrets"] = upkeep.reencrypt_totp_secrets(done)
    report["webhook_secrets"] = upkeep.reencrypt_webhook_secrets()
    report["scim_tokens"] = upkeep.reencrypt_scim_tokens()
    with progress_bar("Audit events", as_json) as done:
        report["audit_events"] = _rekey_audit_events(over_faults, done)
    context.forget_keys()
    if as_json:
        print_json({name: {"changed": result.changed, "unreadable": list(result.unreadable)}
                    for name, result in report.items()})  # fmt: skip
    else:
        print_table(
            ("WHAT", "RE-ENCRYPTED", "OPENED BY NEITHER KEY"),
            [(name, result.changed, len(result.unreadable)) for name, result in report.items()],
        )
        for name, result in report.items():
            for row in result.unreadable:
                print_line(f"{name}: {row}")
    if count := sum(len(result.unreadable) for result in report.values()):
        raise Failure(
            f"{count} secrets are opened by neither SSO_SECRET_KEY nor SSO_SECRET_KEY_PREVIOUS: "
            "give the secret key that they were encrypted with; see docs/how-to/secret-key.md"
        )


def _rekey_audit_events(over_faults: bool, report: ProgressReport | None) -> ReencryptionCount:
    """Rekey the chain in batches. Raises for tampering before anything is changed."""
    try:
        is_due = chain.is_rekeying_due()
    except ChainBroken:
        if not over_faults:
            raise
        is_due = True
    if not is_due:
        db.session.rollback()
        return ReencryptionCount(0)
    if not over_faults and (faults := chain.verify().faults):
        raise Failure(
            f"the audit trail is not whole: {faults[0]}; all else is encrypted again. See: "
            f"{COMMAND} audit verify; then go on with --over-faults, which leaves the traces as "
            "they are"
        )
    rekeyed = 0
    while not (step := chain.rekey(over_faults)).is_last or step.rekeyed:
        rekeyed += step.rekeyed
        if report:
            report(step.rekeyed, rekeyed + step.remaining)
        time.sleep(PAUSE)
    return ReencryptionCount(rekeyed)
