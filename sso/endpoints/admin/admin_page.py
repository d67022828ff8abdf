"""Shared by admin pages: rendering, refused forms, and the objects in URLs."""

import json
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from operator import attrgetter
from typing import Any, Self, TypeVar
from uuid import UUID

from flask import abort, redirect, request, url_for
from flask_babel import gettext
from sqlalchemy import Select
from werkzeug.wrappers import Response

from sso.endpoints import browser_session, page
from sso.endpoints.admin import access, caching
from sso.errors import NotAllowed, OperatorError
from sso.extensions import db
from sso.flow.permissions import PEOPLE, Rights
from sso.i18n import N_
from sso.models import Client, User
from sso.services import agent_identity, changes
from sso.services.changes import Changed, Differences
from sso.store import clients, users
from sso.store.lists import PAGE, BadCursor, Order, Slice
from sso.web import forms, headers, routing
from sso.web.forms import PageForm

T = TypeVar("T")
LONGEST = 200  # characters of a search text
MOST_COUNTED = 10_000  # rows of a list
EXACT = 1000  # up to here, totals are always counted again
_MINUTE = timedelta(minutes=1)


_PEOPLE, _APPLICATIONS, _SERVER = N_("Accounts"), N_("Connections"), N_("Server")


@dataclass(frozen=True)
class Section:
    """An entry of the navigation; `endpoint` without the blueprint, as the route is named.

    `area`: the heading that it stands under, which neighbouring entries share.
    """

    title: str
    endpoint: str
    area: str = _APPLICATIONS


SECTIONS = (
    Section(N_("Overview"), "overview", area=""),
    Section(N_("People"), "people", area=_PEOPLE),
    Section(N_("Groups"), "groups", area=_PEOPLE),
    Section(N_("Attributes"), "attributes", area=_PEOPLE),
    Section(N_("Sessions"), "sessions", area=_PEOPLE),
    Section(N_("Applications"), "applications"),
    Section(N_("APIs"), "apis"),
    Section(N_("MCP servers"), "mcp_servers"),
    Section(N_("Sign-in providers"), "providers"),
    Section(N_("Refused requests"), "refusals"),
    Section(N_("Audit trail"), "audit", area=_SERVER),
    Section(N_("Webhooks"), "webhooks", area=_SERVER),
    Section(N_("Emails"), "emails", area=_SERVER),
    Section(N_("Signing keys"), "keys", area=_SERVER),
    Section(N_("API tokens"), "tokens", area=_SERVER),
    Section(N_("Appearance"), "appearance", area=_SERVER),
    Section(N_("Settings"), "settings", area=_SERVER),
)


def navigation(rights: Rights) -> list[tuple[str, list[Section]]]:
    """Return the sections that these rights open, below the heading of their area."""
    sections = [entry for entry in SECTIONS if routing.may_open(entry.endpoint, rights)]
    return [(area, list(entries)) for area, entries in groupby(sections, attrgetter("area"))]


def render(
    template: str, section: str, *, status: int = 200, done: Mapping[str, str] = {}, **more: Any
) -> Response:
    """Render an admin page of a section, given by its endpoint. Commits.

    `done`: the messages for `?done=…` (see `done`).
    """
    staff = access.staff()
    browser_session.touch(staff.current_session)
    headers.allow_own_script()
    response = page.render(
        template,
        status=status,
        staff=staff,
        section=section,
        here=next(entry for entry in SECTIONS if entry.endpoint == section),
        areas=navigation(staff.rights),
        done=done.get(request.args.get("done", "")),
        is_unsent=forms.is_shown_again(),
        title_of=agent_identity.title_of,
        claimed_name_of=agent_identity.claimed_name_of,
        **more,
    )
    # So that browsers send the Origin of a form (see `access`); it stays on this site.
    response.headers["Referrer-Policy"] = "same-origin"
    db.session.commit()
    return response


class Refusal:
    """The reason why a form changed nothing. It catches the errors of services in its block.

        with Refusal() as refusal:
            if form.validate_on_submit():
                groups.create(...)
                return done("groups")
        return form_page("admin/groups.html", "groups", form, refusal)

    `errors`: the reasons, one line each. `differences`: the changes that others have made
    meanwhile. In both cases the transaction is rolled back. If the object is gone, the view ends
    with 404. `NotAllowed` is not caught; it has its own page (see `access`).
    """

    def __init__(self) -> None:
        self.errors: Sequence[str] = ()
        self.differences: Differences = {}

    @property
    def is_refused(self) -> bool:
        return bool(self.errors or self.differences)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        match error:
            case Changed():
                self.differences = error.differences
            case OperatorError() if not isinstance(error, NotAllowed):
                self.errors = getattr(error, "errors", error.args)
            case KeyError() | IndexError():  # a bug
                return False
            case LookupError():
                abort(404)
            case _:
                return False
        db.session.rollback()
        return True


def form_page(
    template: str,
    section: str,
    form: PageForm,
    refusal: Refusal,
    title_of: Callable[[str], str] = str,
    **more: Any,
) -> Response:
    """Render a page with a form, and the reason if it was refused. Commits.

    The status is 409 if others have changed the object meanwhile; `title_of` names the fields.
    """
    return render(
        template,
        section,
        status=409 if refusal.differences else 200,
        form=form,
        errors=refusal.errors,
        others=_difference_rows(refusal.differences, title_of),
        **more,
    )


def done(endpoint: str, result: str | None = None, **more: str) -> Response:
    """Commit, and redirect to the page that shows the result."""
    db.session.commit()
    return redirect(url(endpoint, **({"done": result} if result else {}), **more), 303)


def url(endpoint: str, **more: str | list[str]) -> str:
    """Return the URL of an admin page."""
    values: dict[str, Any] = {**more}
    return url_for(f"admin.{endpoint}", **values)


def searched(name: str = "q") -> str:
    """Return the search text of a list, cleaned."""
    text = request.args.get(name, "").strip()[:LONGEST]
    return "".join(char for char in text if char.isprintable() and not "\ud800" <= char <= "\udfff")


def choice(name: str, choices: Container[str]) -> str:
    """Return the filter of this name in the URL, or "" unless it is one of the choices."""
    value = request.args.get(name, "")
    return value if value in choices else ""


Orders = Mapping[str, tuple[str, Order]]  # by the value in the URL, each with a title


def by_age(newest_first: Order) -> Orders:
    """Return the orders of a list that an index has by time."""
    return {
        "": (N_("Newest first"), newest_first),
        "oldest": (N_("Oldest first"), newest_first.reversed),
    }


def chosen(**filters: str) -> dict[str, str]:
    """Return the filters that are set, as parameters of the URL."""
    return {name: value for name, value in filters.items() if value}


def cursor(order: Order, name: str = "page") -> str | None:
    """Return the cursor of a list from the URL; `None` for the beginning or if it is invalid."""
    place = request.args.get(name) or None
    try:
        order.read(place or "")
    except BadCursor:
        return None
    return place


_PLACE = "n"  # the number of the page, for the reader alone: the cursor says where it begins
_MOST_PAGES = 1_000_000


def neighbours(part: Slice[Any], name: str = "page", *without: str) -> dict[str, Any]:
    """Return the URLs of the neighbouring pages of a list, as `previous` and `next`, and its
    `number`, counted from the first page on the way here.
    """
    endpoint = (request.endpoint or "").removeprefix("admin.")
    number = _page_number() if name in request.args else 1
    kept = _kept(name, _PLACE, *without)
    urls: dict[str, Any] = {
        where: url(endpoint, **kept, **{name: place, _PLACE: str(number + step)})
        for where, place, step in (("previous", part.previous, -1), ("next", part.next, 1))
        if place
    }
    return urls | {"number": number} if urls else {}


def numbered(rows: Sequence[T], place: str = _PLACE) -> tuple[Sequence[T], dict[str, Any], "Total"]:
    """Return the page of rows that the URL names by its number, the URLs of its neighbours as
    `neighbours` does, and the total: for lists that are read whole.

    `place`: the parameter with the number; the second list of a page has its own.
    """
    total = Total(len(rows))
    number = max(1, min(_page_number(place), total.pages))
    endpoint = (request.endpoint or "").removeprefix("admin.")
    kept = _kept("page", place)
    urls: dict[str, Any] = {
        where: url(endpoint, **kept, **{place: str(number + step)})
        for where, step in (("previous", -1), ("next", 1))
        if 1 <= number + step <= total.pages
    }
    first = (number - 1) * PAGE
    return rows[first : first + PAGE], urls | {"number": number} if urls else {}, total


def _kept(*without: str) -> dict[str, list[str]]:
    """Return the parameters of the URL that other pages of its list have, too.

    Those that are options of `url_for`, which begin with an underscore, are none of a list.
    """
    left_out = {"endpoint", "done", *without}
    return {
        key: request.args.getlist(key)
        for key in request.args
        if key not in left_out and not key.startswith("_")
    }


def _page_number(place: str = _PLACE) -> int:
    text = request.args.get(place, "")
    return (
        min(int(text), _MOST_PAGES) if text.isascii() and text.isdecimal() and len(text) < 8 else 1
    )


@dataclass(frozen=True)
class Total:
    """The number of rows of a list. `is_more`: there are more than were counted."""

    count: int
    is_more: bool = False

    @property
    def pages(self) -> int:
        return max(1, -(-self.count // PAGE))


def total(order: Order, statement: Select[Any]) -> Total:
    """Count the rows of a list, up to `MOST_COUNTED`. A large number is up to a minute old."""
    compiled = statement.compile(db.engine)
    key = ("total", str(compiled), repr(sorted(compiled.params.items(), key=str)))
    counted = caching.cached(
        key, _MINUTE, lambda: order.total(statement, MOST_COUNTED), lambda count: count > EXACT
    )
    return Total(min(counted, MOST_COUNTED), counted > MOST_COUNTED)


def uuid(name: str = "id") -> UUID:
    """Return the id in the URL; end the view with 404 if it is invalid."""
    try:
        return UUID(request.args.get(name, ""))
    except ValueError:
        abort(404)


def person(name: str = "id") -> User:
    """Return the user in the URL; end the view with 404 if there is none, or if what the page needs
    about people does not hold for this one.
    """
    user, route = users.find(uuid(name)), routing.current()
    needs = PEOPLE.intersection(route.needs if route else ())
    if user is None or (needs and access.staff().rights.over(user.groups).isdisjoint(needs)):
        abort(404)
    return user


def application(name: str = "id") -> Client:
    """Return the client in the URL; end the view with 404 if there is none, or if the visitor does
    not manage it.
    """
    client_id = request.args.get(name, "")
    is_clean = client_id.isascii() and client_id.isprintable()
    if not access.staff().manages(client_id):
        abort(404)
    return (clients.find(client_id) if is_clean else None) or abort(404)


def _difference_rows(
    differences: Differences, title_of: Callable[[str], str]
) -> list[tuple[str, str, str]]:
    """Return the title, former and current value of each field; mappings are split."""
    return [
        (title_of(name), _text(change["before"]), _text(change["after"]))
        for name, change in _flat(differences)
    ]


def _flat(differences: Differences) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, change in differences.items():
        if any(isinstance(value, dict) for value in change.values()):
            inner = (change["before"] or {}, change["after"] or {})
            yield from _flat(changes.between(*inner))
        else:
            yield name, change


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    if isinstance(value, dict):  # a key of a set
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        return str(gettext("yes") if value else gettext("no"))
    return "" if value is None else str(value)
