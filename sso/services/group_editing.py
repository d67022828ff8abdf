"""Groups: create, rename and delete them, and change their members."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy.exc import IntegrityError

from sso import audit, clock
from sso.audit import Actor
from sso.audit.events import Event
from sso.extensions import db
from sso.flow import own_claims, role_claims
from sso.flow.permissions import Permission
from sso.i18n.message import Message
from sso.models import Api, Client, Group
from sso.services import accounts, api_tokens, apis, attributes, checks, clients, revocation, roles
from sso.services import changes as differences
from sso.services.changes import ListEdit, Outcome
from sso.services.checks import Invalid, Rule
from sso.store import clients as stored_clients
from sso.store import groups as memberships
from sso.store import named_groups
from sso.store.groups import Member, NewGroups

MOST_MEMBERS = 5000  # added at once
MOST_GROUPS = 1000  # of one member: directories have more of them than a list here may hold


@audit.acting
def create(
    actor: Actor, name: str, *, external_id: str | None = None, members: Collection[UUID] = ()
) -> Group:
    """Create a group. Raises `Invalid` and `NotAllowed`."""
    roles.require_may_change(actor, [[name]])
    memberships.lock_users(members)  # see `named_groups.lock`
    group = Group(name=name, external_id=external_id)
    _check_name(group, name)
    _flush(group)
    audit.event(Event.GROUP_CREATED, by=actor.by, group=group.id, name=name)
    if members:
        _edit_members(actor, group, added=members)
    return group


@audit.acting
def change(
    actor: Actor,
    group_id: UUID,
    *,
    name: str | None = None,
    provisioned: Mapping[str, str | None] | None = None,
    added: Collection[UUID] = (),
    removed: Collection[UUID] = (),
    whole: Collection[UUID] | None = None,
    ends_at: str = "",
    expected: Mapping[str, Any] | None = None,
) -> tuple[Group, Outcome]:
    """Change a group; `whole` replaces all members. Access that is lost ends at once.

    A new name also applies to the members, and to the clients and APIs that require the group.
    `ends_at`: when the membership of those who are added, and of members among them, ends.
    `provisioned` may have an `external_id`. `expected`: name, external_id or version, as shown to
    the operator. Raises `LookupError`, `Invalid`, `NotAllowed` and `Changed`.
    """
    user_ids = {*added, *removed, *(whole or ())}
    attributes.hold(name is not None)  # before the clients whose own claims name the group
    group = _locked(
        group_id, expected, user_ids, with_members=name is not None or whole is not None
    )
    new_name = None if name == group.name else name
    roles.require_may_edit_group(actor, group.name, new_name=new_name)
    if provisioned:
        roles.require(actor, Permission.GROUPS)
    roles.require_may_change(actor, [[group.name, name or ""]])
    before = _described(group)
    if name is not None and name != group.name:
        _rename(actor, group, name)
    if provisioned:
        group.external_id = provisioned.get("external_id", group.external_id)
    if whole is not None:
        current = {member.id for member in memberships.all_members(group.name)}
        added, removed = set(whole) - current, current - set(whole)
    if _edit_members(actor, group, added, removed):
        group.version += 1
    for user_id in sorted(added) if ends_at.strip() else ():
        accounts.update(actor, user_id, group_ends={group.name: ends_at})
    changes = differences.between(before, _described(group))
    if changes:
        group.version += 1
        names = " ".join(changes)
        audit.event(
            Event.GROUP_CHANGED, by=actor.by, group=group.id, name=group.name, what=names,
            changes=changes,
        )  # fmt: skip
    if changes or db.session.is_modified(group):
        group.updated_at = clock.now()
    db.session.flush()
    return group, Outcome(changes)


@audit.acting
def delete(actor: Actor, group_id: UUID, *, expected: Mapping[str, Any] | None = None) -> None:
    """Delete a group. Its members lose it; a client that requires it admits nobody.

    `expected`: see `change`. Raises `LookupError`, `NotAllowed` and `Changed`.
    """
    group = _locked(group_id, expected, with_members=True)
    roles.require_may_change(actor, [[group.name]])
    _edit_members(
        actor, group, removed={member.id for member in memberships.all_members(group.name)}
    )
    named_groups.remove(group)
    audit.event(Event.GROUP_DELETED, by=actor.by, group=group.id, name=group.name)


def _locked(
    group_id: UUID,
    expected: Mapping[str, Any] | None,
    user_ids: Collection[UUID] = (),
    *,
    with_members: bool = False,
) -> Group:
    group = named_groups.lock(group_id, user_ids, with_members=with_members)
    if group is None:
        raise LookupError(group_id)
    differences.require_unchanged(expected, {**_described(group), "version": group.version})
    return group


def _described(group: Group) -> dict[str, Any]:
    return {"name": group.name, "external_id": group.external_id}


def _check_name(group: Group, name: str) -> None:
    errors = checks.group_errors([name], ())
    other = None if errors else named_groups.find_by_name(name)
    if other and other is not group:
        errors.append(_taken(name))
    if errors:
        raise Invalid(errors)


def _taken(name: str) -> Message:
    return Message(
        "there is already a group with the name %(name)s", name=name, code=Rule.ALREADY_EXISTS
    )


def _flush(group: Group) -> None:
    name = group.name
    try:
        named_groups.add(group)
    except IntegrityError:  # another process was quicker
        db.session.rollback()
        raise Invalid([_taken(name)]) from None


def _rename(actor: Actor, group: Group, name: str) -> None:
    """Rename a group, first for its members: otherwise the clients' change would end access.

    An API that kept the old name would admit the members of another group that gets it.
    """
    _check_name(group, name)
    old = group.name
    requiring = named_groups.lock_requiring(old)
    members = memberships.lock_members(memberships.all_members(old))
    _replace(actor, members, ListEdit(added=(name,), removed=(old,)), {old: name})
    group.name = name
    _flush(group)
    edit = ListEdit(added=(name,), removed=(old,))
    for client_id in requiring.client_ids:
        if client := stored_clients.find(client_id):
            clients.change(actor, client_id, {}, lists=_renamed(client, edit, old, name))
    for api in requiring.apis:
        apis.change(actor, api.api_id, {}, lists=_renamed(api, edit, old, name))


def _renamed(holder: Client | Api, edit: ListEdit, old: str, name: str) -> dict[str, ListEdit]:
    """Return the edits of a client or an API after a group was renamed."""
    lists = {"groups": edit} if old in holder.groups else {}
    if old in role_claims.groups_in(holder.roles):
        lists["roles"] = ListEdit(whole=tuple(role_claims.renamed(holder.roles, old, name)))
    if isinstance(holder, Client) and old in own_claims.groups_in(holder.own_claims):
        entries = own_claims.renamed(holder.own_claims, old, name)
        lists["own_claims"] = ListEdit(whole=tuple(entries))
    return lists


def _edit_members(
    actor: Actor, group: Group, added: Collection[UUID] = (), removed: Collection[UUID] = ()
) -> bool:
    """Add and remove members; return whether anything changed. Raises `Invalid`."""
    added, removed = set(added), set(removed)
    if len(added) > MOST_MEMBERS:
        raise Invalid([Message("more than %(most)d members are added at once", most=MOST_MEMBERS)])
    members = _settled(actor, memberships.lock_users(added | removed), group.name)
    user_ids = {member.id for member in members}
    if unknown_ids := [user_id for user_id in added if user_id not in user_ids]:
        raise Invalid([Message("there is no user %(name)s", name=str(unknown_ids[0]))])
    joining = [
        member for member in members if member.id in added and group.name not in member.groups
    ]
    leaving = [member for member in members if member.id in removed and group.name in member.groups]
    if full := [member.id for member in joining if len(member.groups) >= MOST_GROUPS]:
        raise Invalid(
            [
                Message(
                    "the user %(name)s is in %(most)d groups already",
                    name=str(full[0]),
                    most=MOST_GROUPS,
                )
            ]
        )
    for member in joining:
        roles.require_may_join(actor, member.present_groups, group.name)
    _replace(actor, joining, ListEdit(added=(group.name,)))
    _replace(actor, leaving, ListEdit(removed=(group.name,)))
    if leaving:
        ids = [member.id for member in leaving]
        requiring = [client for client in stored_clients.every() if group.name in client.groups]
        if requiring:
            revocation.end_lost_access(memberships.users(ids), requiring)
    return bool(joining or leaving)


def _settled(actor: Actor, members: Sequence[Member], name: str) -> Sequence[Member]:
    """Remove members whose membership has ended: whom an operator adds again is a new member."""
    ended = [member for member in members if name in member.groups and not member.is_in(name)]
    if not ended:
        return members
    for user in memberships.users({member.id for member in ended}):
        accounts.settle(actor, user)
    return memberships.lock_members(members)


def _is_admin(member: Member) -> bool:
    return roles.role_of(member.groups) == roles.ADMIN


def _moved(
    ends: Mapping[str, str] | None, groups: Collection[str], names: Mapping[str, str]
) -> dict[str, str]:
    """Return the ends of memberships of these groups. `names`: new names of groups."""
    moved = {names.get(name, name): end for name, end in (ends or {}).items()}
    return {name: end for name, end in moved.items() if name in groups}


def _told(member: Member, groups: Collection[str], names: Mapping[str, str]) -> dict[str, str]:
    """Return the ends that a member was told of, and those that hold (`User.ended_groups`)."""
    told, ends = member.group_ends_told or {}, member.group_ends or {}
    ended = {name: end for name, end in told.items() if name not in {*member.groups, *groups}}
    current = {name: end for name, end in told.items() if ends.get(name) == end}
    return ended | _moved(current, groups, names)


def _replace(
    actor: Actor,
    members: Iterable[Member],
    edit: ListEdit,
    names: Mapping[str, str] | None = None,
) -> None:
    """Edit the groups of members in one statement. `names`: see `_moved`.

    Raises `NotAllowed`.
    """
    edited = [(member, edit.applied_to(member.groups)) for member in members]
    roles.require_may_change(
        actor, (groups for member, after in edited for groups in (member.groups, after))
    )
    not_admins = [member for member, after in edited if roles.role_of(after) != roles.ADMIN]
    demoted = [member.id for member in not_admins if _is_admin(member)]
    roles.keep_administrators(actor, memberships.users(demoted))
    api_tokens.end_of(actor, demoted, "owner_lost_role")
    memberships.replace_groups(
        {
            member.id: NewGroups(
                after,
                _moved(member.group_ends, after, names or {}),
                _told(member, after, names or {}),
            )
            for member, after in edited
        }
    )
    for member, after in edited:
        change = differences.of_field("groups", member.groups, after)
        audit.event(
            Event.USER_CHANGED,
            by=actor.by,
            user=member.id,
            what="groups",
            changes={"groups": change},
        )
