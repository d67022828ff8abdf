"""Webhooks: create, change, disable, enable, delete. `audit.webhook_queue` queues deliveries."""

from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from sso import audit, context
from sso.audit import Actor
from sso.audit.events import WEBHOOK_EVENTS, Event
from sso.config.urls import call_error, is_loopback, strict_url_error
from sso.crypto import secrets
from sso.extensions import db
from sso.models import Webhook
from sso.services import changes as differences
from sso.services.changes import ListEdit, Outcome
from sso.services.checks import Invalid
from sso.store import webhooks

MOST = 50  # each one adds a row to every sign-in


def described(webhook: Webhook) -> dict[str, Any]:
    """Return a webhook's fields, as the audit trail compares them."""
    return {"url": webhook.url, "events": webhook.events}


@audit.acting
def create(actor: Actor, url: str, events: Sequence[str]) -> tuple[Webhook, str]:
    """Create a webhook; return it and its secret, which is shown once. Raises `Invalid`."""
    errors = _errors(url, events)
    if len(webhooks.every()) >= MOST:
        errors.append(f"there are {MOST} webhooks already; delete one first")
    if errors:
        raise Invalid(errors)
    secret = secrets.make_webhook_secret()
    encrypted = secrets.encrypt_webhook_secret(context.settings().secret_keys, secret)
    webhook = Webhook(url=url, events=_tidy(events), sealed_secret=encrypted)
    webhooks.add(webhook)
    names = " ".join(webhook.events)
    audit.event(Event.WEBHOOK_CREATED, webhook=webhook.id, url=webhook.url, events=names)
    return webhook, secret


@audit.acting
def change(
    actor: Actor, webhook_id: UUID, *, url: str | None = None, events: ListEdit | None = None
) -> tuple[Webhook, Outcome]:
    """Change the URL or the events of a webhook. Raises `LookupError` and `Invalid`."""
    webhook = _locked(webhook_id)
    before = described(webhook)
    subscribed = events.applied_to(webhook.events) if events else webhook.events
    if errors := _errors(url or webhook.url, subscribed, webhook):
        raise Invalid(errors)
    webhook.url, webhook.events = url or webhook.url, _tidy(subscribed)
    if webhook.url != before["url"]:
        _reset_failures(webhook)
    changes = differences.between(before, described(webhook))
    if changes:
        fields = " ".join(changes)
        audit.event(Event.WEBHOOK_CHANGED, webhook=webhook.id, what=fields, changes=changes)
    db.session.flush()
    notes = events.without_effect(before["events"]) if events else []
    return webhook, Outcome(changes, [f"events: {note}" for note in notes])


@audit.acting
def disable(actor: Actor, webhook_id: UUID, reason: str | None = None) -> Webhook:
    """Disable a webhook; waiting deliveries are dropped. Raises `LookupError`."""
    webhook = _locked(webhook_id)
    webhooks.set_disabled(webhook, True, reason)
    db.session.flush()
    audit.event(Event.WEBHOOK_DISABLED, webhook=webhook.id, url=webhook.url, reason=reason)
    return webhook


@audit.acting
def enable(actor: Actor, webhook_id: UUID) -> Webhook:
    """Enable a webhook for events from now on. Raises `LookupError`."""
    webhook = _locked(webhook_id)
    webhooks.set_disabled(webhook, False)
    _reset_failures(webhook)
    db.session.flush()
    audit.event(Event.WEBHOOK_ENABLED, webhook=webhook.id, url=webhook.url)
    return webhook


@audit.acting
def delete(actor: Actor, webhook_id: UUID) -> None:
    """Delete a webhook with its deliveries. Raises `LookupError`."""
    webhook = _locked(webhook_id)
    webhooks.remove(webhook.id)
    audit.event(Event.WEBHOOK_DELETED, webhook=webhook.id, url=webhook.url)


def _locked(webhook_id: UUID) -> Webhook:
    webhook = webhooks.lock(webhook_id)
    if webhook is None:
        raise LookupError(webhook_id)
    return webhook


def _reset_failures(webhook: Webhook) -> None:
    """Reset the count of failures."""
    webhook.failing_since = webhook.retry_at = None
    webhook.failures = 0


def _tidy(events: Iterable[str]) -> list[str]:
    names = set(events)
    return [str(event) for event in WEBHOOK_EVENTS if event in names]


def _errors(url: str, events: Sequence[str], webhook: Webhook | None = None) -> list[str]:
    """Return why the webhook cannot have these; what it already has may stay."""
    errors = []
    if (webhook is None or url != webhook.url) and (error := _url_error(url)):
        errors.append(f"the URL {url[:200]!r} is refused: {error}")
    unknown = sorted(set(events) - set(WEBHOOK_EVENTS) - set(webhook.events if webhook else ()))
    if unknown or not events:
        problem = f"unknown events: {', '.join(unknown)}" if unknown else "there is no event"
        errors.append(f"{problem}; known: {', '.join(WEBHOOK_EVENTS)}")
    return errors


def _url_error(url: str) -> str | None:
    if error := strict_url_error(url):
        return error
    parts = urlsplit(url)
    if "#" in url:
        return "it has a fragment"
    if parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname)):
        return call_error(url)
    return "it is not https (http is for this machine alone)"
