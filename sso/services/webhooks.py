"""Webhooks: create, change, test, disable, enable, delete; and one delivery: try it again.

`audit.webhook_queue` queues the deliveries, `jobs.webhook_delivery` sends them.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit
from uuid import UUID, uuid4

from sso import audit, clock, context
from sso.audit import Actor
from sso.audit.events import WEBHOOK_EVENTS, Event
from sso.config.urls import call_error, is_loopback, strict_url_error
from sso.crypto import secrets
from sso.crypto.secrets import InvalidToken
from sso.extensions import db
from sso.i18n.message import Message
from sso.models import Webhook, WebhookDelivery
from sso.process.http_call import Answer, PostError, post
from sso.services import changes as differences
from sso.services.changes import ListEdit, Outcome
from sso.services.checks import Invalid
from sso.store import webhooks

MOST = 50  # each one adds a row to every sign-in


class Receiver(NamedTuple):
    """The webhook's URL and secret, or the error if it cannot be used."""

    url: str
    secret: str
    error: str | None
    is_disabled: bool = False

    @classmethod
    def of(cls, webhook: Webhook, *, even_if_disabled: bool = False) -> Self:
        """Decrypt the secret of a webhook."""
        secret, error = "", None
        is_disabled = webhook.disabled_at is not None and not even_if_disabled
        if is_disabled:
            error = "the webhook is disabled"
        else:
            try:
                secret_keys = context.settings().secret_keys
                secret = secrets.decrypt_webhook_secret(secret_keys, webhook.sealed_secret)
            except InvalidToken:
                error = "SSO_SECRET_KEY does not decrypt the webhook's secret"
        return cls(webhook.url, secret, error, is_disabled)

    def post(self, message_id: UUID, body: str, read_bytes: int = 0) -> Answer:
        """Send a signed event, and return the answer. Raises `PostError`."""
        if self.error:
            raise PostError(self.error)
        headers = secrets.webhook_headers(self.secret, str(message_id), clock.now(), body)
        return post(self.url, body.encode(), headers, read=read_bytes)


def described(webhook: Webhook) -> dict[str, Any]:
    """Return a webhook's fields, as the audit trail compares them."""
    return {"url": webhook.url, "events": webhook.events}


@audit.acting
def create(actor: Actor, url: str, events: Sequence[str]) -> tuple[Webhook, str]:
    """Create a webhook; return it and its secret, which is shown once.

    Raises `Invalid` and, as all of these, `NotAllowed` if the helpdesk asks.
    """
    errors = _errors(actor, url, events)
    if len(webhooks.every()) >= MOST:
        errors.append(Message("there are %(most)d webhooks already; delete one first", most=MOST))
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
    actor: Actor,
    webhook_id: UUID,
    *,
    url: str | None = None,
    events: ListEdit | None = None,
    expected: Mapping[str, Any] | None = None,
) -> tuple[Webhook, Outcome]:
    """Change the URL or the events of a webhook. `expected`: fields of `described` as seen before.

    Raises `LookupError`, `Invalid` and `Changed`.
    """
    webhook = _locked(webhook_id)
    before = described(webhook)
    differences.require_unchanged(expected, before)
    subscribed = events.applied_to(webhook.events) if events else webhook.events
    if errors := _errors(actor, url or webhook.url, subscribed, webhook):
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
def ping(actor: Actor, webhook: Webhook, read_bytes: int = 0) -> Answer:
    """Send a test event, also to a disabled webhook, and return the beginning of the answer.

    It takes as long as the receiver does, up to 8 seconds: end the transaction before. Raises
    `PostError`; the event is recorded even then.
    """
    receiver = Receiver.of(webhook, even_if_disabled=True)
    at = clock.now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
    body = json.dumps({"type": "ping", "timestamp": at, "data": {"webhook": str(webhook.id)}})
    details = {"webhook": webhook.id, "url": webhook.url}
    try:
        answer = receiver.post(uuid4(), body, read_bytes)
    except PostError as error:
        audit.event(Event.WEBHOOK_TESTED, fault=str(error), **details)
        raise
    audit.event(Event.WEBHOOK_TESTED, status=answer.status, **details)
    return answer


@audit.acting
def retry(actor: Actor, delivery_id: UUID) -> WebhookDelivery:
    """Make a delivery due now that was given up or waits for long.

    Raises `LookupError`; `Invalid` if the webhook is disabled, or if it is being sent.
    """
    delivery = webhooks.find_delivery(delivery_id)
    if delivery is None:
        raise LookupError(delivery_id)
    webhook = _locked(delivery.webhook_id)
    if webhook.disabled_at is not None:
        raise Invalid([Message("The webhook is disabled. Enable it first.")])
    delivery = webhooks.lock_delivery(delivery_id)
    if delivery is None:
        raise LookupError(delivery_id)
    if not webhooks.outbox.can_be_hurried(delivery):
        raise Invalid([Message("It was delivered, or is about to be tried.")])
    delivery.next_attempt_at = clock.now()
    webhook.retry_at = webhook.retry_at and delivery.next_attempt_at
    db.session.flush()
    audit.event(
        Event.WEBHOOK_RETRIED, webhook=webhook.id, delivery=delivery.id, what=delivery.event
    )
    return delivery


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


def _errors(
    actor: Actor, url: str, events: Sequence[str], webhook: Webhook | None = None
) -> list[Message]:
    """Return why the webhook cannot have these; what it already has may stay."""
    errors = []
    if (webhook is None or url != webhook.url) and (error := _url_error(actor, url)):
        errors.append(
            Message("the URL %(url)s is refused: %(reason)s", url=repr(url[:200]), reason=error)
        )
    every = ", ".join(WEBHOOK_EVENTS)
    unknown = sorted(set(events) - set(WEBHOOK_EVENTS) - set(webhook.events if webhook else ()))
    if unknown:
        names = ", ".join(unknown)[:200]
        errors.append(
            Message("unknown events: %(unknown)s; known: %(known)s", unknown=names, known=every)
        )
    elif not events:
        errors.append(Message("there is no event; known: %(known)s", known=every))
    return errors


def _url_error(actor: Actor, url: str) -> Message | None:
    if error := strict_url_error(url):
        return error
    parts = urlsplit(url)
    if "#" in url:
        return Message("it has a fragment")
    if parts.scheme == "https":
        return call_error(url)
    if not (parts.scheme == "http" and is_loopback(parts.hostname)):
        return Message("it is not https (http is for this machine alone)")
    if is_for_commands(actor, url):
        return Message("it is not https (http is for commands on this machine)")
    return call_error(url)


def is_for_commands(actor: Actor, url: str) -> bool:
    """Return whether only commands on this machine may set a URL that is called.

    Programs on the server's machine may trust every client that reaches them.
    """
    if urlsplit(url).scheme == "https":
        return False
    is_own_machine = is_loopback(urlsplit(context.settings().base_url).hostname)
    is_command = actor.user_id is None and actor.token is None and actor.service is None
    return not is_command and not is_own_machine
