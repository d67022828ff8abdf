"""Pages of people at an application (SCIM): state and deliveries, test, token, try again."""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from flask import abort
from flask_babel import lazy_gettext
from sqlalchemy import ColumnElement, false
from werkzeug.wrappers import Response
from wtforms import PasswordField
from wtforms.validators import Length

from sso.endpoints.admin import access, admin_page
from sso.endpoints.admin.actions import Action, Resource
from sso.endpoints.admin.admin_page import Refusal
from sso.endpoints.admin.forms import ConfirmForm
from sso.endpoints.forms import TOO_LONG
from sso.extensions import db
from sso.flow.permissions import Permission
from sso.i18n import N_
from sso.models import Client, ScimDelivery, ScimReceiver, ScimResource
from sso.process import concurrency
from sso.services import agent_identity, provisioning
from sso.store import provisioning as stored
from sso.store import scim_deliveries
from sso.web import routing
from sso.web.forms import PageForm

_SENT: Mapping[str, str] = {
    "created": N_("created"),
    "adopted": N_("adopted"),
    "changed": N_("changed"),
    "deactivated": N_("deactivated"),
    "deleted": N_("deleted"),
}
_STATES: dict[str, tuple[str, Callable[[], ColumnElement[bool]]]] = {
    "there": (N_("active there"), stored.is_there),
    "waiting": (N_("waiting"), stored.is_waiting),
    "failed": (N_("given up"), stored.is_given_up),
}
_RESULTS: dict[str, tuple[str, Callable[[], ColumnElement[bool]]]] = {
    "done": (N_("delivered"), scim_deliveries.is_done),
    "failed": (N_("failed"), scim_deliveries.has_failed),
}
RECEIVER = Resource[Client](
    section="applications",
    page="provisioning",
    query=lambda client: {"id": client.client_id},
    find=lambda: _found()[0],
    name="client",
    variables=lambda client: {"name": agent_identity.label_of(client)},
    results={
        "token": N_("The token was saved."),
        "retry": N_("The person is sent again now."),
    },
)
PERSON = Resource[ScimResource](
    section="applications",
    page="provisioning",
    query=lambda resource: {"id": resource.client_id},
    find=lambda: _resource(admin_page.uuid()),
    title=lambda resource: resource.name,
    variables=lambda resource: {"name": resource.name},
    actions={
        "retry": Action(
            label=N_("Try it again"),
            question=N_("%(name)s is sent to the application again, even if nothing has changed."),
            done=N_("The person is sent again now."),
            run=lambda actor, resource: provisioning.retry(actor, resource.id),
        )
    },
)


def _resource(resource_id: UUID) -> ScimResource:
    resource = stored.find_resource(resource_id)
    is_visible = resource and may_see_people() and access.staff().manages(resource.client_id)
    return resource if resource and is_visible else abort(404)


def may_see_people() -> bool:
    """Return whether the visitor may see who is sent to applications."""
    return access.staff().may(Permission.READ_PEOPLE)


def _found() -> tuple[Client, ScimReceiver]:
    client = admin_page.application()
    return client, stored.find(client.client_id) or abort(404)


def summary(client: Client) -> dict[str, Any] | None:
    """Return the state of an application's SCIM service; `None` if it has none."""
    receiver = stored.find(client.client_id) if client.scim_url else None
    if receiver is None:
        return None
    active, waiting, given_up = stored.counts(client.client_id)
    state = N_("active"), "good"
    if client.disabled_at:
        state = N_("disabled"), "bad"
    elif receiver.failing_since:
        state = N_("failing"), "warning"
    return {
        "receiver": receiver,
        "state": state,
        "active": active,
        "waiting": waiting,
        "given_up": given_up,
    }


def people() -> Response:
    """Show the state of an application's SCIM service, and who was sent there."""
    client, _ = _found()
    filters = admin_page.chosen(id=client.client_id, state=admin_page.choice("state", _STATES))
    state = filters.get("state")
    conditions = [_STATES[state][1]()] if state else []
    statement, order = stored.of_receiver(client.client_id, *conditions), stored.NEWEST
    listed = order.page(statement, admin_page.cursor(order))
    return RECEIVER.render(
        "admin/provisioning.html",
        client=client,
        summary=summary(client),
        may_see_people=may_see_people(),
        people=[(row, *_progress(row)) for row in listed.rows],
        pages=admin_page.neighbours(listed),
        total=admin_page.total(order, statement),
        filters=filters,
        states={name: title for name, (title, _) in _STATES.items()},
    )


def _progress(row: ScimResource) -> tuple[str, str]:
    """Return a label for what became of the last delivery, and the kind of it."""
    if row.next_attempt_at is not None:
        return (N_("retrying"), "warning") if row.last_fault else (N_("waiting"), "")
    if row.last_fault:
        return N_("given up"), "bad"
    return _SENT.get(row.last_action or "", N_("unchanged")), "good"


def deliveries() -> Response:
    """Show what was sent to an application's SCIM service in the last days, newest first."""
    client, _ = _found()
    filters = admin_page.chosen(
        id=client.client_id,
        q=admin_page.searched(),
        state=admin_page.choice("state", _RESULTS),
    )
    state, order = filters.get("state"), scim_deliveries.NEWEST
    conditions = [_RESULTS[state][1]()] if state else []
    statement = scim_deliveries.of_receiver(client.client_id, filters.get("q", ""), *conditions)
    if not may_see_people():
        statement = statement.where(false())
    listed = order.page(statement, admin_page.cursor(order))
    resources = scim_deliveries.resources_of(listed.rows)
    return RECEIVER.render(
        "admin/provisioning_deliveries.html",
        client=client,
        may_see_people=may_see_people(),
        deliveries=[
            (row, *_result(row), resources.get((row.kind, row.subject_id))) for row in listed.rows
        ],
        pages=admin_page.neighbours(listed),
        total=admin_page.total(order, statement),
        filters=filters,
        states={name: title for name, (title, _) in _RESULTS.items()},
    )


def _result(row: ScimDelivery) -> tuple[str, str]:
    """Return a label for the result of a delivery, and the kind of it."""
    return (_SENT.get(row.action, row.action), "good") if row.action else (N_("failed"), "bad")


def test() -> Response:
    """Ask an application's SCIM service for one person, and show whether it answers.

    The answer is not shown: it could be any page in the network of the server.
    """
    client, form = _found()[0], ConfirmForm()
    fault, is_tested = None, False
    with Refusal() as refusal:
        if form.validate_on_submit():
            routing.spend(access.staff().user.email)
            actor = access.staff().actor
            db.session.refresh(client)
            db.session.expunge(client)
            with concurrency.slot_released():
                fault = provisioning.ping(actor, client)
            is_tested, client = True, RECEIVER.find()
    return RECEIVER.render(
        "admin/provisioning_test.html",
        client=client,
        form=form,
        fault=fault,
        is_tested=is_tested,
        errors=refusal.errors,
    )


class ScimTokenForm(PageForm):
    """The bearer token for a SCIM service."""

    token = PasswordField(
        lazy_gettext("Token"), [Length(max=provisioning.MAX_TOKEN, message=TOO_LONG)]
    )


def token() -> Response:
    """Set the bearer token that an application's SCIM service requires."""
    client, form = _found()[0], ScimTokenForm()
    with Refusal() as refusal:
        if form.validate_on_submit():
            text = (form.token.data or "").strip()
            provisioning.set_token(access.staff().actor, client.client_id, text or None)
            return RECEIVER.done("token", client)
    if refusal.is_refused:
        client = RECEIVER.find()
    return admin_page.form_page(
        "admin/provisioning_token.html", "applications", form, refusal, client=client
    )


def retry() -> Response:
    """Ask, then send a person again."""
    return PERSON.act("retry")
