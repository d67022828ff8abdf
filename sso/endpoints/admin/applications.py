"""Applications: found, shown, disabled, deleted, given a new secret or a logo."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from flask import abort, request
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso import context
from sso.audit import Actor
from sso.config import images
from sso.endpoints import page
from sso.endpoints.admin import access, pages, troubleshooting
from sso.endpoints.admin.application_forms import AUTH_TITLES, LogoForm, RotationForm
from sso.endpoints.admin.forms import ConfirmForm
from sso.extensions import db
from sso.i18n import N_
from sso.models import Client
from sso.services import checks, clients
from sso.store import clients as stored_clients
from sso.store import grants

_MOST_FOUND = 100
_SHOWN_REFUSALS = 5


@dataclass(frozen=True)
class Action:
    """What a button on an application's page does: asked about first, then one service call."""

    label: str
    question: str
    done: str
    run: Callable[[Actor, str], Any]
    applies: Callable[[Client], bool] = lambda _: True
    ends: tuple[str, ...] = ()
    is_danger: bool = False


_ENDS = (
    N_("All access and refresh tokens of this application, for everyone"),
    N_("Sign-ins through it that are under way"),
)
ACTIONS = {
    "disable": Action(
        N_("Disable the application"),
        N_("Nobody can sign in to %(name)s until you enable it again."),
        N_("The application was disabled."),
        clients.disable,
        lambda client: client.disabled_at is None,
        _ENDS,
        is_danger=True,
    ),
    "enable": Action(
        N_("Enable the application"),
        N_("People can sign in to %(name)s again. What was ended stays ended."),
        N_("The application was enabled."),
        clients.enable,
        lambda client: client.disabled_at is not None,
    ),
    "delete": Action(
        N_("Delete the application"),
        N_("%(name)s is deleted with its registration. This cannot be undone."),
        N_("The application was deleted."),
        clients.delete,
        ends=(*_ENDS, N_("What people have allowed it"), N_("Its client ID and secret")),
        is_danger=True,
    ),
}
_DONE = {name: action.done for name, action in ACTIONS.items()} | {
    "changed": N_("The application was changed."),
    "logo": N_("The logo was changed."),
}


def applications() -> Response:
    """All clients, the newest first; or those whose name, ID or URL has a text."""
    text = pages.searched()
    if text:
        found, neighbours = stored_clients.having(text), {}
    else:
        part = stored_clients.page_of(pages.cursor(stored_clients.NEWEST_FIRST))
        found, neighbours = list(part.rows), pages.neighbours(part)
    return pages.render(
        "admin/applications.html",
        "applications",
        done=_DONE,
        clients=found[:_MOST_FOUND],
        is_cut=len(found) > _MOST_FOUND,
        text=text,
        pages=neighbours,
    )


def application() -> Response:
    """One client."""
    client = pages.application()
    count, _ = grants.live_at(client.client_id, limit=1)
    return pages.render(
        "admin/application.html",
        "applications",
        done=_DONE,
        client=client,
        logo=page.logo_url(stored_clients.logo_digest(client.client_id)),
        auth_title=AUTH_TITLES[client.token_endpoint_auth_method],
        live_grants=f"{count}+" if count == grants.MOST_COUNTED else count,
        refusals=troubleshooting.newest(client.client_id, _SHOWN_REFUSALS),
        actions=[(name, one) for name, one in ACTIONS.items() if one.applies(client)],
    )


def act() -> Response:
    """Asks before one of the actions, and does it."""
    client, name = pages.application(), request.args.get("do", "")
    action = ACTIONS.get(name)
    if action is None or not action.applies(client):
        abort(404)
    form = ConfirmForm()
    if form.validate_on_submit():
        try:
            action.run(access.staff().actor, client.client_id)
        except LookupError:  # deleted at this moment
            abort(404)
        if name == "delete":
            return pages.done("applications", name)
        return pages.done("application", name, id=client.client_id)
    return pages.ask(
        "applications",
        form,
        title=gettext(action.label),
        question=gettext(action.question, name=client.name),
        button=gettext(action.label),
        back=pages.url("application", id=client.client_id),
        ends=action.ends,
        is_danger=action.is_danger,
    )


def rotate() -> Response:
    """Give a client a new secret, which the answer shows."""
    client, form, errors = pages.application(), RotationForm(), []
    if form.validate_on_submit():
        keep_old = timedelta(hours=int(form.hours.data))
        actor = access.staff().actor
        try:
            client, secret = clients.rotate_secret(actor, client.client_id, keep_old)
            return pages.render(
                "admin/application_secret.html",
                "applications",
                client=client,
                secret=secret,
                issuer=context.settings().issuer,
            )
        except LookupError:
            abort(404)
        except checks.RegistrationError as error:
            errors = error.errors
            db.session.rollback()
            client = pages.application()
    return pages.render(
        "admin/application_rotate.html", "applications", client=client, form=form, errors=errors
    )


def logo() -> Response:
    """Replace or remove the logo of a client."""
    client, form, errors = pages.application(), LogoForm(), []
    if form.validate_on_submit():
        try:
            image = images.NO_IMAGE
            if data := form.image:
                image = images.parse(data, checks.MAX_LOGO)
            clients.change(access.staff().actor, client.client_id, {}, logo=image)
        except LookupError:
            abort(404)
        except checks.RegistrationError as error:  # the rules have changed since it was registered
            errors = error.errors
        except ValueError as error:
            errors = [error.args[0]]
        else:
            return pages.done("application", "logo", id=client.client_id)
    return pages.render(
        "admin/application_logo.html",
        "applications",
        client=client,
        form=form,
        errors=errors,
        logo=page.logo_url(stored_clients.logo_digest(client.client_id)),
    )
