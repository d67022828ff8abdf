"""`flask group`: groups, their members, and the applications that require them."""

from sso.cli.commands import Group, json_option
from sso.cli.output import print_json, print_table
from sso.store import clients, groups

group = Group("group", help="Groups of users.")
_SHOWN_MEMBERS = 50
_NAMED_MEMBERS = 2


@group.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List all groups, their members, and the applications that require them."""
    found = groups.members(_SHOWN_MEMBERS if as_json else _NAMED_MEMBERS)
    every = clients.every()
    nobody = groups.Members(0, [])
    names = sorted(found.keys() | {name for client in every for name in client.groups})
    listed = [
        (name, *found.get(name, nobody), [one for one in every if name in one.groups])
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
                        {"client_id": one.client_id, "client_name": one.name} for one in required_by
                    ],
                }
                for name, count, first, required_by in listed
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
                    ", ".join(one.name for one in required_by),
                )
                for name, count, first, required_by in listed
            ],
            whole_last=True,
        )
