"""The list of people: filter, sort, choose columns, export, and act on several at once."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from uuid import UUID

from flask import abort, redirect, request
from flask_babel import format_decimal, gettext
from sqlalchemy import ColumnElement, Select
from werkzeug.wrappers import Response

from sso.audit import Actor
from sso.endpoints.admin import access, admin_page, exports
from sso.endpoints.admin.actions import Action
from sso.endpoints.admin.admin_page import Refusal, Total
from sso.endpoints.admin.forms import SelectionForm
from sso.endpoints.admin.people import ACTIONS, PERSON, state_of
from sso.endpoints.admin.several import Row, applicability
from sso.flow import moments, permissions
from sso.flow.decision import ENDS
from sso.flow.permissions import Needs, Permission
from sso.i18n import N_
from sso.i18n.message import Message
from sso.models import User
from sso.services import group_editing, group_owners
from sso.services.checks import Invalid
from sso.store import factors, groups, named_groups, users
from sso.store.lists import PAGE, Order, Slice

ACTIVE_DAYS, _INACTIVE_DAYS = 30, 90
ACTIVE_TITLE = N_("Active in 30 days")
FACTOR_STATE, FACTOR_TITLE = "factor", N_("With a second factor")
STATES: dict[str, tuple[str, Callable[[], ColumnElement[bool]]]] = {
    "disabled": (N_("disabled"), users.is_disabled),
    "invited": (N_("no password"), users.is_invited),
    "unverified": (N_("not verified"), users.is_unverified),
    FACTOR_STATE: (FACTOR_TITLE, factors.is_owner),
    "active": (ACTIVE_TITLE, partial(users.is_active, ACTIVE_DAYS)),
    "inactive": (N_("Not active for 90 days"), partial(users.is_inactive, _INACTIVE_DAYS)),
}
_ORDERS = {"active": users.BY_ACTIVITY.reversed, "inactive": users.BY_ACTIVITY}
_NAME = "name"
SORTS = {"": N_("Email"), _NAME: N_("Name")}
COLUMNS = {
    "name": N_("Name"),
    "groups": N_("Groups"),
    "state": N_("State"),
    "active": N_("Last active"),
    "created": N_("Created"),
    "changed": N_("Changed"),
    "id": N_("ID"),
}
_USUAL_COLUMNS = ("name", "groups", "state")
MOST_SUGGESTED = 200  # groups


@dataclass(frozen=True)
class Listed:
    """One of the lists of people that a search has: how it is ordered, and its cursors' names.

    `groups`: of which the visitor sees only the members.
    """

    title: str | None
    order: Order
    statement: Select[User]
    groups: frozenset[str] | None = None
    cursor: str = "page"
    other: str = "names"

    def page(self) -> Slice[User]:
        """Return the page that the URL names."""
        return self.order.page(self.statement, admin_page.cursor(self.order, self.cursor))

    def visible(self, rows: Iterable[User]) -> Iterator[User]:
        """Yield the people whom the visitor manages now: a membership may have ended."""
        return (user for user in rows if self.groups is None or self.groups & {*user.groups})

    @property
    def total(self) -> Total:
        return admin_page.total(self.order, self.statement)


@dataclass(frozen=True)
class Filters:
    """What the URL asks for."""

    text: str
    group: str
    state: str
    sort: str
    is_anywhere: bool
    columns: Sequence[str]

    @classmethod
    def of_request(cls) -> "Filters":
        columns = [name for name in COLUMNS if name in request.args.getlist("column")]
        state, sort = request.args.get("state", ""), request.args.get("sort", "")
        return cls(
            admin_page.searched(),
            admin_page.searched("group"),
            state if state in STATES else "",
            sort if sort in SORTS else "",
            "anywhere" in request.args,
            columns or _USUAL_COLUMNS,
        )

    def lists(self, needs: Needs, most: int | None = None) -> list[Listed]:
        """Return the lists: one, or with a text those whose email and whose name begin with it.

        `needs`: the permission that holds for all of them. `most`: among how many people a text
        anywhere is looked for (`users.containing`).
        """
        visible = access.staff().rights.limited_to(needs)
        limits = [] if visible is None else [groups.has_any(visible)]
        return [
            replace(listed, statement=listed.statement.where(*limits), groups=visible)
            for listed in self._lists(most, is_limited=visible is not None)
        ]

    @property
    def looked_through(self) -> int | None:
        """Return among how many people the page looks for the text; `None`: among all."""
        most = users.MOST_FOR_A_PAGE
        is_bounded = self.text and self.is_anywhere and users.is_search_bounded(most)
        return most if is_bounded else None

    def _lists(self, most: int | None, *, is_limited: bool) -> list[Listed]:
        conditions = [STATES[self.state][1]()] if self.state else []
        if self.group:
            conditions.append(groups.has_member(self.group, among_few=True))
        if self.text and self.is_anywhere:
            matching = users.containing(self.text, most).where(*conditions)
            return [Listed(None, users.CONTAINING, matching)]
        statement = users.with_email(self.text).where(*conditions)
        order = users.order_of(self.text, has_state=bool(self.state))
        if not (self.text or self.group):
            order = _ORDERS.get(self.state, order)
        by_email = Listed(None, order, statement)
        if self.group and not self.state:
            by_email = Listed(None, *users.in_group(self.group, self.text))
        if not self.text:
            # Only the list of all people has an index for this order.
            is_whole = not (self.group or self.state or is_limited)
            if self.sort == _NAME and is_whole:
                return [Listed(None, users.BY_NAME, users.with_email(""))]
            return [by_email]
        names = users.with_name(self.text).where(*conditions)
        return [
            Listed(N_("By email"), by_email.order, by_email.statement),
            Listed(N_("By name"), users.BY_NAME, names, cursor="names", other="page"),
        ]


def people() -> Response:
    """List all users, or search them; a POST acts on those that were chosen."""
    form = SelectionForm()
    if task := tasks().get(form.do.data or ""):
        return _act_on_several(form, task)
    filters = Filters.of_request()
    if user := _by_id(filters.text):
        return redirect(admin_page.url("person", id=str(user.id)), 303)
    lists = [
        listed
        for listed in filters.lists(permissions.READ_PEOPLE, users.MOST_FOR_A_PAGE)
        if listed.other not in request.args or listed.cursor in request.args
    ]
    return PERSON.render(
        "admin/people.html",
        lists=[
            (
                listed.title,
                list(listed.visible(page.rows)),
                admin_page.neighbours(page, listed.cursor, listed.other),
                listed.total,
            )
            for listed in lists
            for page in [listed.page()]
        ],
        filters=filters,
        looked_through=filters.looked_through,
        states=[(name, title) for name, (title, _) in STATES.items()],
        sorts=SORTS,
        columns=COLUMNS,
        state_of=state_of,
        suggested=_suggested(),
        form=form,
        tasks=tasks(),
        export_url=admin_page.url("people_export", kind="csv", **_query()),
    )


def _suggested() -> Sequence[str]:
    """Return the groups that the visitor may change the members of; the first ones."""
    names = access.staff().rights.limited_to(permissions.GROUPS)
    return named_groups.first(MOST_SUGGESTED) if names is None else sorted(names)


def _query() -> dict[str, str]:
    """Return the parameters of the filters, without those of pages."""
    names = ("q", "group", "state", "anywhere", "sort")
    return {name: request.args[name] for name in names if request.args.get(name)}


_EXPORTED = (
    *("id", "email", "name", "email_verified", "groups", "disabled", "created"),
    *("last_active", "terms_version", "terms_accepted", "ends_at", "group_ends"),
)


def export() -> Response:
    """Export the people that the filters select, as CSV."""
    if request.args.get("kind") != "csv":
        abort(404)
    lists = Filters.of_request().lists(permissions.WRITE_PEOPLE)
    return exports.send_table("people", _EXPORTED, _lines(lists))


def _lines(lists: Sequence[Listed]) -> Iterator[Sequence[object]]:
    for listed in lists:
        for user in listed.visible(exports.rows(listed.order, listed.statement)):
            yield (
                user.id, user.email, user.name, _yes(user.email_verified), "\n".join(user.groups),
                _yes(user.is_disabled), exports.moment(user.created_at),
                exports.moment(user.last_active_at) if user.last_active_at else "",
                user.terms_version or "",
                exports.moment(user.terms_accepted_at) if user.terms_accepted_at else "",
                moments.text_of(user.ends_at),
                "\n".join(f"{name}={end}" for name, end in _ends_of(user)),
            )  # fmt: skip


def _ends_of(user: User) -> Iterable[tuple[str, str]]:
    """Return the ends of memberships that last."""
    return ((name, end) for name in user.groups if (end := (user.group_ends or {}).get(name)))


def _yes(value: bool | datetime | None) -> str:
    return "true" if value else "false"


_NO_GROUP = Message("There is no group with this name.")
_NOBODY = Message("Choose at least one person.")
ADD, REMOVE = "add", "remove"
_ONE_BY_ONE = ("disable", "enable", "sign-out", "invite")


def tasks() -> dict[str, str]:
    """Return the titles of what may be done with several people at once."""
    staff = access.staff()
    titles = {name: ACTIONS[name].label for name in _ONE_BY_ONE if ACTIONS[name].is_for(staff)}
    groups = {ADD: N_("Add to a group"), REMOVE: N_("Remove from a group")}
    return titles | groups if staff.holds(Permission.GROUPS) else titles


def _act_on_several(form: SelectionForm, title: str) -> Response:
    """Ask before an action on several people, then carry it out on all of them or on none."""
    task, chosen = form.do.data or "", _chosen(form)
    with Refusal() as refusal:
        if not chosen:
            raise Invalid([_NOBODY])
        if form.validate_on_submit() and form.is_confirmed.data:
            _carry_out(access.staff().actor, task, form.group.data or "", chosen)
            return admin_page.done("people", "several", **_query())
    if refusal.is_refused:
        chosen = _chosen(form)
    action = ACTIONS.get(task)
    rows = [Row(str(user.id), user.name, user.email, *_state(action, user)) for user in chosen]
    return admin_page.form_page(
        "admin/selected.html",
        "people",
        form,
        refusal,
        task=title,
        name="person",
        count=gettext(
            "People whom this applies to: %(count)s",
            count=format_decimal(sum(row.applies for row in rows)),
        ),
        rows=rows,
        ends=_ends(task, action),
        is_danger=task in (REMOVE, "disable", "sign-out"),
        needs_group=action is None,
        back=admin_page.url("people", **_query()),
        suggested=_suggested(),
    )


def _ends(task: str, action: Action[User] | None) -> Sequence[str]:
    if action:
        return action.ends
    return ENDS["group lost"] if task == REMOVE else ()


def _chosen(form: SelectionForm) -> list[User]:
    """Return the people that the form names, at most a page of them; those that are gone are left
    out.
    """
    ids: list[UUID] = []
    for text in (form.person.data or ())[:PAGE]:
        try:
            ids.append(UUID(text))
        except ValueError:
            abort(404)
    return sorted(filter(_is_visible, groups.users(ids)), key=lambda user: user.email)


def _is_visible(user: User) -> bool:
    return Permission.READ_PEOPLE in access.staff().rights.over(user.groups)


def _applies(action: Action[User] | None, user: User) -> bool:
    staff = access.staff()
    return action is None or (
        PERSON.may_act(staff, user)
        and action.holds_for(staff, user.groups)
        and action.applies(user)
    )


def _state(action: Action[User] | None, user: User) -> tuple[bool, str | None]:
    return applicability(action, user, is_offered=_applies(action, user))


def _carry_out(actor: Actor, task: str, group: str, people: Sequence[User]) -> None:
    if action := ACTIONS.get(task):
        # In the order in which everybody locks users.
        for user in sorted(people, key=lambda user: user.id):
            if _applies(action, user):
                action.run(actor, user)
        return
    named = named_groups.find_by_name(group.strip())
    if named is None or not group_owners.may_manage(actor, named):
        raise Invalid([_NO_GROUP])
    ids = [user.id for user in people]
    if task == ADD:
        group_editing.change(actor, named.id, added=ids)
    else:
        group_editing.change(actor, named.id, removed=ids)


def _by_id(text: str) -> User | None:
    try:
        user = users.find(UUID(text))
    except ValueError:
        return None
    return user if user and _is_visible(user) else None
