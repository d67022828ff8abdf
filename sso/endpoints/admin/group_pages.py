"""Groups: their members, and the applications that require them."""

from typing import Any

from flask import abort
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso.endpoints.admin import access, pages
from sso.endpoints.admin.forms import ConfirmForm, GroupForm, MemberForm
from sso.extensions import db
from sso.flow.decision import ENDS
from sso.i18n import N_
from sso.i18n.message import Message
from sso.models import Group
from sso.services import group_editing
from sso.services.changes import Changed
from sso.services.checks import Invalid
from sso.store import clients, named_groups, users

_DONE = {
    "created": N_("The group was created."),
    "deleted": N_("The group was deleted."),
    "added": N_("The person is in the group now."),
    "removed": N_("The person is no longer in the group."),
    "renamed": N_("The changes were saved."),
}


def groups() -> Response:
    """All groups, by name; a POST creates one."""
    form, errors = GroupForm(), []
    if form.validate_on_submit():
        try:
            made = group_editing.create(access.staff().actor, form.name.data or "")
        except Invalid as error:
            errors = error.errors
        else:
            return pages.done("group", "created", id=str(made.id))
    order, text = named_groups.BY_NAME, pages.searched()
    found = order.page(named_groups.containing(text), pages.cursor(order))
    return pages.render(
        "admin/groups.html",
        "groups",
        done=_DONE,
        groups=found.rows,
        pages=pages.neighbours(found),
        text=text,
        form=form,
        errors=errors,
    )


def group() -> Response:
    """One group: its members, a page at a time, and who requires it; a POST adds a member."""
    found, form, errors = _group(), MemberForm(), []
    if form.validate_on_submit():
        user = users.find_by_email(form.email.data or "")
        try:
            if user:
                _change(found, added=[user.id])
                return pages.done("group", "added", id=str(found.id))
        except Invalid:  # deleted at this moment
            db.session.rollback()
            found = _group()
        errors = [Message("There is no person with this email address.")]
    order, in_group = users.in_group(found.name)
    members = order.page(in_group, pages.cursor(order))
    return pages.render(
        "admin/group.html",
        "groups",
        done=_DONE,
        group=found,
        members=members.rows,
        pages=pages.neighbours(members),
        clients=[one for one in clients.every() if found.name in one.groups],
        form=form,
        errors=errors,
    )


def rename() -> Response:
    """Changes the name, also where applications require the group."""
    found, form, errors, others = _group(), GroupForm(), [], []
    if form.validate_on_submit():
        seen = form.seen.data or found.name
        try:
            _change(found, name=form.name.data or "", seen={"name": seen})
        except Changed as changed:
            one = changed.differences["name"]
            others = [(gettext("Name"), one["before"], one["after"])]
        except Invalid as error:
            errors = error.errors
        else:
            return pages.done("group", "renamed", id=str(found.id))
        db.session.rollback()
        found = _group()
    elif not form.is_submitted():
        form.name.data = found.name
    form.seen.data = found.name
    return pages.render(
        "admin/group_rename.html",
        "groups",
        status=409 if others else 200,
        group=found,
        form=form,
        errors=errors,
        others=others,
    )


def remove_member() -> Response:
    """Asks, then takes a person out of a group."""
    found, user = _group(), pages.person("user")
    form = ConfirmForm()
    if form.validate_on_submit():
        _change(found, removed=[user.id])
        return pages.done("group", "removed", id=str(found.id))
    label = gettext("Remove from the group")
    return pages.ask(
        "groups", form, title=f"{label} · {found.name}", question=f"{user.name} ({user.email})",
        button=label, back=pages.url("group", id=str(found.id)), ends=ENDS["group lost"],
    )  # fmt: skip


def delete() -> Response:
    """Asks, then deletes a group."""
    found, form, errors = _group(), ConfirmForm(), []
    if form.validate_on_submit():
        version = form.seen.data or ""
        seen = {"version": int(version)} if version.isdecimal() and len(version) < 10 else None
        try:
            group_editing.delete(access.staff().actor, found.id, seen=seen)
        except LookupError:  # deleted at this moment
            abort(404)
        except Changed:
            db.session.rollback()
            found = _group()
            errors = [
                Message("Someone else has changed this in the meantime. Nothing was deleted.")
            ]
        else:
            return pages.done("groups", "deleted")
    form.seen.data = str(found.version)
    label = gettext("Delete the group")
    question = gettext(
        "Its members lose it. Applications that require it let nobody in by it any more."
    )
    return pages.ask(
        "groups", form, title=f"{label} · {found.name}", question=question, button=label,
        back=pages.url("group", id=str(found.id)), ends=ENDS["group lost"], errors=errors,
    )  # fmt: skip


def _change(group: Group, **what: Any) -> None:
    try:
        group_editing.change(access.staff().actor, group.id, **what)
    except LookupError:  # deleted at this moment
        abort(404)


def _group() -> Group:
    return named_groups.find(pages.uuid()) or abort(404)
