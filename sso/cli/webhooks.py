"""`flask webhook`: URLs that are notified of events."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import click

from sso import audit
from sso.audit.events import WEBHOOK_EVENTS
from sso.cli.clients import ListOption, with_options
from sso.cli.commands import Failure, Group, by_id, confirm, json_option, unknown, yes_option
from sso.cli.output import (
    iso,
    print_changes,
    print_json,
    print_line,
    print_once,
    print_record,
    print_table,
)
from sso.extensions import db
from sso.models import Webhook, WebhookDelivery
from sso.process.http_call import PostError
from sso.services import webhooks
from sso.store import webhooks as stored

group = Group("webhook", help="URLs that are notified of events.")
webhook_argument = click.argument("webhook_id", metavar="ID")
_EVENTS = ListOption("events", "event", "events", "EVENT", may_be_empty=False)
_SHOWN_ANSWER = 2000  # bytes


def _require_events(names: Sequence[str]) -> Sequence[str]:
    """Return the events. Raises `UsageError` for unknown ones."""
    if unknown_names := sorted(set(names) - set(WEBHOOK_EVENTS)):
        names_in_quotes = ", ".join(map(repr, unknown_names))
        raise click.UsageError(
            f"unknown events: {names_in_quotes}; known: {', '.join(WEBHOOK_EVENTS)}"
        )
    return names


@group.command("create")
@click.option("--url", required=True, help="An https URL; http only on this machine.")
@click.option(
    "--event",
    "events",
    multiple=True,
    required=True,
    callback=lambda _, __, names: _require_events(names),
    metavar="EVENT",
    help=f"May be repeated. One of: {', '.join(WEBHOOK_EVENTS)}.",
)
@json_option
def create(url: str, events: Sequence[str], as_json: bool) -> None:
    """Register a webhook; its secret is shown once."""
    webhook, secret = webhooks.create(audit.operator(), url, events)
    db.session.commit()
    print_once(
        {**_view(webhook), "secret": secret},
        ("id", "url", "events", "secret"),
        "The secret is shown this once; the receiver verifies signatures with it.",
        as_json,
    )


@group.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List all webhooks."""
    rows, waiting = stored.every(), stored.waiting_counts()
    if as_json:
        print_json([{**_view(webhook), "waiting": waiting.get(webhook.id, 0)} for webhook in rows])
    else:
        print_table(
            ("ID", "URL", "STATE", "WAITING", "EVENTS"),
            [(w.id, w.url, _state(w), waiting.get(w.id, 0), ", ".join(w.events)) for w in rows],
        )


@group.command("update")
@webhook_argument
@click.option("--url", help="An https URL; http only on this machine.")
@with_options(_EVENTS)
@json_option
def update(webhook_id: str, url: str | None, as_json: bool, **options: Any) -> None:
    """Change a webhook, and print what changed."""
    events = _EVENTS.edit(options)
    if url is None and events is None:
        raise click.UsageError("There is nothing to change: give an option.")
    if events is not None:  # events that no longer exist may be removed
        _require_events((*events.added, *(events.whole or ())))
    webhook = _find(webhook_id)
    with _not_deleted(webhook_id):
        webhook, outcome = webhooks.change(audit.operator(), webhook.id, url=url, events=events)
    db.session.commit()
    if as_json:
        print_json({**_view(webhook), "changes": outcome.changes})
    else:
        print_record(_view(webhook).items())
    print_changes(outcome.changes, outcome.notes, as_json)


@group.command("test")
@webhook_argument
@json_option
def test(webhook_id: str, as_json: bool) -> None:
    """Send a test event to a webhook, and print the answer.

    It is also sent if the webhook is disabled. Exit code 1 unless the status is 2xx.
    """
    webhook = _find(webhook_id)
    db.session.rollback()  # the receiver may take its time
    began = time.monotonic()
    try:
        answer = webhooks.ping(audit.operator(), webhook, _SHOWN_ANSWER)
    except PostError as error:
        db.session.commit()
        raise Failure(f"{webhook.url}: {error}") from None
    db.session.commit()
    seconds = round(time.monotonic() - began, 3)
    body = answer.body.decode(errors="replace")
    if as_json:
        print_json({"status": answer.status, "seconds": seconds, "body": body})
    else:
        print_line(f"{webhook.url} answered {answer.status} after {seconds} s")
        for line in body.splitlines():
            print_line(f"  {line}")
    if not 200 <= answer.status < 300:
        raise Failure(f"the receiver did not take it: {answer.status} is not 2xx")


@group.command("deliveries")
@webhook_argument
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True)
@json_option
def deliveries(webhook_id: str, limit: int, as_json: bool) -> None:
    """List the newest deliveries of a webhook."""
    rows = stored.newest_deliveries(_find(webhook_id).id, limit)
    if as_json:
        print_json([_delivery(delivery) for delivery in rows])
    else:
        print_table(
            ("ID", "EVENT", "AT", "STATE", "ATTEMPTS", "LAST ATTEMPT", "STATUS", "NEXT", "ERROR"),
            [
                (
                    *(d.id, d.event, d.created_at, _progress(d), d.attempts, d.attempted_at),
                    *(d.last_status, d.next_attempt_at, d.last_fault),
                )
                for d in rows
            ],
            whole_last=True,
        )


@group.command("retry")
@click.argument("delivery_id", metavar="DELIVERY", type=click.UUID)
@json_option
def retry(delivery_id: UUID, as_json: bool) -> None:
    """Try a delivery again now that was given up or waits.

    DELIVERY is its ID, as `deliveries` shows it.
    """
    try:
        delivery = webhooks.retry(audit.operator(), delivery_id)
    except LookupError:
        raise Failure(f"there is no delivery {delivery_id}") from None
    db.session.commit()
    if as_json:
        print_json(_delivery(delivery))
    else:
        print_line(f"{delivery.event} ({delivery.id}) is tried again now.")


@group.command("disable")
@webhook_argument
@json_option
def disable(webhook_id: str, as_json: bool) -> None:
    """Stop sending to a webhook; waiting deliveries are dropped."""
    webhook = _find(webhook_id, exactly=True)
    with _not_deleted(webhook_id):
        webhook = webhooks.disable(audit.operator(), webhook.id)
    _done(webhook, as_json)


@group.command("enable")
@webhook_argument
@json_option
def enable(webhook_id: str, as_json: bool) -> None:
    """Send to a webhook again, from now on."""
    webhook = _find(webhook_id)
    with _not_deleted(webhook_id):
        webhook = webhooks.enable(audit.operator(), webhook.id)
    _done(webhook, as_json)


@group.command("delete")
@webhook_argument
@yes_option
@json_option
def delete(webhook_id: str, yes: bool, as_json: bool) -> None:
    """Delete a webhook and its deliveries."""
    webhook = _find(webhook_id, exactly=True)
    confirm(f"Delete the webhook {webhook.url} ({webhook.id})?", yes)
    with _not_deleted(webhook_id):
        webhooks.delete(audit.operator(), webhook.id)
    db.session.commit()
    if as_json:
        print_json({"id": str(webhook.id), "deleted": True})
    else:
        print_line(f"Deleted {webhook.url} ({webhook.id}).")


def _find(webhook_id: str, *, exactly: bool = False) -> Webhook:
    match = stored.matching(webhook_id)
    return by_id("webhook", match, webhook_id, lambda webhook: webhook.url, exactly=exactly)


@contextmanager
def _not_deleted(webhook_id: str) -> Iterator[None]:
    """Turn the `LookupError` for a webhook that was just deleted into a `Failure`."""
    try:
        yield
    except LookupError:
        raise unknown("webhook", webhook_id) from None


def _done(webhook: Webhook, as_json: bool) -> None:
    db.session.commit()
    if as_json:
        print_json(_view(webhook))
    else:
        print_record(_view(webhook).items())


def _view(webhook: Webhook) -> dict[str, Any]:
    """Return the fields of a webhook to show, without its secret."""
    return {
        "id": str(webhook.id),
        "url": webhook.url,
        "events": webhook.events,
        "disabled": webhook.disabled_at is not None,
        "disabled_reason": webhook.disabled_reason,
        "failing_since": iso(webhook.failing_since),
        "created_at": iso(webhook.created_at),
    }


def _state(webhook: Webhook) -> str:
    if webhook.disabled_at:
        return f"disabled: {webhook.disabled_reason}" if webhook.disabled_reason else "disabled"
    since = webhook.failing_since
    return f"failing since {since:%Y-%m-%d %H:%M}" if since else "ok"


def _progress(delivery: WebhookDelivery) -> str:
    if delivery.delivered_at:
        return "delivered"
    return "waiting" if delivery.next_attempt_at else "given up"


def _delivery(delivery: WebhookDelivery) -> dict[str, Any]:
    return {
        "id": str(delivery.id),
        "event": delivery.event,
        "at": iso(delivery.created_at),
        "state": _progress(delivery),
        "attempts": delivery.attempts,
        "last_attempt_at": iso(delivery.attempted_at),
        "status": delivery.last_status,
        "error": delivery.last_fault,
        "next_attempt_at": iso(delivery.next_attempt_at),
        "delivered_at": iso(delivery.delivered_at),
    }
