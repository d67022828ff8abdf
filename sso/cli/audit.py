"""`flask audit`: list security events, and verify that the record is complete."""

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches

import click

from sso import audit, clock, context
from sso.audit import chain, rows
from sso.audit.events import Event
from sso.cli.clients import one_client
from sso.cli.commands import Failure, Group, json_option
from sso.cli.output import harmless, print_json, print_line, print_table
from sso.cli.people import one_user
from sso.extensions import db
from sso.models import AuditEvent
from sso.process.program import COMMAND
from sso.services import agent_identity, signing_keys
from sso.store import users

group = Group("audit", help="Security events.")
_AGO = re.compile(r"(\d{1,6})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class Moment(click.ParamType[datetime]):
    """A time in ISO 8601 (UTC unless it says otherwise), or how long ago: 30m, 12h, 7d."""

    name = "time"

    def convert(
        self, value: str | datetime, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            if ago := _AGO.fullmatch(value):
                return clock.now() - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
            moment = datetime.fromisoformat(value)
        except (ValueError, OverflowError):
            self.fail("give 2026-11-21, 2026-11-21T08:00 or 12h", param, ctx)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


@group.command("list")
@click.option("--user", "identifier", metavar="WHO", help="Only events of this user.")
@click.option("--client", "client_id", metavar="ID", help="Only events of this application.")
@click.option("--event", "names", multiple=True, metavar="NAME", help="May be repeated.")
@click.option(
    "--since", type=Moment(), help="Only newer events: 2026-11-21T08:00 (UTC), or 12h, or 7d."
)
@click.option("--until", type=Moment(), help="Only older events.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True)
@json_option
def list_(
    identifier: str | None,
    client_id: str | None,
    names: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
    limit: int,
    as_json: bool,
) -> None:
    """List security events, newest first."""
    _require_known(names)
    user = one_user(identifier) if identifier else None
    client = one_client(client_id) if client_id else None
    # Events outlive users and clients; those of deleted ones are found by id.
    events = rows.newest(
        user_id=str(user.id) if user else identifier,
        client_id=client.client_id if client else client_id,
        names=names,
        since=since,
        until=until,
        limit=limit,
    )
    if not events and identifier and user is None:
        click.echo(
            f"There is no user {harmless(identifier)}; a user who was deleted is found by the id.",
            err=True,
        )
    if as_json:
        print_json([rows.as_record(event) for event in events])
    else:
        _table(events)


@group.command("verify")
@click.option("--head", metavar="NUMBER:MAC", help="A head that an earlier run printed.")
@json_option
def verify(head: str | None, as_json: bool) -> None:
    """Check that no event was changed, removed or moved.

    Store the head that it prints outside this database, and pass it next time: then a chain
    that was truncated or rebuilt is detected, too.
    """
    earlier_head = _head(head) if head else None
    problem = None
    try:
        while chain.append_to_chain():
            pass
        chain.is_rekeying_due()
    except chain.ChainBroken as error:
        db.session.rollback()
        signing_keys.require_any_open(context.settings().secret_keys)
        problem = str(error)
    result = chain.verify(earlier_head)
    faults = result.faults or ([problem] if problem else [])
    mark = f"{result.head_number}:{result.head_seal}"
    if faults:
        audit.event(Event.AUDIT_VERIFICATION_FAILED, faults=len(faults), first=faults[0])
    if as_json:
        print_json({"events": result.events, "first": result.first, "head": mark, "faults": faults})
    else:
        for fault in faults:
            print_line(fault)
        print_line(f"{result.events} events, from number {result.first} on")
        print_line(f"head {mark}")
    if faults:
        count = len(faults)
        raise Failure(f"the audit trail is not whole: {count} fault{'s' if count > 1 else ''}")


def _require_known(names: Sequence[str]) -> None:
    """Raise `Failure` for a name that no version of this program has used."""
    unknown_names = sorted(name for name in set(names) - set(Event))
    recorded = rows.names() if unknown_names else ()
    for name in unknown_names:
        if name not in recorded:
            suggestion = " or ".join(
                get_close_matches(name, sorted({*Event, *recorded}), cutoff=0.5)
            )
            raise Failure(
                f"there is no event {name}; "
                + (
                    f"is it {suggestion}?"
                    if suggestion
                    else f"see the column EVENT of: {COMMAND} audit list"
                )
            )


def _head(text: str) -> tuple[int, str]:
    number, _, mac = text.partition(":")
    if not (number.isascii() and number.isdigit() and len(number) < 19):
        raise click.UsageError("--head is NUMBER:MAC, as an earlier run printed it.")
    return int(number), mac


def _table(events: Sequence[AuditEvent]) -> None:
    emails = users.emails({event.user_id for event in events if event.user_id})
    names = agent_identity.labels({event.client_id for event in events if event.client_id})
    print_table(
        ("TIME", "EVENT", "USER", "CLIENT", "ADDRESS", "MORE"),
        [
            (
                event.at,
                event.name,
                emails.get(event.user_id or "", event.user_id),
                names.get(event.client_id or "", event.client_id),
                event.address,
                " ".join(_field(*field) for field in json.loads(event.fields).items()),
            )
            for event in events
        ],
        whole_last=True,
    )


def _field(name: str, value: object) -> str:
    """Return NAME=VALUE, with quotes around values that have spaces."""
    if not isinstance(value, str):
        return f"{name}={json.dumps(value, ensure_ascii=False)}"
    is_plain = re.fullmatch(r'[^\s"=]+', value)
    return f"{name}={value if is_plain else json.dumps(value, ensure_ascii=False)}"
