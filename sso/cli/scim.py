"""`flask scim`: applications where people are provisioned by SCIM."""

import sys
import time
from typing import Any
from uuid import UUID

import click

from sso import audit
from sso.cli.clients import find_client
from sso.cli.commands import Failure, Group, json_option
from sso.cli.output import (
    iso,
    print_json,
    print_line,
    print_record,
    print_table,
    progress_bar,
)
from sso.extensions import db
from sso.jobs import scim_delivery, scim_drift
from sso.jobs.scim_drift import Drift
from sso.models import Client, ScimDelivery, ScimReceiver, ScimResource
from sso.process.program import COMMAND
from sso.provisioning.receiver import CallError
from sso.services import provisioning
from sso.store import provisioning as stored
from sso.store import scim_deliveries

group = Group("scim", help="Applications where people are provisioned by SCIM.")
client_argument = click.argument("client_id", metavar="ID")
_PAUSE = 0.5  # seconds, while a worker sends


@group.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the applications with a SCIM URL, and how many people are there."""
    rows = [_view(receiver) for receiver in stored.every()]
    if as_json:
        print_json(rows)
    else:
        print_table(
            ("ID", "URL", "STATE", "ACTIVE", "WAITING", "GIVEN UP"),
            [
                (row["client_id"], row["url"], _state(row), row["active"], row["waiting"],
                 row["given_up"])
                for row in rows
            ],
        )  # fmt: skip


@group.command("show")
@client_argument
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True)
@json_option
def show(client_id: str, limit: int, as_json: bool) -> None:
    """Show the state of an application's SCIM service, and who was sent there last."""
    client, receiver = _find(client_id)
    rows = stored.newest(client.client_id, limit)
    if as_json:
        print_json({**_view(receiver), "people": [_person(row) for row in rows]})
        return
    print_record(_view(receiver).items())
    if rows:
        print_line()
        print_table(
            ("ID", "KIND", "NAME", "THERE", "LAST", "AT", "ATTEMPTS", "NEXT", "ERROR"),
            [
                (row.id, row.kind, row.name, row.is_active, row.last_action, row.attempted_at,
                 row.attempts, row.next_attempt_at, row.last_fault)
                for row in rows
            ],
            whole_last=True,
        )  # fmt: skip


@group.command("deliveries")
@client_argument
@click.option("--person", "text", default="", help="Only of this person or group: name or ID.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True)
@json_option
def deliveries(client_id: str, text: str, limit: int, as_json: bool) -> None:
    """List what was sent to an application's SCIM service, newest first.

    What was sent is kept for seven days.
    """
    client, _ = _find(client_id)
    rows = scim_deliveries.newest(client.client_id, text, limit)
    if as_json:
        print_json([_delivery(row) for row in rows])
        return
    print_table(
        ("LAST", "KIND", "NAME", "DONE", "ANSWER", "ATTEMPTS", "FIRST", "ERROR"),
        [
            (row.attempted_at, row.kind, row.name, row.action, row.status, row.attempts,
             row.started_at, row.fault)
            for row in rows
        ],
        whole_last=True,
    )  # fmt: skip


@group.command("token")
@client_argument
@click.option("--remove", is_flag=True, help="Send no token.")
@json_option
def token(client_id: str, remove: bool, as_json: bool) -> None:
    """Set the bearer token that an application's SCIM service requires.

    It is asked for, or read from standard input. It is stored encrypted, and never shown.
    """
    client, _ = _find(client_id)
    value = None
    if not remove:
        if sys.stdin.isatty():
            value = click.prompt("Token", hide_input=True, err=True)
        else:
            value = sys.stdin.readline(provisioning.MAX_TOKEN + 2)
        value = value.strip()
    provisioning.set_token(audit.operator(), client.client_id, value)
    db.session.commit()
    if as_json:
        print_json({"client_id": client.client_id, "has_token": value is not None})
    else:
        print_line("The token is removed." if remove else "The token is stored, encrypted.")


@group.command("test")
@client_argument
@json_option
def test(client_id: str, as_json: bool) -> None:
    """Ask an application's SCIM service for one person; exit code 1 if that fails."""
    client, _ = _find(client_id)
    began = time.monotonic()
    fault = provisioning.ping(audit.operator(), client)
    db.session.commit()
    if fault:
        raise Failure(f"{client.scim_url}: {fault}")
    seconds = round(time.monotonic() - began, 3)
    if as_json:
        print_json({"client_id": client.client_id, "seconds": seconds})
    else:
        print_line(f"{client.scim_url} answered as a SCIM service after {seconds} s")


@group.command("retry")
@click.argument("resource_id", metavar="PERSON", type=click.UUID)
@json_option
def retry(resource_id: UUID, as_json: bool) -> None:
    """Send a person again now who was given up or waits.

    PERSON is the ID in the list of `show`.
    """
    try:
        resource = provisioning.retry(audit.operator(), resource_id)
    except LookupError:
        raise Failure(f"nobody has the ID {resource_id}") from None
    db.session.commit()
    if as_json:
        print_json(_person(resource))
    else:
        print_line(f"{resource.name} is sent again now.")


@group.command("plan")
@client_argument
@json_option
def plan(client_id: str, as_json: bool) -> None:
    """Compare an application's accounts and groups with those here; change nothing.

    Exit code 1 if there are differences that `sync` would repair.
    """
    client, receiver = _find(client_id)
    drifts = _compare(client, receiver)
    if as_json:
        print_json([_drift(drift) for drift in drifts])
    else:
        _print_drifts(drifts)
    if any(drift.is_repairable for drift in drifts):
        click.get_current_context().exit(1)


@group.command("sync")
@client_argument
@json_option
def sync(client_id: str, as_json: bool) -> None:
    """Repair what `plan` shows, and send all that waits.

    It can be interrupted: the worker goes on. Accounts that nobody here has are left alone.
    """
    client, receiver = _find(client_id)
    if client.disabled_at is not None:
        raise Failure("the application is disabled; nothing is sent until it is enabled again")
    drifts = [drift for drift in _compare(client, receiver) if drift.is_repairable]
    if not as_json:
        _print_drifts(drifts)
    scim_drift.repair(audit.operator(), client.client_id, drifts)
    db.session.commit()
    _send_all(client, as_json)
    _, _, given_up = stored.counts(client.client_id)
    if as_json:
        print_json({"repaired": [_drift(drift) for drift in drifts], "given_up": given_up})
    else:
        print_line(f"{len(drifts)} differences are repaired.")


def _send_all(client: Client, as_json: bool) -> None:
    """Send until nothing is due. Raises `Failure` if people remain whom the receiver refuses."""
    scim_delivery.note_changes()
    total = stored.counts(client.client_id)[1]
    with progress_bar("People", as_json) as report:
        while (is_failing := _is_failing(client)) is not None:
            before = stored.counts(client.client_id)[1]
            scim_delivery.deliver_due(client_id=client.client_id, is_failing=is_failing)
            left = stored.counts(client.client_id)[1]
            db.session.rollback()
            if report and before > left:
                report(before - left, max(total, before))
            if left == before:
                time.sleep(_PAUSE)  # a worker sends
    waiting = stored.counts(client.client_id)[1]
    receiver = stored.find(client.client_id)
    fault = receiver.last_fault if receiver and receiver.failing_since else None
    db.session.rollback()
    if waiting:
        reason = f": {fault}" if fault else ""
        raise Failure(
            f"{waiting} people are not sent yet{reason}; the worker tries again. See: "
            f"{COMMAND} scim show {client.client_id}"
        )


def _is_failing(client: Client) -> bool | None:
    """Return whether the receiver failed the last time; `None` if nothing is due now."""
    receiver = stored.find(client.client_id)
    is_due = bool(stored.due(client.client_id, 1))
    db.session.rollback()
    if receiver is None or not is_due or stored.is_pausing(receiver):
        return None
    return receiver.failing_since is not None


def _compare(client: Client, receiver: ScimReceiver) -> list[Drift]:
    try:
        return scim_drift.compare(client, receiver)
    except CallError as error:
        raise Failure(f"{client.scim_url}: {error}") from None


def _find(client_id: str) -> tuple[Client, ScimReceiver]:
    client = find_client(client_id)
    receiver = stored.find(client.client_id)
    if receiver is None:
        raise Failure(
            f"{client.name} has no SCIM URL: {COMMAND} client update {client.client_id} "
            "--scim-url URL"
        )
    return client, receiver


def _view(receiver: ScimReceiver) -> dict[str, Any]:
    active, waiting, given_up = stored.counts(receiver.client_id)
    client = db.session.get_one(Client, receiver.client_id)
    return {
        "client_id": receiver.client_id,
        "url": client.scim_url,
        "has_token": receiver.sealed_token is not None,
        "active": active,
        "waiting": waiting,
        "given_up": given_up,
        "failing_since": iso(receiver.failing_since),
        "last_error": receiver.last_fault,
        "last_success_at": iso(receiver.succeeded_at),
        "next_attempt_at": iso(receiver.retry_at),
        "disabled": client.disabled_at is not None,
    }


def _state(row: dict[str, Any]) -> str:
    if row["disabled"]:
        return "disabled"
    return f"failing since {row['failing_since'][:16]}" if row["failing_since"] else "ok"


def _person(row: ScimResource) -> dict[str, Any]:
    return {
        "id": str(row.id),
        "kind": row.kind,
        "subject": str(row.subject_id),
        "name": row.name,
        "remote_id": row.remote_id,
        "active": row.is_active,
        "last_action": row.last_action,
        "last_attempt_at": iso(row.attempted_at),
        "attempts": row.attempts,
        "next_attempt_at": iso(row.next_attempt_at),
        "error": row.last_fault,
    }


def _delivery(row: ScimDelivery) -> dict[str, Any]:
    return {
        "kind": row.kind,
        "subject": str(row.subject_id),
        "name": row.name,
        "done": row.action,
        "status": row.status,
        "error": row.fault,
        "attempts": row.attempts,
        "first_attempt_at": iso(row.started_at),
        "last_attempt_at": iso(row.attempted_at),
    }


def _drift(drift: Drift) -> dict[str, Any]:
    subject = str(drift.subject_id) if drift.subject_id else None
    return {
        "kind": drift.subject,
        drift.subject: subject,
        "name": drift.name,
        "what": drift.kind,
        "fields": list(drift.fields),
        "members": list(drift.members),
    }


def _print_drifts(drifts: list[Drift]) -> None:
    if not drifts:
        print_line("There is no difference.")
        return
    print_table(
        ("NAME", "KIND", "THERE", "DIFFERENT", "MEMBERS"),
        [(d.name, d.subject, d.kind, ", ".join(d.fields), ", ".join(d.members)) for d in drifts],
    )
