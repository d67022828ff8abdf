"""People: found, shown, invited, changed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flask import abort, request
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso.audit import Actor
from sso.endpoints.admin import access, pages
from sso.endpoints.admin.forms import ConfirmForm
from sso.i18n import N_
from sso.models import User
from sso.services import accounts
from sso.store import users


@dataclass(frozen=True)
class Action:
    """What a button on a person's page does: asked about first, then one service call."""

    label: str
    question: str
    done: str
    run: Callable[[Actor, User], Any]
    applies: Callable[[User], bool] = lambda _: True
    is_for_helpdesk: bool = False


ACTIONS = {
    "disable": Action(
        N_("Disable the account"),
        N_("%(name)s will be signed out everywhere, and cannot sign in until you enable it again."),
        N_("The account was disabled."),
        accounts.disable,
        lambda user: user.disabled_at is None,
    ),
    "enable": Action(
        N_("Enable the account"),
        N_("%(name)s will be able to sign in again. What was ended stays ended."),
        N_("The account was enabled."),
        accounts.enable,
        lambda user: user.disabled_at is not None,
    ),
}
_DONE = {name: action.done for name, action in ACTIONS.items()}


def people() -> Response:
    """All users, by email."""
    order = users.BY_EMAIL
    found = order.page(users.beginning_with(pages.searched()), pages.cursor(order))
    return pages.render(
        "admin/people.html",
        "people",
        people=found.rows,
        text=pages.searched(),
        pages=pages.neighbours(found),
    )


def person() -> Response:
    """One user."""
    found = pages.person()
    return pages.render(
        "admin/person.html",
        "people",
        done=_DONE,
        person=found,
        actions=[
            (name, action.label) for name, action in ACTIONS.items() if _offered(action, found)
        ],
    )


def act() -> Response:
    """Asks before one of the actions, and does it."""
    user, name = pages.person(), request.args.get("do", "")
    action = ACTIONS.get(name)
    if action is None or not _offered(action, user):
        abort(404)
    form = ConfirmForm()
    if form.validate_on_submit():
        action.run(access.staff().actor, user)
        return pages.done("person", name, id=str(user.id))
    return pages.ask(
        "people",
        form,
        title=gettext(action.label),
        question=gettext(action.question, name=user.name),
        button=gettext(action.label),
        back=pages.url("person", id=str(user.id)),
    )


def _offered(action: Action, user: User) -> bool:
    return (access.staff().is_admin or action.is_for_helpdesk) and action.applies(user)
