"""The list of all live sessions: filter by person, export, and end several at once."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from flask import abort
from sqlalchemy import Select
from werkzeug.wrappers import Response

from sso import clock
from sso.audit import Actor
from sso.config import email_addresses
from sso.endpoints.admin import access, admin_page, exports, several
from sso.endpoints.admin.actions import Action, Resource
from sso.endpoints.admin.forms import SelectionForm
from sso.endpoints.admin.people import ENDED, describe_session
from sso.endpoints.admin.several import Several
from sso.flow import permissions
from sso.flow.decision import ENDS
from sso.flow.permissions import Permission
from sso.i18n import N_, languages
from sso.i18n.message import Message
from sso.models import BrowserSession, User
from sso.services import authentication
from sso.store import groups, users
from sso.store import sessions as stored

SECTION = "sessions"
ORDERS = admin_page.by_age(stored.NEWEST_FIRST)
_NO_ONE = UUID(int=0)  # nobody has this id
_EXPORTED = ("user_id", "email", "browser", "address", "signed_in", "last_used", "applications")


class About(NamedTuple):
    """What the list says about the sessions of a page, besides their own columns."""

    emails: Mapping[str, str]  # by id of the user
    applications: Mapping[UUID, int]  # by id of the session

    @classmethod
    def of(cls, sessions: Sequence[BrowserSession]) -> "About":
        return cls(
            users.emails(str(session.user_id) for session in sessions),
            stored.application_counts([session.id for session in sessions]),
        )


def _filters() -> dict[str, str]:
    """Return the filters in the URL."""
    return admin_page.chosen(q=admin_page.searched(), sort=admin_page.choice("sort", ORDERS))


def _person(text: str) -> User | None:
    """Return the user with this id or email address."""
    try:
        return users.find(UUID(text))
    except ValueError:
        pass
    try:
        return users.find_by_email(email_addresses.normalized(text))
    except ValueError:
        return None


def _statement(text: str, at: datetime | None = None) -> Select[BrowserSession]:
    """Select the live sessions of the person with this id or email address; of everyone with ""."""
    names = access.staff().rights.limited_to(permissions.WRITE_PEOPLE)
    if text:
        user = _person(text)
        return stored.live(user.id if user and _is_visible(user) else _NO_ONE, at=at)
    return stored.live(at=at) if names is None else stored.live_in(names, at=at)


def _is_visible(user: User) -> bool:
    return Permission.WRITE_PEOPLE in access.staff().rights.over(user.groups)


def _visible(sessions: Sequence[BrowserSession]) -> Sequence[BrowserSession]:
    """Leave out those of people whom the visitor no longer manages: a membership may have ended."""
    if access.staff().may(Permission.WRITE_PEOPLE):
        return sessions
    users = groups.users({session.user_id for session in sessions})
    visible = {user.id for user in users if _is_visible(user)}
    return [session for session in sessions if session.user_id in visible]


class SignedIn(NamedTuple):
    """A session, and the email address of its user."""

    session: BrowserSession
    email: str


def _chosen(ids: Iterable[str]) -> list[SignedIn]:
    sessions = _visible(stored.live_with(several.uuids(ids)))
    emails = users.emails(str(session.user_id) for session in sessions)
    return [SignedIn(session, emails.get(str(session.user_id), "")) for session in sessions]


def _line_to_choose(signed_in: SignedIn) -> tuple[str, str, str]:
    key, browser, detail = describe_session(signed_in.session)
    return key, signed_in.email, f"{browser} · {detail}"


def _end(_: str, actor: Actor, chosen: Sequence[SignedIn]) -> None:
    """End sessions of several people, in one order, so that two administrators do not wait for
    each other.
    """
    by_user: dict[UUID, list[UUID]] = defaultdict(list)
    for session, _email in chosen:
        by_user[session.user_id].append(session.id)
    for user_id in sorted(by_user):
        if user := users.find(user_id):
            authentication.end_some(actor, user, by_user[user_id])


_ALL = Resource[SignedIn](
    section=SECTION,
    find=lambda: abort(404),
    actions={
        "end": Action(
            label=N_("End the sessions"),
            question=N_("The browser is signed out."),
            done=ENDED,
            run=lambda actor, signed_in: _end("end", actor, [signed_in]),
            ends=ENDS["sign-out by an operator"],
            is_danger=True,
        )
    },
)
_SEVERAL = Several(
    resource=_ALL,
    tasks=("end",),
    find=_chosen,
    line=_line_to_choose,
    none=Message("Choose at least one session."),
    run=_end,
    done="end",
)


def sessions() -> Response:
    """List the live sessions, newest first; a POST ends several of them."""
    form, filters = SelectionForm(), _filters()
    if response := _SEVERAL.act(form, filters):
        return response
    text, order = filters.get("q", ""), ORDERS[filters.get("sort", "")][1]
    listed = order.page(_statement(text), admin_page.cursor(order))
    rows = _visible(listed.rows)
    # A large total is cached by its statement: by the minute, not by the moment.
    minute = clock.now().replace(second=0, microsecond=0)
    return _ALL.render(
        "admin/sessions.html",
        sessions=[(session, languages.browser_name(session.browser)) for session in rows],
        about=About.of(rows),
        own=access.staff().current_session.session.id,
        pages=admin_page.neighbours(listed),
        total=admin_page.total(order, _statement(text, minute)),
        filters=filters,
        orders=ORDERS,
        form=form,
        tasks=_SEVERAL.labels,
        export_url=admin_page.url("sessions_export", **filters),
    )


def export() -> Response:
    """Export the live sessions that the filter selects, as CSV."""
    filters = _filters()
    order = ORDERS[filters.get("sort", "")][1]
    batches = exports.batches(order, _statement(filters.get("q", "")), About.of)
    return exports.send_table("sessions", _EXPORTED, _lines(batches))


def _lines(batches: Iterator[tuple[Sequence[BrowserSession], About]]) -> Iterator[Sequence[object]]:
    for sessions, about in batches:
        for session in _visible(sessions):
            yield (
                session.user_id, about.emails.get(str(session.user_id)),
                languages.browser_name(session.browser), session.address,
                exports.moment(session.auth_time), exports.moment(session.last_seen_at),
                about.applications.get(session.id, 0),
            )  # fmt: skip
