"""`flask migrate rehearse`: what this server would answer to the requests in a log of another one.

It runs before the evening of the move, as often as you like: it writes nothing and calls nobody.
"""

from typing import Any, BinaryIO

import click
from flask import Flask
from flask.cli import ScriptInfo

from sso import context, create_app, database
from sso.cli.commands import Failure, json_option, quiet_terminal
from sso.cli.migrate import group
from sso.cli.output import print_json, print_line
from sso.extensions import db
from sso.imports import access_logs
from sso.oauth.rehearsal import Key, Occurrences, Rehearsal

_MOST_SHOWN = 20  # differences of an application, without --json


class Log:
    """The lines of a log, counted as they are read."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.lines = self.unreadable = self.too_long = 0

    def rehearse(self, result: Rehearsal) -> None:
        for line in access_logs.lines(self.file):
            self.lines += 1
            if line.is_too_long:
                self.too_long += 1
            elif line.request is None:
                self.unreadable += 1
            else:
                result.add(line.request, line.number)


@group.command("rehearse")
@click.argument("access_log", type=click.File("rb"), metavar="ACCESS_LOG")
@json_option
def rehearse(access_log: BinaryIO, as_json: bool) -> None:
    """Say which requests in the access log of another server this one would answer otherwise.

    ACCESS_LOG is in the common or combined format, or JSON lines of Caddy, Traefik, nginx or
    Keycloak; - is standard input. SSO_ISSUER_ALIASES has to name the issuers of that server.
    """
    if not context.settings().issuer_aliases:
        raise Failure("SSO_ISSUER_ALIASES is not set: name the issuers of the server in the log")
    log = Log(access_log)
    app = _web_application()
    with quiet_terminal(), app.test_request_context(context.settings().base_path or "/"):
        result = Rehearsal(database.session_connection())
        log.rehearse(result)
        db.session.rollback()
    if as_json:
        print_json(_as_json(log, result))
    else:
        _print(log, result)
    if result.different:
        text = f"{result.different:,} of {result.requests:,} requests would be answered otherwise"
        raise Failure(text)


def _web_application() -> Flask:
    """Return the application with all addresses, which the one for commands does not load."""
    app: Flask = click.get_current_context().ensure_object(ScriptInfo).load_app()
    return app if app.blueprints else create_app()


def _as_json(log: Log, result: Rehearsal) -> dict[str, Any]:
    return {
        "lines": log.lines,
        "unreadable_lines": log.unreadable,
        "too_long_lines": log.too_long,
        "requests": result.requests,
        "different": result.different,
        "different_not_listed": result.beyond,
        "refused_before": result.refused_before,
        "not_judged": result.not_judged,
        "applications": [
            {
                "client_id": client_id,
                "name": application.name,
                "requests": application.requests,
                "different": application.different,
                "differences": [_difference(*pair) for pair in result.of(client_id)],
            }
            for client_id, application in result.in_order()
        ],
        "addresses": [_difference(*pair) for pair in result.of(None)],
    }


def _difference(key: Key, occurrences: Occurrences) -> dict[str, Any]:
    return {
        "redirect_uri" if key.client_id is not None else "address": key.address,
        "code": key.reason.code,
        "reason": key.reason.description,
        "requests": occurrences.requests,
        "first_line": occurrences.first_line,
    }


def _print(log: Log, result: Rehearsal) -> None:
    for client_id, application in result.in_order():
        title = f"{application.name} ({client_id})" if application.name else client_id
        print_line(
            f"{title or '(no client_id)'}: {application.requests:,} requests, "
            f"{application.different:,} would be answered otherwise"
        )
        _print_differences(result, client_id)
    if result.of(None):
        print_line("No application is named by requests to these addresses:")
        _print_differences(result, None)
    print_line(
        f"{log.lines:,} lines, {result.requests:,} requests of applications: "
        f"{result.different:,} would be answered otherwise, {result.refused_before:,} were refused "
        f"before, {result.not_judged:,} cannot be judged by a log"
    )
    if log.unreadable or log.too_long:
        print_line(
            f"Not read: {log.unreadable:,} lines without a request, {log.too_long:,} that are too "
            "long"
        )
    if result.beyond:
        print_line(f"Not listed: {result.beyond:,} different requests beyond the limit of groups")


def _print_differences(result: Rehearsal, client_id: str | None) -> None:
    differences = result.of(client_id)
    for key, occurrences in differences[:_MOST_SHOWN]:
        address = f"{key.address}: " if key.address else ""
        print_line(
            f"  {occurrences.requests:>6,}  {address}{key.reason.description} "
            f"(first in line {occurrences.first_line:,})"
        )
    if len(differences) > _MOST_SHOWN:
        print_line(f"          and {len(differences) - _MOST_SHOWN:,} more; --json lists them")
