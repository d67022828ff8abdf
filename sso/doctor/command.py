"""`flask doctor`; an entry point, so that it runs when faults keep the server from starting."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict

import click

from sso import audit, create_app
from sso.cli.commands import Failure, json_option
from sso.cli.output import print_json, print_line
from sso.config.settings import read_settings
from sso.doctor import code_flow, machine, neighbours, public_address
from sso.doctor.finding import Finding, Findings, Status, guarded, ok, skipped, wrong
from sso.errors import SettingsError
from sso.extensions import db

_WIDTH = 20


@click.command("doctor")
@json_option
def doctor_command(as_json: bool) -> None:
    """Examine this installation through its public address; a line each, with the fix.

    Run it with the settings of the server, while the server runs. The throw-away user and client
    of its code flow are deleted in the end.
    """
    findings = []
    for finding in examine(os.environ):
        findings.append(finding)
        if not as_json:
            _print(finding)
    faults = sum(finding.status is Status.WRONG for finding in findings)
    if as_json:
        print_json({"ok": not faults, "findings": [asdict(finding) for finding in findings]})
    if faults:
        raise Failure(f"{faults} of {len(findings)} checks failed")


def examine(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Every finding, in the order in which one would mend them."""
    try:
        app = create_app(environ)
    except SettingsError as error:
        for fault in error.errors:
            name, _, words = fault.partition(": ")
            yield wrong("settings", name, words)
        return
    yield ok("settings", "no faults")
    reading = read_settings(environ)
    checks: tuple[tuple[str, Callable[[], Findings]], ...] = (
        ("file modes", lambda: machine.file_modes(environ, reading)),
        ("database", machine.database),
        ("schema", machine.schema),
        ("keys", machine.signing_key_life),
        ("secret key", machine.secret_key),
        ("worker", machine.worker),
        ("redis", neighbours.rate_limits),
        ("mail", neighbours.mail),
        ("tls", public_address.tls),
        ("discovery", public_address.metadata),
    )
    with app.app_context(), audit.acting_as(audit.operator()):
        healthy = True
        try:
            for name, check in checks:
                for finding in guarded(name, check):
                    healthy &= finding.status is not Status.WRONG or name in _NEIGHBOURS
                    yield finding
            if healthy:
                yield from guarded(code_flow.NAME, code_flow.code_flow)
            else:
                yield skipped(code_flow.NAME, "fix the above first")
        finally:
            db.session.remove()
            db.engine.dispose()


# What may be wrong while people can sign in all the same.
_NEIGHBOURS = ("file modes", "redis", "mail", "worker", "secret key")


def _print(finding: Finding) -> None:
    print_line(f"{finding.status:8} {finding.name:{_WIDTH}} {finding.seen}")
    if finding.mend:
        print_line(f"{'':8} {'':{_WIDTH}} fix: {finding.mend}")
