"""Views that list, show, register, change, disable and delete APIs."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from flask import abort, request
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso.audit import Actor, rows
from sso.audit.events import Event
from sso.config.api_fields import FIELDS
from sso.config.fields import Kind
from sso.endpoints.admin import access, admin_page, audit_trail, exports
from sso.endpoints.admin.actions import Action, Resource
from sso.endpoints.admin.admin_page import Refusal
from sso.endpoints.admin.forms import ApiForm, ConfirmForm, api_fields_of, api_seen_of
from sso.flow import resources
from sso.i18n import N_
from sso.i18n.languages import LANGUAGES
from sso.models import Api, AuditEvent
from sso.services import apis
from sso.services.changes import Differences
from sso.store import apis as stored_apis

_SEARCHED_EVENTS, _SHOWN_EVENTS = 200, 10
_CHANGES = [
    Event.API_CREATED, Event.API_CHANGED, Event.API_SECRET_ROTATED, Event.API_DISABLED,
    Event.API_ENABLED,
]  # fmt: skip


def _api() -> Api:
    """Return the API that the URL names; 404 if there is none."""
    api_id = request.args.get("id", "")
    is_clean = api_id.isascii() and api_id.isprintable()
    return (stored_apis.with_id(api_id) if is_clean else None) or abort(404)


def _without_secret(actor: Actor, api: Api) -> None:
    apis.change(actor, api.api_id, {"introspection": False})


_ENDS = (
    N_("New access tokens for this API, also by refresh tokens"),
    N_("Its access tokens, as soon as it asks this server about them"),
)
API = Resource(
    section="apis",
    page="api",
    query=lambda api: {"id": api.api_id},
    find=_api,
    name="api",
    variables=lambda api: {"name": api.name},
    actions={
        "forget": Action(
            label=N_("Remove the secret"),
            question=N_("%(name)s can no longer ask whether a token is valid."),
            done=N_("The secret was removed."),
            run=_without_secret,
            applies=lambda api: api.introspection,
            is_danger=True,
        ),
        "disable": Action(
            label=N_("Disable the API"),
            question=N_("Nobody gets access tokens for %(name)s until you enable it again."),
            done=N_("The API was disabled."),
            run=lambda actor, api: apis.disable(actor, api.api_id),
            applies=lambda api: not api.disabled,
            ends=_ENDS,
            is_danger=True,
        ),
        "enable": Action(
            label=N_("Enable the API"),
            question=N_("Applications can get access tokens for %(name)s again."),
            done=N_("The API was enabled."),
            run=lambda actor, api: apis.enable(actor, api.api_id),
            applies=lambda api: api.disabled,
        ),
        "delete": Action(
            label=N_("Delete the API"),
            question=N_("%(name)s is deleted with its scopes. This cannot be undone."),
            done=N_("The API was deleted."),
            run=lambda actor, api: apis.delete(actor, api.api_id),
            ends=(*_ENDS, N_("What applications are registered for at it"), N_("Its secret")),
            is_danger=True,
            is_removal=True,
        ),
    },
    results={"edited": N_("The API was changed.")},
)


def registered() -> Response:
    """List the APIs by name: all, or those whose name, identifier or scopes contain a text."""
    text = admin_page.searched()
    rows, pages, total = admin_page.numbered(stored_apis.having(text))
    return API.render(
        "admin/apis.html",
        apis=rows,
        pages=pages,
        total=total,
        text=text,
        export_url=admin_page.url("apis_export", **({"q": text} if text else {})),
    )


EXPORTED = ("id", "identifier", "name", "state", "scopes", "groups", "created")


def export() -> Response:
    """Export the APIs that the search selects, as CSV."""
    text = admin_page.searched()
    rows = exports.whole(lambda: stored_apis.having(text))
    return exports.send_table("APIs", EXPORTED, map(line, rows))


def line(api: Api) -> Sequence[object]:
    """Return the cells of an API in a CSV file, as `EXPORTED` names them."""
    state = "disabled" if api.disabled else "enabled"
    scopes, groups = "\n".join(api.scopes), "\n".join(api.groups)
    created = exports.moment(api.created_at)
    return api.api_id, api.identifier, api.name, state, scopes, groups, created


def api() -> Response:
    """Shows an API with its scopes, its clients and recent changes."""
    api = _api()
    return API.render(
        "admin/api.html",
        api=api,
        facts=_facts(api),
        scopes=[(name, text, _translations(api, name)) for name, text in api.scopes.items()],
        clients=[
            (client, client.apis[api.identifier])
            for client in stored_apis.clients_of(api.identifier)
        ],
        events=audit_trail.views(_changes(api)),
        buttons=API.buttons(api, "api_act"),
    )


def _facts(api: Api) -> Iterator[tuple[str, str]]:
    """Yield the title and text of each field that the page shows as a fact."""
    for field in FIELDS.values():
        if fact := field.fact:
            title = fact.title or (field.form.label if field.form else "")
            value: Any = getattr(api, field.name)
            if field.kind is Kind.SWITCH:
                yield title, gettext(fact.on if value else fact.off)
            elif value:
                yield title, ", ".join(value) if isinstance(value, list) else str(value)
            elif fact.empty:
                yield title, gettext(fact.empty)


def _translations(api: Api, scope: str) -> list[tuple[str, str]]:
    """Return the languages in which a scope is described, with the descriptions."""
    return [
        (code, resources.description(api, scope, code))
        for code in LANGUAGES
        if scope in api.translations.get(code, {})
    ]


def _changes(api: Api) -> list[AuditEvent]:
    """Return the newest events about this API, among the newest about all."""
    events = rows.newest(names=_CHANGES, limit=_SEARCHED_EVENTS)
    about = [event for event in events if json.loads(event.fields).get("api") == api.identifier]
    return about[:_SHOWN_EVENTS]


def act() -> Response:
    """Asks for confirmation of an action, and does it."""
    return API.act()


def new() -> Response:
    """Register an API."""
    form = ApiForm()
    with Refusal() as refusal:
        if form.validate_on_submit():
            api, secret = apis.register(access.staff().actor, api_fields_of(form.read()))
            return _registered(api, secret, is_new=True)
    return admin_page.form_page("admin/api_edit.html", "apis", form, refusal, api=None)


def edit() -> Response:
    """Changes an API. Shows first what another administrator changed meanwhile."""
    return API.edit(
        "admin/api_edit.html",
        form_of=ApiForm,
        described=lambda api: api_seen_of(apis.described(api)),
        save=_save,
    )


def _save(actor: Actor, api: Api, changes: Differences, seen: dict[str, Any]) -> None:
    values = api_fields_of({name: change["after"] for name, change in changes.items()})
    apis.change(actor, api.api_id, values, seen=api_fields_of(seen))


def rotate() -> Response:
    """Give an API a new secret for introspection, and show it."""
    api, form = _api(), ConfirmForm()
    with Refusal() as refusal:
        if form.validate_on_submit():
            api, secret = apis.rotate_secret(access.staff().actor, api.api_id)
            return _registered(api, secret, is_new=False)
    if refusal.is_refused:
        api = _api()
    return admin_page.render(
        "admin/ask.html",
        "apis",
        form=form,
        title=gettext("New secret"),
        question=gettext(
            "%(name)s gets a new secret. It is shown once, on the next page.", name=api.name
        ),
        button=gettext("Make a new secret"),
        back=API.url(api),
        ends=(N_("Its secret until now"),) if api.introspection else (),
        is_danger=api.introspection,
        errors=refusal.errors,
        warnings=(),
    )


def _registered(api: Api, secret: str, *, is_new: bool) -> Response:
    """Commit, and return the one page that shows a new secret."""
    return admin_page.render("admin/api_secret.html", "apis", api=api, secret=secret, is_new=is_new)
