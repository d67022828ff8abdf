"""People: found and shown. For what is done to them see `person_actions` and `person_editing`."""

from collections.abc import Callable
from uuid import UUID

from flask import redirect, request
from sqlalchemy import ColumnElement, Select
from werkzeug.wrappers import Response

from sso import context
from sso.audit import rows
from sso.crypto import passwords
from sso.endpoints.admin import events, pages, person_actions
from sso.flow.scopes import CLAIM_NAMES
from sso.i18n import N_, languages
from sso.models import User
from sso.services import staff
from sso.store import factors, grants, groups, identities, sessions, users
from sso.store.lists import Order

STATES: dict[str, tuple[str, Callable[[], ColumnElement[bool]]]] = {
    "disabled": (N_("disabled"), users.is_disabled),
    "invited": (N_("no password"), users.is_invited),
    "unverified": (N_("not verified"), users.is_unverified),
}
_NEWEST = 10


def people() -> Response:
    """Users: all of them, or those that are searched for."""
    text, group, anywhere = pages.searched(), pages.searched("group"), "anywhere" in request.args
    state = request.args.get("state", "")
    if found := _by_id(text):
        return redirect(pages.url("person", id=str(found.id)), 303)
    of_state = STATES[state][1]() if state in STATES else None
    return pages.render(
        "admin/people.html",
        "people",
        lists=[
            (title, found.rows, pages.neighbours(found, name, other))
            for title, order, statement, name, other in _lists(text, group, of_state, anywhere)
            if other not in request.args or name in request.args
            for found in [order.page(statement, pages.cursor(order, name))]
        ],
        text=text,
        group=group,
        state=state,
        anywhere=anywhere,
        states=[(name, title) for name, (title, _) in STATES.items()],
        state_of=state_of,
        done=person_actions.DONE,
    )


_List = tuple[str | None, Order, Select[User], str, str]


def _lists(
    text: str, group: str, of_state: ColumnElement[bool] | None, anywhere: bool
) -> list[_List]:
    """Each list: its title, order and rows, and the names of its cursor and of the other one's."""
    conditions = [] if of_state is None else [of_state]
    if group:
        conditions.append(groups.has_member(group, among_few=True))
    if text and anywhere:
        found = users.containing(text).where(*conditions)
        return [(None, users.CONTAINING, found, "page", "names")]
    order, found = users.BY_EMAIL, users.with_email(text).where(*conditions)
    if group and of_state is None:
        order, found = users.in_group(group, text)
    if not text:
        return [(None, order, found, "page", "names")]
    named = users.with_name(text).where(*conditions)
    return [
        (N_("By email"), order, found, "page", "names"),
        (N_("By name"), users.BY_NAME, named, "names", "page"),
    ]


def _by_id(text: str) -> User | None:
    try:
        return users.find(UUID(text))
    except ValueError:
        return None


def state_of(user: User) -> list[str]:
    """What is special about an account, in a few words each."""
    return [
        title
        for name, title in (
            (user.disabled_at, N_("disabled")),
            (user.password_hash is None and not user.disabled_at, N_("no password")),
            (not user.email_verified, N_("not verified")),
        )
        if name
    ]


def person() -> Response:
    """One user: profile, factors, sessions, applications, events, and what can be done."""
    found = pages.person()
    known = factors.of_user(found.id)
    return pages.render(
        "admin/person.html",
        "people",
        done=person_actions.DONE,
        person=found,
        role=staff.role_of(found.groups),
        states=state_of(found),
        has_imported_password=passwords.is_foreign(found.password_hash),
        claims=[(CLAIM_NAMES.get(name, name), value) for name, value in found.claims.items()],
        known=known,
        identities=[
            (one, context.upstreams().find(one.provider)) for one in identities.of_user(found.id)
        ],
        sessions=[(one, languages.browser_name(one.browser)) for one in sessions.of_user(found.id)],
        accesses=grants.accesses_of(found.id),
        events=events.shown(rows.newest(user_id=str(found.id), limit=_NEWEST)),
        actions=list(person_actions.offered(found)),
    )
