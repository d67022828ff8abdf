"""`flask doctor`; an entry point, so that it runs even if the settings are invalid."""

import os
from collections.abc import Callable, Iterator, Mapping

import click

from sso import audit, create_app
from sso.cli.commands import Failure, json_option
from sso.cli.output import print_json, print_line
from sso.config.reading import read_settings
from sso.doctor import code_flow, dependencies, machine, public_url
from sso.doctor.finding import Finding, Findings, Status, guarded, ok, skipped, wrong
from sso.errors import SettingsError
from sso.extensions import db

_WIDTH = 20


@click.command("doctor")
@json_option
def doctor_command(as_json: bool) -> None:
    """Check this installation through its public URL, and say what to fix.

    Run it with the settings of the server, while the server runs. The temporary user and client
    of its sign-in are deleted at the end.
    """
    findings = []
    for finding in examine(os.environ):
        findings.append(finding)
        if not as_json:
            _print(finding)
    errors = sum(finding.status is Status.WRONG for finding in findings)
    if as_json:
        print_json({"ok": not errors, "findings": [_as_json(finding) for finding in findings]})
    if errors:
        raise Failure(f"{errors} of {len(findings)} checks failed")


def examine(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Every finding, in the order in which to fix them."""
    try:
        app = create_app(environ)
    except SettingsError as error:
        for line in error.errors:
            name, _, text = line.partition(": ")
            yield wrong("settings", name, text)
        return
    yield ok("settings", "valid")
    reading = read_settings(environ)
    checks: tuple[tuple[str, Callable[[], Findings]], ...] = (
        ("file modes", lambda: machine.file_modes(environ, reading)),
        ("database", machine.database),
        ("schema", machine.schema),
        ("keys", machine.signing_key_life),
        ("secret key", machine.secret_key),
        ("worker", machine.worker),
        ("redis", dependencies.rate_limits),
        ("mail", dependencies.mail),
        ("tls", public_url.tls),
        ("discovery", public_url.metadata),
    )
    with app.app_context(), audit.acting_as(audit.operator()):
        healthy = True
        try:
            for name, check in checks:
                for finding in guarded(name, check):
                    healthy &= finding.status is not Status.WRONG or name in _NOT_NEEDED
                    yield finding
            if healthy:
                yield from guarded(code_flow.NAME, code_flow.code_flow)
            else:
                yield skipped(code_flow.NAME, "fix the above first")
        finally:
            db.session.remove()
            db.engine.dispose()


# People can sign in even if one of these is wrong.
_NOT_NEEDED = ("file modes", "redis", "mail", "worker", "secret key")


def _as_json(finding: Finding) -> dict[str, object]:
    shown = {"name": finding.name, "status": finding.status, "seen": finding.seen}
    return {**shown, "mend": finding.hint}


def _print(finding: Finding) -> None:
    print_line(f"{finding.status:8} {finding.name:{_WIDTH}} {finding.seen}")
    if finding.hint:
        print_line(f"{'':8} {'':{_WIDTH}} fix: {finding.hint}")
