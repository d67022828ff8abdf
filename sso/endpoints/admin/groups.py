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
from sso.endpoints.admin.forms import EndForm, GroupForm, InviteForm, MembersForm
from sso.flow import permissions
from sso.flow.decision import ENDS
from sso.flow.permissions import PEOPLE, Permission
from sso.i18n import N_
from sso.i18n.message import Message
from sso.models import Group, User
from sso.services import accounts, group_editing, group_owners
from sso.services.changes import Differences
from sso.services.checks import Invalid
from sso.store import apis, clients, named_groups, users
from sso.store import groups as memberships
from sso.web import routing
from sso.web.forms import PageForm

_WHILE = timedelta(minutes=10)
_MOST_NAMED = 10  # email addresses that nobody has


def _group() -> Group:
    """Return the group in the URL; end the view with 404 unless the visitor manages it."""
    return group_owners.find(access.staff().actor, admin_page.uuid()) or abort(404)


@dataclass(frozen=True)
class Membership:
    """A group, and one of its members."""

    group: Group
    user: User


def _membership() -> Membership:
    """Return the membership in the URL. Nobody else's name is shown to the owner of a group."""
    group, user = _group(), admin_page.person("user")
    if group.name not in user.groups:
        abort(404)
    return Membership(group, user)


def _ownership() -> Membership:
    group, user = _group(), admin_page.person("user")
    return Membership(group, user) if named_groups.owns(group.id, user.id) else abort(404)


def _delete(actor: Actor, group: Group, version: str) -> None:
    expected = {"version": int(version)} if version.isdecimal() and len(version) < 10 else None
    group_editing.delete(actor, group.id, expected=expected)


MEMBERSHIP = Resource(
    section="groups",
    page="group",
    query=lambda membership: {"id": str(membership.group.id)},
    find=_membership,
    name="membership",
    title=lambda membership: membership.group.name,
    actions={
        "remove": Action(
            label=N_("Remove from the group"),
            question=lambda membership: f"{membership.user.name} ({membership.user.email})",
            done=N_("The person is no longer in the group."),
            run=lambda actor, membership: group_owners.remove_member(
                actor, membership.group.id, membership.user.id
            ),
            ends=ENDS["group lost"],
            is_danger=True,
        )
    },
)
OWNERSHIP = Resource(
    section="groups",
    page="group_owners",
    query=lambda ownership: {"id": str(ownership.group.id)},
    find=_ownership,
    title=lambda ownership: ownership.group.name,
    actions={
        "remove": Action(
            label=N_("Remove the owner"),
            question=lambda ownership: f"{ownership.user.name} ({ownership.user.email})",
            done=N_("The person no longer owns the group."),
            run=lambda actor, ownership: group_owners.change(
                actor, ownership.group.id, removed=[ownership.user.id]
            ),
            is_danger=True,
        )
    },
    results={"added": N_("They own the group now.")},
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
            needs=permissions.GROUPS,
        )
    },
    results={
        "created": N_("The group was created."),
        "added": N_("They are in the group now."),
        "admitted": N_(
            "The person is in the group now. Someone without an account gets an invitation by "
            "email."
        ),
        "edited": N_("The changes were saved."),
        **MEMBERSHIP.done_texts,
    },
)


def groups() -> Response:
    """List all groups by name, or those that the visitor owns; a POST creates one."""
    staff, form = access.staff(), GroupForm()
    with Refusal() as refusal:
        if form.validate_on_submit():
            group = group_editing.create(staff.actor, form.name.data or "")
            return GROUP.done("created", group)
    order, text = named_groups.BY_NAME, admin_page.searched()
    statement = named_groups.containing(text)
    if not staff.may(Permission.GROUPS):
        statement = group_owners.managed_by(staff.actor, statement)
    listed = order.page(statement, admin_page.cursor(order))
    return GROUP.render(
        "admin/groups.html",
        groups=listed.rows,
        pages=admin_page.neighbours(listed),
        total=admin_page.total(order, statement),
        export_url=admin_page.url("groups_export", **({"q": text} if text else {})),
        members=_members(listed.rows),
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


def _members(groups: Sequence[Group]) -> dict[UUID, Total]:
    """Count the members of groups. A large number is kept until they change, or for a while."""
    counts = caching.cached_each(
        {group.name: ("members", group.id, group.version) for group in groups},
        _WHILE,
        lambda names: memberships.counts(names, MOST_COUNTED),
        lambda count: count > EXACT,
    )
    return {
        group.id: Total(min(counts[group.name], MOST_COUNTED), counts[group.name] > MOST_COUNTED)
        for group in groups
    }


def group() -> Response:
    """Show a group, its members and its applications; a POST adds members."""
    group = _group()
    is_staff = group_owners.is_staff_of(access.staff().actor, group)
    return _of_administrator() if is_staff else _of_owner()


def _of_owner() -> Response:
    """Show only the members of a group; a POST adds a person, or invites one."""
    group, form = _group(), InviteForm()
    with Refusal() as refusal:
        if form.validate_on_submit():
            routing.spend(access.staff().user.email)
            email, name = form.email.data or "", form.name.data or ""
            group_owners.add_member(access.staff().actor, group.id, email=email, name=name)
            return GROUP.done("admitted", group)
    if refusal.is_refused:
        group = _group()
    return _render_group("admin/group_owned.html", group, form, refusal)


def _render_group(
    template: str, group: Group, form: PageForm, refusal: Refusal, **more: Any
) -> Response:
    order, in_group = users.in_group(group.name)
    members = order.page(in_group, admin_page.cursor(order))
    return GROUP.render(
        template,
        group=group,
        members=members.rows,
        pages=admin_page.neighbours(members),
        total=admin_page.total(order, in_group),
        form=form,
        errors=refusal.errors,
        **more,
    )


def _of_administrator() -> Response:
    group, form = _group(), MembersForm()
    with Refusal() as refusal:
        if form.validate_on_submit():
            added = _people(form.addresses)
            group_editing.change(access.staff().actor, group.id, added=added, ends_at=form.end)
            return GROUP.done("added", group)
    if refusal.is_refused:
        group = _group()
        _people_again(form.addresses, refusal)
    return _render_group(
        "admin/group.html",
        group,
        form,
        refusal,
        **(_about(group) if access.staff().may(Permission.GROUPS) else {}),
        buttons=GROUP.buttons(group, "group_delete"),
    )


def _about(group: Group) -> dict[str, Any]:
    """Return what those do not see who manage only some groups."""
    return {
        "owners": named_groups.owners(group.id),
        "clients": [client for client in clients.every() if group.name in client.groups],
        "apis": apis.requiring(group.name),
    }


def owners() -> Response:
    """Show the owners of a group; a POST adds some."""
    group, form = _group(), MembersForm()
    with Refusal() as refusal:
        if form.validate_on_submit():
            added = _people(form.addresses)
            group_owners.change(access.staff().actor, group.id, added=added)
            return OWNERSHIP.done("added", Membership(group, access.staff().user))
    if refusal.is_refused:
        group = _group()
    return OWNERSHIP.render(
        "admin/group_owners.html",
        group=group,
        owners=named_groups.owners(group.id),
        form=form,
        errors=refusal.errors,
    )


def remove_owner() -> Response:
    """Ask, then remove an owner of a group."""
    return OWNERSHIP.act("remove")


def _people(addresses: Sequence[str]) -> list[UUID]:
    """Return the ids of the people with these email addresses. Raises `Invalid`.

    People whom those with limits do not see are not there for them.
    """
    ids, _ = users.existing(addresses, ())
    if not access.staff().may(Permission.GROUPS):
        visible = memberships.users(ids.values())
        ids = {user.email: user.id for user in visible if _is_visible(user)}
    missing = [address for address in addresses if address not in ids]
    if missing:
        raise Invalid([_missing(address) for address in missing[:_MOST_NAMED]])
    return list(ids.values())


def _is_visible(user: User) -> bool:
    return not PEOPLE.isdisjoint(access.staff().rights.over(user.groups))


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


def member() -> Response:
    """Edit when a membership ends."""
    return MEMBERSHIP.edit(
        "admin/group_member.html",
        form_of=lambda _: EndForm(),
        described=_described,
        save=_save_end,
    )


def _described(membership: Membership) -> dict[str, Any]:
    name = membership.group.name
    if name not in membership.user.groups:
        abort(404)
    return {"ends_at": (membership.user.group_ends or {}).get(name, "")}


def _save_end(
    actor: Actor, membership: Membership, changes: Differences, expected: dict[str, Any]
) -> None:
    ends = {membership.group.name: changes["ends_at"]["after"]}
    accounts.update(actor, membership.user.id, group_ends=ends)


def remove_member() -> Response:
    """Ask, then remove a user from a group."""
    return MEMBERSHIP.act("remove")


def delete() -> Response:
    """Ask, then delete a group."""
    return GROUP.act("delete")
