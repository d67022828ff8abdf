"""What admin pages share: how one is rendered, what it is about, and what a form leads to."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from flask import abort, redirect, request, url_for
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso.endpoints import browser_session, page
from sso.endpoints.admin import access
from sso.endpoints.admin.forms import ConfirmForm
from sso.extensions import db
from sso.i18n import N_
from sso.models import Client, User
from sso.store import clients, users
from sso.store.lists import BadCursor, Order, Slice
from sso.web import page_form

T = TypeVar("T")
LONGEST = 200  # characters of what is searched for


@dataclass(frozen=True)
class Section:
    """An entry of the navigation; `endpoint` without the blueprint, as the route is named."""

    title: str
    endpoint: str
    is_for_helpdesk: bool = False


SECTIONS = (
    Section(N_("Overview"), "overview", is_for_helpdesk=True),
    Section(N_("People"), "people", is_for_helpdesk=True),
    Section(N_("Groups"), "groups"),
    Section(N_("Applications"), "applications"),
    Section(N_("Refused requests"), "refusals"),
    Section(N_("Audit trail"), "audit"),
    Section(N_("Signing keys"), "keys"),
    Section(N_("API tokens"), "tokens"),
)


def render(
    template: str, section: str, *, status: int = 200, done: Mapping[str, str] = {}, **more: Any
) -> Response:
    """An admin page of a section, by its endpoint. Commits.

    `done`: what `?done=…` may say was done (see `done`).
    """
    staff = access.staff()
    browser_session.touch(staff.visit)
    response = page.render(
        template,
        status=status,
        staff=staff,
        section=section,
        sections=[one for one in SECTIONS if staff.is_admin or one.is_for_helpdesk],
        done=done.get(request.args.get("done", "")),
        is_unsent=page_form.is_shown_again(),
        **more,
    )
    # So that browsers send the Origin of a form (see `access`); it stays on this site.
    response.headers["Referrer-Policy"] = "same-origin"
    db.session.commit()
    return response


def ask(
    section: str,
    form: ConfirmForm,
    *,
    title: str,
    question: str,
    button: str,
    back: str,
    ends: Iterable[str] = (),
    is_danger: bool = True,
    errors: Iterable[str] = (),
    warnings: Iterable[str] = (),
) -> Response:
    """The page that asks before something is done, and says what it will end. Commits."""
    return render(
        "admin/ask.html",
        section,
        form=form,
        title=title,
        question=question,
        button=button,
        back=back,
        ends=ends,
        is_danger=is_danger,
        errors=errors,
        warnings=warnings,
    )


def done(endpoint: str, what: str | None = None, **more: str) -> Response:
    """Commit, and show the page that says what was done."""
    db.session.commit()
    return redirect(url(endpoint, **({"done": what} if what else {}), **more), 303)


def url(endpoint: str, **more: str) -> str:
    """The URL of an admin page."""
    values: dict[str, Any] = {**more}
    return url_for(f"admin.{endpoint}", **values)


def searched(name: str = "q") -> str:
    """What a list is searched for, as clean text."""
    text = request.args.get(name, "").strip()[:LONGEST]
    return "".join(one for one in text if one.isprintable() and not "\ud800" <= one <= "\udfff")


def cursor(order: Order, name: str = "page") -> str | None:
    """The place in a list that the URL names; one that nobody has given is its beginning."""
    given = request.args.get(name) or None
    try:
        order.read(given or "")
    except BadCursor:
        return None
    return given


def neighbours(found: Slice[Any], name: str = "page", *without: str) -> dict[str, str]:
    """The URLs of the pages before and after, by `previous` and `next`."""
    endpoint, left_out = (request.endpoint or "").removeprefix("admin."), (name, "done", *without)
    kept = {key: value for key, value in request.args.items() if key not in left_out}
    return {
        where: url(endpoint, **{**kept, name: place})
        for where, place in (("previous", found.previous), ("next", found.next))
        if place
    }


def uuid(name: str = "id") -> UUID:
    """The identifier that the URL names; 404 if it is none."""
    try:
        return UUID(request.args.get(name, ""))
    except ValueError:
        abort(404)


def person(name: str = "id") -> User:
    """The user whom the URL names; 404 if there is none."""
    return users.find(uuid(name)) or abort(404)


def application(name: str = "id") -> Client:
    """The client that the URL names; 404 if there is none."""
    client_id = request.args.get(name, "")
    is_clean = client_id.isascii() and client_id.isprintable()
    return (clients.find(client_id) if is_clean else None) or abort(404)


def in_words(changes: Iterable[tuple[str, Any, Any]]) -> list[tuple[str, str, str]]:
    """What others changed, for people: the name of the field, before and now."""
    return [(name, _text(before), _text(after)) for name, before, after in changes]


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value)
    if isinstance(value, bool):
        return str(gettext("yes") if value else gettext("no"))
    return "" if value is None else str(value)
