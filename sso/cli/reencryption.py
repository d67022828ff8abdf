"""`flask key reencrypt`: another secret key for all that is encrypted."""

import time

import click

from sso import context
from sso.audit import chain
from sso.audit.chain import ChainBroken
from sso.cli.commands import Failure, json_option
from sso.cli.keys import group
from sso.cli.output import print_json, print_line, print_table
from sso.cli.progress import Report, progress_bar
from sso.extensions import db
from sso.jobs import upkeep
from sso.jobs.upkeep import ReencryptionCount
from sso.process.program import COMMAND
from sso.services import signing_keys

PAUSE = 0.02  # seconds between two batches, in which SQLite lets servers write


@group.command("reencrypt")
@click.option(
    "--over-faults",
    is_flag=True,
    help=f"Continue after audit events that were tampered with; run {COMMAND} audit verify first.",
)
@json_option
def reencrypt(over_faults: bool, as_json: bool) -> None:
    """Encrypt stored secrets with SSO_SECRET_KEY instead of SSO_SECRET_KEY_PREVIOUS.

    These are signing keys, secrets of authenticator apps and of webhooks, and the chain of the
    audit trail. The service keeps running. The command can be interrupted and run again; when it
    ends with 0 everywhere, nothing needs the previous key.
    """
    signing_keys.require_any_open(context.settings().secret_keys)
    report: dict[str, ReencryptionCount] = {"signing_keys": upkeep.reencrypt_signing_keys()}
    with progress_bar("Authenticator apps", as_json) as done:
        report["totp_secrets"] = upkeep.reencrypt_totp_secrets(done)
    report["webhook_secrets"] = upkeep.reencrypt_webhook_secrets()
    with progress_bar("Audit events", as_json) as done:
        report["audit_events"] = _reseal_audit_events(over_faults, done)
    context.forget_keys()
    if as_json:
        print_json({name: {"changed": one.changed, "unreadable": list(one.unreadable)}
                    for name, one in report.items()})  # fmt: skip
    else:
        print_table(
            ("WHAT", "RE-ENCRYPTED", "OPENED BY NEITHER KEY"),
            [(name, one.changed, len(one.unreadable)) for name, one in report.items()],
        )
        for name, one in report.items():
            for row in one.unreadable:
                print_line(f"{name}: {row}")
    if count := sum(len(one.unreadable) for one in report.values()):
        raise Failure(
            f"{count} secrets are opened by neither SSO_SECRET_KEY nor SSO_SECRET_KEY_PREVIOUS: "
            "give the secret key that they were encrypted with; see docs/how-to/secret-key.md"
        )


def _reseal_audit_events(over_faults: bool, report: Report | None) -> ReencryptionCount:
    """Rekey in batches; tampering is reported before anything is changed."""
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
    sealed = 0
    while not (step := chain.rekey(over_faults)).is_last or step.sealed:
        sealed += step.sealed
        if report:
            report(step.sealed, sealed + step.left)
        time.sleep(PAUSE)
    return ReencryptionCount(sealed)
