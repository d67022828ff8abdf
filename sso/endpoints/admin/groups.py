"""Pages of groups, their members, and the applications that require them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from flask import abort
from werkzeug.wrappers import Response

from sso.audit import Actor
from sso.endpoints.admin import access, admin_page, caching, exports
from sso.endpoints.admin.actions import Action, Resource
from sso.endpoints.admin.admin_page import EXACT, MOST_COUNTED, Refusal, Total
from sso.endpoints.admin.forms import GroupForm, MembersForm
from sso.flow.decision import ENDS
from sso.i18n import N_
from sso.i18n.message import Message
from sso.models import Group, User
from sso.services import group_editing
from sso.services.changes import Differences
from sso.services.checks import Invalid
from sso.store import apis, clients, named_groups, users

_WHILE = timedelta(minutes=10)
_MOST_NAMED = 10  # email addresses that nobody has


def _group() -> Group:
    return named_groups.find(admin_page.uuid()) or abort(404)


@dataclass(frozen=True)
class Membership:
    """A group, and one of its members."""

    group: Group
    user: User


def _delete(actor: Actor, group: Group, version: str) -> None:
    expected = {"version": int(version)} if version.isdecimal() and len(version) < 10 else None
    group_editing.delete(actor, group.id, expected=expected)


MEMBERSHIP = Resource(
    section="groups",
    page="group",
    query=lambda membership: {"id": str(membership.group.id)},
    find=lambda: Membership(_group(), admin_page.person("user")),
    title=lambda membership: membership.group.name,
    actions={
        "remove": Action(
            label=N_("Remove from the group"),
            question=lambda membership: f"{membership.user.name} ({membership.user.email})",
            done=N_("The person is no longer in the group."),
            run=lambda actor, membership: group_editing.change(
                actor, membership.group.id, removed=[membership.user.id]
            ),
            ends=ENDS["group lost"],
            is_danger=True,
        )
    },
)
GROUP = Resource(
    section="groups",
    page="group",
    query=lambda group: {"id": str(group.id)},
    find=_group,
    name="group",
    title=lambda group: group.name,
    actions={
        "delete": Action(
            label=N_("Delete the group"),
            question=N_(
                "Its members lose it. Applications that require it let nobody in by it any more."
            ),
            done=N_("The group was deleted."),
            run=_delete,
            ends=ENDS["group lost"],
            version=lambda group: str(group.version),
            is_danger=True,
            is_removal=True,
        )
    },
    results={
        "created": N_("The group was created."),
        "added": N_("They are in the group now."),
        "edited": N_("The changes were saved."),
        **MEMBERSHIP.done_texts,
    },
)


def groups() -> Response:
    """List all groups by name; a POST creates one."""
    form = GroupForm()
    with Refusal() as refusal:
        if form.validate_on_submit():
            group = group_editing.create(access.staff().actor, form.name.data or "")
            return GROUP.done("created", group)
    order, text = named_groups.BY_NAME, admin_page.searched()
    listed = order.page(named_groups.containing(text), admin_page.cursor(order))
    return GROUP.render(
        "admin/groups.html",
        groups=listed.rows,
        pages=admin_page.neighbours(listed),
        total=admin_page.total(order, named_groups.containing(text)),
        export_url=admin_page.url("groups_export", **({"q": text} if text else {})),
        members={group.id: _members(group) for group in listed.rows},
        text=text,
        form=form,
        errors=refusal.errors,
    )


_EXPORTED = ("id", "name", "created", "changed")


def export() -> Response:
    """Export the groups that the search selects, as CSV."""
    rows = exports.rows(named_groups.BY_NAME, named_groups.containing(admin_page.searched()))
    return exports.send_table("groups", _EXPORTED, map(_line, rows))


def _line(group: Group) -> Sequence[object]:
    created, changed = exports.moment(group.created_at), exports.moment(group.updated_at)
    return group.id, group.name, created, changed


def _members(group: Group) -> Total:
    """Count the members of a group. A large number is kept until they change, or for a while."""

    def count() -> int:
        order, members = users.in_group(group.name)
        return order.total(members, MOST_COUNTED)

    counted = caching.cached(
        ("members", group.id, group.version), _WHILE, count, lambda count: count > EXACT
    )
    return Total(min(counted, MOST_COUNTED), counted > MOST_COUNTED)


def group() -> Response:
    """Show a group, its members and its applications; a POST adds members."""
    group, form = _group(), MembersForm()
    with Refusal() as refusal:
        if form.validate_on_submit():
            added = _people(form.addresses)
            group_editing.change(access.staff().actor, group.id, added=added)
            return GROUP.done("added", group)
    if refusal.is_refused:
        group = _group()
        _people_again(form.addresses, refusal)
    order, in_group = users.in_group(group.name)
    members = order.page(in_group, admin_page.cursor(order))
    return GROUP.render(
        "admin/group.html",
        group=group,
        members=members.rows,
        pages=admin_page.neighbours(members),
        total=admin_page.total(order, in_group),
        clients=[client for client in clients.every() if group.name in client.groups],
        apis=apis.requiring(group.name),
        form=form,
        errors=refusal.errors,
        buttons=GROUP.buttons(group, "group_delete"),
    )


def _people(addresses: Sequence[str]) -> list[UUID]:
    """Return the ids of the people with these email addresses. Raises `Invalid`."""
    ids, _ = users.existing(addresses, ())
    missing = [address for address in addresses if address not in ids]
    if missing:
        raise Invalid([_missing(address) for address in missing[:_MOST_NAMED]])
    return list(ids.values())


def _missing(address: str) -> Message:
    return Message("There is no person with the email address %(email)s.", email=address)


def _people_again(addresses: Sequence[str], refusal: Refusal) -> None:
    """Name those who were deleted at this moment."""
    try:
        _people(addresses)
    except Invalid as error:
        refusal.errors = error.errors


def rename() -> Response:
    """Rename a group, also for its members and applications."""
    return GROUP.edit(
        "admin/group_rename.html",
        form_of=lambda _: GroupForm(),
        described=lambda group: {"name": group.name},
        save=_save,
    )


def _save(actor: Actor, group: Group, changes: Differences, expected: dict[str, Any]) -> None:
    group_editing.change(actor, group.id, name=changes["name"]["after"], expected=expected)


def remove_member() -> Response:
    """Ask, then remove a user from a group."""
    return MEMBERSHIP.act("remove")


def delete() -> Response:
    """Ask, then delete a group."""
    return GROUP.act("delete")
