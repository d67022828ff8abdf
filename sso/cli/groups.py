"""`flask group`: groups, their members, and the applications that require them."""

from typing import Any

import click

from sso import audit
from sso.cli.commands import Failure, Group, confirm, json_option, yes_option
from sso.cli.output import print_json, print_line, print_record, print_table
from sso.cli.people import find_user, user_argument
from sso.extensions import db
from sso.models import Group as NamedGroup
from sso.process.program import COMMAND
from sso.services import agent_identity, group_editing, group_owners
from sso.store import apis, clients, groups, named_groups

group = Group("group", help="Groups of users.")
_SHOWN_MEMBERS = 50
_NAMED_MEMBERS = 2


@group.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List all groups, their members, and the applications and APIs that require them."""
    members_by_group = groups.members(_SHOWN_MEMBERS if as_json else _NAMED_MEMBERS)
    all_clients, all_apis = clients.every(), apis.every()
    nobody = groups.Members(0, [])
    required = {name for client in all_clients for name in client.groups}
    required |= {name for api in all_apis for name in api.groups}
    names = sorted(members_by_group.keys() | required | named_groups.names())
    rows = [
        (
            name,
            *members_by_group.get(name, nobody),
            [client for client in all_clients if name in client.groups],
            [api for api in all_apis if name in api.groups],
        )
        for name in names
    ]
    if as_json:
        print_json(
            [
                {
                    "name": name,
                    "members": count,
                    "first_members": [{"id": str(id_), "email": email} for id_, email in first],
                    "clients": [
                        {"client_id": client.client_id, "client_name": client.name}
                        for client in required_by
                    ],
                    "apis": [api.identifier for api in of_apis],
                }
                for name, count, first, required_by, of_apis in rows
            ]
        )
    else:
        print_table(
            ("GROUP", "MEMBERS", "WHO", "REQUIRED BY"),
            [
                (
                    name,
                    count or "NOBODY",
                    ", ".join(email for _, email in first) + (", …" if count > len(first) else ""),
                    ", ".join(
                        [agent_identity.label_of(client) for client in required_by]
                        + [api.name for api in of_apis]
                    ),
                )
                for name, count, first, required_by, of_apis in rows
            ],
            whole_last=True,
        )


@group.command("create")
@click.argument("name")
@json_option
def create(name: str, as_json: bool) -> None:
    """Create a group without members."""
    named_group = group_editing.create(audit.operator(), name)
    _done(named_group, as_json)


@group.command("rename")
@click.argument("name")
@click.argument("new_name")
@json_option
def rename(name: str, new_name: str, as_json: bool) -> None:
    """Rename a group, for its members and the applications that require it."""
    named_group = _find(name)
    changed, _ = group_editing.change(audit.operator(), named_group.id, name=new_name)
    _done(changed, as_json)


@group.command("delete")
@click.argument("name")
@yes_option
@json_option
def delete(name: str, yes: bool, as_json: bool) -> None:
    """Delete a group; its members lose it at once.

    An application that requires the group lets nobody in until its registration is changed.
    """
    named_group = _find(name)
    members = len(groups.all_members(name))
    confirm(f"Delete the group {name}, which has {members} members?", yes)
    group_editing.delete(audit.operator(), named_group.id)
    db.session.commit()
    if as_json:
        print_json({"id": str(named_group.id), "name": name, "deleted": True})
    else:
        print_line(f"Deleted {name}.")


@group.command("owners")
@click.argument("name")
@json_option
def owners(name: str, as_json: bool) -> None:
    """List the owners of a group, who manage its members in the browser."""
    _show_owners(_find(name), as_json)


@group.command("add-owner")
@click.argument("name")
@user_argument
@json_option
def add_owner(name: str, identifier: str, as_json: bool) -> None:
    """Let a user see, invite, add and remove the members of a group in the browser."""
    named_group, user = _find(name), find_user(identifier, exactly=True)
    group_owners.change(audit.operator(), named_group.id, added=[user.id])
    db.session.commit()
    _show_owners(named_group, as_json)


@group.command("remove-owner")
@click.argument("name")
@user_argument
@json_option
def remove_owner(name: str, identifier: str, as_json: bool) -> None:
    """Take a group from one of its owners, who stays a member if the user is one."""
    named_group, user = _find(name), find_user(identifier, exactly=True)
    _, former = group_owners.change(audit.operator(), named_group.id, removed=[user.id])
    if not former:
        raise Failure(f"{user.email} does not own the group {name}")
    db.session.commit()
    _show_owners(named_group, as_json)


def _show_owners(named_group: NamedGroup, as_json: bool) -> None:
    people = named_groups.owners(named_group.id)
    if as_json:
        print_json(
            {
                "id": str(named_group.id),
                "name": named_group.name,
                "owners": [{"id": str(user.id), "email": user.email} for user in people],
            }
        )
    elif people:
        print_table(
            ("OWNER", "NAME", "STATE"),
            [
                (user.email, user.name, "disabled" if user.is_disabled else "active")
                for user in people
            ],
        )
    else:
        print_line(f"Nobody owns the group {named_group.name}.")


def _find(name: str) -> NamedGroup:
    named_group = named_groups.find_by_name(name)
    if named_group is None:
        raise Failure(f"there is no group {name}; see: {COMMAND} group list")
    return named_group


def _done(named_group: NamedGroup, as_json: bool) -> None:
    db.session.commit()
    view: dict[str, Any] = {"id": str(named_group.id), "name": named_group.name}
    if as_json:
        print_json(view)
    else:
        print_record(view.items())
