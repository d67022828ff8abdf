"""Changes clients and users from the command line, and records what changed.

Each function locks its row first, so that of two commands at the same time neither undoes what the
other did. Nothing here commits.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sso import audit
from sso.audit.events import Event
from sso.cli import declaration, differences, registration
from sso.cli.differences import Outcome
from sso.cli.lists import ListEdit
from sso.extensions import db
from sso.models import Client, User
from sso.services import revocation
from sso.store import clients, grant_holders, users


def update_client(
    client_id: str,
    metadata: Mapping[str, Any],
    lists: Mapping[str, ListEdit],
    switches: Mapping[str, bool],
) -> tuple[Client, Outcome]:
    """Change a client. Raises `LookupError` if there is none, and `RegistrationError`."""
    client = clients.lock(client_id)
    if client is None:
        raise LookupError(client_id)
    before = declaration.of_client(client)
    wanted, notes = dict(metadata), []
    for name, edit in lists.items():
        current = before.get(name, [])
        listed = current.split() if isinstance(current, str) else current
        edited = edit.applied_to(listed)
        wanted[name] = " ".join(edited) if name == "scope" else edited
        notes += [f"{name}: {one}" for one in edit.without_effect(listed)]
    registration.change_client(client, wanted)
    for name, value in switches.items():
        setattr(client, name, value)
    changes = differences.between(before, declaration.of_client(client))
    if "groups" in changes:
        notes.append(_who_may_use(client))
        revocation.lost_memberships(grant_holders.with_grants_at(client_id), [client])
    if changes:
        audit.event(Event.CLIENT_CHANGED, client=client_id, what=" ".join(changes), changes=changes)
    db.session.flush()
    return client, Outcome(changes, notes)


def update_user(
    user_id: UUID,
    *,
    email: str | None = None,
    name: str | None = None,
    email_verified: bool | None = None,
    groups: ListEdit | None = None,
    claims: Mapping[str, Any] | None = None,
) -> tuple[User, Outcome]:
    """Change a user. Raises `LookupError` if there is none, and `RegistrationError`."""
    user = users.lock_any(user_id)
    if user is None:
        raise LookupError(user_id)
    before = declaration.of_user(user)
    registration.change_user(
        user,
        email=email,
        name=name,
        groups=groups.applied_to(before["groups"]) if groups else None,
        claims=claims,
    )
    if email_verified is not None:
        user.email_verified = email_verified
    elif user.email != before["email"]:
        user.email_verified = False
    changes = differences.between(before, declaration.of_user(user))
    if "groups" in changes:
        revocation.lost_memberships([user], clients.every())
    if changes:
        audit.event(Event.USER_CHANGED, user=user.id, what=" ".join(changes), changes=changes)
    db.session.flush()
    notes = groups.without_effect(before["groups"]) if groups else []
    return user, Outcome(changes, [f"groups: {one}" for one in notes])


def _who_may_use(client: Client) -> str:
    """The first group shuts people out, and without the last one everybody is let in."""
    if client.groups:
        return f"Only members of {' or '.join(client.groups)} may use it."
    return "No group is left: everybody may use it."
