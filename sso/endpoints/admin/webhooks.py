"""Pages of webhooks: list, show with deliveries, create, edit, test, and actions on them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flask import abort
from sqlalchemy import ColumnElement, Select
from werkzeug.wrappers import Response

from sso.audit import Actor, event_titles
from sso.audit.event_families import FAMILIES
from sso.audit.events import WEBHOOK_EVENTS
from sso.checkup.components import webhook_fault
from sso.endpoints.admin import access, admin_page, exports, several
from sso.endpoints.admin.actions import Action, Resource
from sso.endpoints.admin.admin_page import Refusal
from sso.endpoints.admin.forms import ConfirmForm, SelectionForm, WebhookForm
from sso.endpoints.admin.several import Several
from sso.extensions import db
from sso.i18n import N_
from sso.models import Webhook, WebhookDelivery
from sso.process import concurrency
from sso.process.http_call import PostError
from sso.services import webhooks
from sso.services.changes import Differences, ListEdit
from sso.store import webhooks as stored
from sso.web import routing

WEBHOOK = Resource[Webhook](
    section="webhooks",
    page="webhook",
    query=lambda webhook: {"id": str(webhook.id)},
    find=lambda: stored.find(admin_page.uuid()) or abort(404),
    name="webhook",
    title=lambda webhook: webhook.url,
    variables=lambda webhook: {"url": webhook.url},
    actions={
        "enable": Action(
            label=N_("Enable the webhook"),
            question=N_("%(url)s gets events again, from now on."),
            done=N_("The webhook was enabled."),
            run=lambda actor, webhook: webhooks.enable(actor, webhook.id),
            applies=lambda webhook: webhook.disabled_at is not None,
        ),
        "disable": Action(
            label=N_("Disable the webhook"),
            question=N_(
                "%(url)s gets no more events until you enable it again. Events until then are not "
                "sent later."
            ),
            done=N_("The webhook was disabled."),
            run=lambda actor, webhook: webhooks.disable(actor, webhook.id),
            applies=lambda webhook: webhook.disabled_at is None,
            ends=(N_("Its waiting deliveries"),),
            is_danger=True,
        ),
        "delete": Action(
            label=N_("Delete the webhook"),
            question=N_("%(url)s is deleted, with the list of its deliveries."),
            done=N_("The webhook was deleted."),
            run=lambda actor, webhook: webhooks.delete(actor, webhook.id),
            ends=(N_("Its waiting deliveries"),),
            is_danger=True,
            is_removal=True,
        ),
    },
    results={
        "edited": N_("The changes were saved."),
        "retry": N_("The delivery is tried again now."),
        several.DONE: several.SAVED,
    },
)
DELIVERY = Resource[WebhookDelivery](
    section="webhooks",
    page="webhook",
    query=lambda delivery: {"id": str(delivery.webhook_id)},
    find=lambda: stored.find_delivery(admin_page.uuid()) or abort(404),
    title=lambda delivery: event_titles.title_of(delivery.event),
    actions={
        "retry": Action(
            label=N_("Try it again"),
            question=N_("The delivery is tried again at once. The receiver may get it twice."),
            done=N_("The delivery is tried again now."),
            run=lambda actor, delivery: webhooks.retry(actor, delivery.id),
            applies=stored.outbox.can_be_hurried,
        )
    },
)


_WAITING, _DELIVERED, _FAILED = "waiting", "delivered", "failed"
STATES: dict[str, tuple[str, Callable[[], ColumnElement[bool]]]] = {
    _WAITING: (N_("waiting"), stored.is_waiting),
    _DELIVERED: (N_("delivered"), stored.is_delivered),
    _FAILED: (N_("given up"), stored.is_given_up),
}
_SEVERAL = Several(
    resource=DELIVERY,
    tasks=("retry",),
    find=lambda ids: db.session.scalars(
        stored.deliveries_of(admin_page.uuid(), WebhookDelivery.id.in_(several.uuids(ids)))
    ),
    line=lambda delivery: (
        str(delivery.id), event_titles.title_of(delivery.event),
        exports.moment(delivery.created_at),
    ),
    page="webhook",
)  # fmt: skip
ORDERS = admin_page.by_age(stored.NEWEST_DELIVERIES)
_EXPORTED = ("id", "event", "state", "attempts", "last_status", "last_fault", "created")


def _filters(webhook: Webhook) -> dict[str, str]:
    """Return the webhook and the filters in the URL."""
    return admin_page.chosen(
        id=str(webhook.id),
        state=admin_page.choice("state", STATES),
        sort=admin_page.choice("sort", ORDERS),
    )


def _statement(webhook: Webhook, filters: Mapping[str, str]) -> Select[WebhookDelivery]:
    state = filters.get("state")
    return stored.deliveries_of(webhook.id, *([STATES[state][1]()] if state else []))


def export() -> Response:
    """Export the deliveries of a webhook that the filter selects, as CSV, without what was sent."""
    webhook = WEBHOOK.find()
    filters = _filters(webhook)
    rows = exports.rows(ORDERS[filters.get("sort", "")][1], _statement(webhook, filters))
    return exports.send_table("deliveries", _EXPORTED, map(_line, rows))


def _line(delivery: WebhookDelivery) -> Sequence[object]:
    return (
        delivery.id, delivery.event, _progress(delivery)[0], delivery.attempts,
        delivery.last_status, delivery.last_fault, exports.moment(delivery.created_at),
    )  # fmt: skip


def state_of(webhook: Webhook) -> tuple[str, str, str | None]:
    """Return a label for the state of a webhook, the kind of state, and what is wrong."""
    if webhook.disabled_at:
        reason = webhook.disabled_reason
        return N_("disabled"), "bad", webhook_fault(reason) if reason else None
    if webhook.failing_since:
        return N_("failing"), "warning", None
    return N_("active"), "good", None


def _progress(delivery: WebhookDelivery) -> tuple[str, str]:
    if delivery.delivered_at:
        return N_("delivered"), "good"
    if delivery.next_attempt_at is None:
        return N_("given up"), "bad"
    if delivery.last_fault:
        return N_("retrying"), "warning"
    return N_("waiting"), ""


_STATES_OF_WEBHOOKS = {"active": N_("active"), "failing": N_("failing"), "disabled": N_("disabled")}
_WEBHOOK_ORDERS: dict[str, tuple[str, Callable[[Webhook], Any]]] = {
    "": (N_("Oldest first"), lambda webhook: (webhook.created_at, webhook.id)),
    "url": (N_("URL"), lambda webhook: (webhook.url, webhook.id)),
}
_SEVERAL_WEBHOOKS = Several(
    resource=WEBHOOK,
    tasks=("disable", "enable"),
    find=lambda ids: [
        webhook for webhook in stored.every() if webhook.id in set(several.uuids(ids))
    ],
    line=lambda webhook: (str(webhook.id), webhook.url, exports.moment(webhook.created_at)),
)
_WEBHOOK_COLUMNS = ("id", "url", "state", "events", "waiting", "created")


def _list_filters() -> dict[str, str]:
    """Return the filters of the list of webhooks in the URL."""
    return admin_page.chosen(
        q=admin_page.searched(),
        state=admin_page.choice("state", _STATES_OF_WEBHOOKS),
        sort=admin_page.choice("sort", _WEBHOOK_ORDERS),
    )


def _selected(filters: Mapping[str, str]) -> list[Webhook]:
    """Return the webhooks that the filters select; there are at most `webhooks.MOST`."""
    text, state = filters.get("q", "").casefold(), filters.get("state")
    selected = [
        webhook
        for webhook in stored.every()
        if text in webhook.url.casefold() and state in (None, state_of(webhook)[0])
    ]
    return sorted(selected, key=_WEBHOOK_ORDERS[filters.get("sort", "")][1])


def registered() -> Response:
    """List the webhooks; a POST acts on several of them."""
    form, filters = SelectionForm(), _list_filters()
    if response := _SEVERAL_WEBHOOKS.act(form, filters):
        return response
    rows, pages, total = admin_page.numbered(_selected(filters))
    waiting = stored.waiting_counts()
    return WEBHOOK.render(
        "admin/webhooks.html",
        webhooks=[(webhook, state_of(webhook), waiting.get(webhook.id, 0)) for webhook in rows],
        pages=pages,
        total=total,
        filters=filters,
        states=_STATES_OF_WEBHOOKS,
        orders=_WEBHOOK_ORDERS,
        form=form,
        tasks=_SEVERAL_WEBHOOKS.labels,
        export_url=admin_page.url("webhooks_export", **filters),
        is_full=len(stored.every()) >= webhooks.MOST,
    )


def export_list() -> Response:
    """Export the webhooks that the filters select, as CSV, without their secrets."""
    filters, waiting = _list_filters(), stored.waiting_counts()
    lines = (
        (webhook.id, webhook.url, state_of(webhook)[0], "\n".join(webhook.events),
         waiting.get(webhook.id, 0), exports.moment(webhook.created_at))
        for webhook in exports.whole(lambda: _selected(filters))
    )  # fmt: skip
    return exports.send_table("webhooks", _WEBHOOK_COLUMNS, lines)


def webhook() -> Response:
    """Show a webhook and its deliveries; a POST tries several of them again."""
    webhook, form = WEBHOOK.find(), SelectionForm()
    filters = _filters(webhook)
    if response := _SEVERAL.act(form, filters):
        return response
    order, statement = ORDERS[filters.get("sort", "")][1], _statement(webhook, filters)
    listed = order.page(statement, admin_page.cursor(order))
    return WEBHOOK.render(
        "admin/webhook.html",
        webhook=webhook,
        state=state_of(webhook),
        events=[(event_titles.title_of(name), name) for name in webhook.events],
        deliveries=[
            (delivery, event_titles.title_of(delivery.event), *_progress(delivery))
            for delivery in listed.rows
        ],
        may_retry=lambda delivery: (
            webhook.disabled_at is None and stored.outbox.can_be_hurried(delivery)
        ),
        pages=admin_page.neighbours(listed),
        total=admin_page.total(order, statement),
        filters=filters,
        orders=ORDERS,
        form=form,
        states={name: title for name, (title, _) in STATES.items()},
        tasks=_SEVERAL.labels,
        export_url=admin_page.url("webhook_export", **filters),
        buttons=WEBHOOK.buttons(webhook, "webhook_act"),
    )


@dataclass(frozen=True)
class Choice:
    """Events to choose from, below the title of their family: names and codes."""

    title: str
    events: list[tuple[str, str]]


def _choices() -> list[Choice]:
    choices = [
        Choice(
            family.title,
            sorted(
                (event_titles.title_of(event), str(event))
                for event in family.events
                if event in WEBHOOK_EVENTS
            ),
        )
        for family in FAMILIES.values()
    ]
    return [choice for choice in choices if choice.events]


def new() -> Response:
    """Create a webhook, and show its secret."""
    form = WebhookForm()
    with Refusal() as refusal:
        if form.validate_on_submit():
            values = form.read()
            webhook, secret = webhooks.create(access.staff().actor, values["url"], values["events"])
            return admin_page.render(
                "admin/webhook_secret.html", "webhooks", webhook=webhook, secret=secret
            )
    return admin_page.form_page(
        "admin/webhook_edit.html", "webhooks", form, refusal, webhook=None, choices=_choices()
    )


def edit() -> Response:
    """Edit a webhook. Shows first what another administrator changed meanwhile."""
    return WEBHOOK.edit(
        "admin/webhook_edit.html",
        form_of=lambda _: WebhookForm(),
        described=_described,
        save=_save,
        choices=_choices(),
    )


def _described(webhook: Webhook) -> dict[str, Any]:
    """Return the fields, without events that this version does not have."""
    fields = webhooks.described(webhook)
    return {**fields, "events": [name for name in fields["events"] if name in WEBHOOK_EVENTS]}


def _save(actor: Actor, webhook: Webhook, changes: Differences, expected: dict[str, Any]) -> None:
    values: dict[str, Any] = {name: change["after"] for name, change in changes.items()}
    if "events" in values:
        values["events"] = ListEdit(whole=tuple(values["events"]))
    webhooks.change(actor, webhook.id, expected=expected, **values)


def test() -> Response:
    """Send a test event, and show the status of the answer.

    The body of the answer is not shown: it could be any page in the network of the server.
    """
    webhook, form = WEBHOOK.find(), ConfirmForm()
    status, fault = None, None
    if form.validate_on_submit():
        routing.spend(access.staff().user.email)
        actor = access.staff().actor
        db.session.refresh(webhook)
        db.session.expunge(webhook)
        db.session.rollback()  # no transaction waits for the receiver
        with concurrency.slot_released():
            try:
                status = webhooks.ping(actor, webhook).status
            except PostError as error:
                fault = str(error)
        webhook = WEBHOOK.find()
    return WEBHOOK.render(
        "admin/webhook_test.html",
        webhook=webhook,
        form=form,
        answered=status,
        fault=fault,
        is_accepted=status is not None and 200 <= status < 300,
    )


def act() -> Response:
    """Ask, then enable, disable or delete a webhook."""
    return WEBHOOK.act()


def retry() -> Response:
    """Ask, then try a delivery again."""
    return DELIVERY.act("retry")
