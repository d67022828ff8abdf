"""Inviting and editing people."""

from typing import Any

from flask import abort, request
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso.endpoints.admin import access, pages
from sso.endpoints.admin.forms import InviteForm, PersonForm, lines, seen_of
from sso.flow.scopes import CLAIM_NAMES
from sso.i18n import N_
from sso.models import User
from sso.services import accounts
from sso.services import changes as differences
from sso.services.changes import Changed, Differences, ListEdit
from sso.services.checks import RegistrationError

FIELDS = {
    "email": N_("Email"),
    "name": N_("Name"),
    "email_verified": N_("The address belongs to this person"),
    "groups": N_("Groups"),
    **CLAIM_NAMES,
}


def invite() -> Response:
    """Creates a user, who is mailed a link to set the password."""
    staff, form, errors = access.staff(), InviteForm(), []
    if form.validate_on_submit():
        groups = lines(form.groups.data) if staff.is_admin else []
        email, name = form.email.data or "", form.name.data or ""
        try:
            user, is_sent = accounts.invite(staff.actor, email=email, name=name, groups=groups)
        except RegistrationError as error:
            errors = error.errors
        else:
            what = "invited" if is_sent else "not-invited"
            return pages.done("person", what, id=str(user.id))
    return pages.render("admin/invite.html", "people", form=form, errors=errors)


def edit() -> Response:
    """Changes a user. What another administrator changed meanwhile is shown first."""
    user, form, errors = pages.person(), PersonForm(), []
    others: Differences = {}
    now = seen_of(accounts.described(user))
    if request.method != "POST":
        form.show(now)
    elif form.validate():
        seen = form.was_seen() or now
        try:
            _save(user, seen, form.read())
        except Changed as changed:
            others = changed.differences
            _merge(form, seen, user)
        except LookupError:  # deleted at this moment
            abort(404)
        except RegistrationError as error:
            errors = error.errors
        else:
            return pages.done("person", "edited", id=str(user.id))
    return pages.render(
        "admin/edit_person.html",
        "people",
        status=409 if others else 200,
        person=user,
        form=form,
        errors=errors,
        claim_names=CLAIM_NAMES,
        others=_in_words(others),
    )


def _save(user: User, seen: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Change only what the person who edits has changed."""
    changed = differences.between(seen, wanted)
    if not changed:
        return
    simple = ("email", "name", "email_verified")
    given: dict[str, Any] = {name: wanted[name] for name in simple if name in changed}
    if "groups" in changed:
        given["memberships"] = ListEdit(whole=tuple(wanted["groups"]))
    if "claims" in changed:
        inner = differences.between(seen["claims"], wanted["claims"])
        given["claims"] = {name: one["after"] for name, one in inner.items()}
    accounts.update(access.staff().actor, user.id, seen=seen, **given)


def _merge(form: PersonForm, seen: dict[str, Any], user: User) -> None:
    """What I have changed stays in the fields; the rest is as it is now."""
    mine, now = form.read(), seen_of(accounts.described(user))
    merged = {**now, **{name: mine[name] for name in differences.between(seen, mine)}}
    inner = differences.between(seen["claims"], mine["claims"])
    merged["claims"] = {**now["claims"], **{name: one["after"] for name, one in inner.items()}}
    form.show(merged, seen=now)


def _in_words(others: Differences) -> list[tuple[str, Any, Any]]:
    """What others changed: the name of the field, before and now."""
    found = []
    for name, one in others.items():
        if name == "claims":
            inner = differences.between(one["before"] or {}, one["after"] or {})
            found += [(FIELDS.get(n, n), o["before"], o["after"]) for n, o in inner.items()]
        else:
            found.append((FIELDS[name], one["before"], one["after"]))
    return pages.in_words((gettext(name), before, after) for name, before, after in found)
