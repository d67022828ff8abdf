"""Compares the file of `flask apply` with the database, and brings the one to the other.

Rows are changed as the plan is made, so that it tells every fault; what ends sessions or deletes
is kept for the end. Nothing here commits: a plan that is only looked at is rolled back.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from sso import clock
from sso.cli import declaration, registration
from sso.cli.declaration import METADATA, Entry
from sso.cli.references import ReferenceFault, resolve
from sso.cli.registration import RegistrationError
from sso.crypto import digests
from sso.models import Client, User
from sso.services import revocation
from sso.store import clients, grant_holders, grants, users

MIN_SECRET = 32
HIDDEN = "(by reference)"


@dataclass(frozen=True)
class Change:
    """One line of a plan; `fields` has before and after by name, never a secret."""

    action: str  # create, update, delete
    kind: str
    name: str
    fields: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    afterwards: tuple[Callable[[], None], ...] = ()
    id: str = ""


def plan(wanted: Mapping[str, list[Entry]], prune: bool) -> list[Change]:
    """What there is to change, with rows changed but not committed. Raises `RegistrationError`."""
    changes: list[Change] = []
    faults: list[str] = []
    for kind, entries in sorted(wanted.items()):
        make = _client if kind == "clients" else _user
        for entry in entries:
            name = entry[declaration.KINDS[kind][1]]
            try:
                change = make(entry)
            except RegistrationError as error:
                faults += [f"{kind} {name}: {fault}" for fault in error.faults]
            except ReferenceFault as error:
                faults.append(f"{kind} {name}: {error}")
            else:
                changes += [change] if change else []
        if prune:
            changes += _surplus(kind, entries)
    if faults:
        raise RegistrationError(faults)
    return changes


def finish(changes: Iterable[Change]) -> None:
    """End and delete what the plan says."""
    for change in changes:
        for step in change.afterwards:
            step()


def _client(entry: Entry) -> Change | None:
    client_id = entry["client_id"]
    row = clients.lock(client_id)
    before = declaration.of_client(row) if row else {}
    secret = _secret(entry)
    renewed = False
    if row is None:
        if secret is None:
            raise RegistrationError(["it is new: give secret = env:NAME or file:PATH"])
        row, _ = registration.register_client(
            name=entry.get("client_name", ""),
            redirect_uris=entry.get("redirect_uris", ()),
            client_id=client_id,
            secret=secret,
        )
    elif secret is not None and not digests.matches(secret, row.secret_digest):
        renewed = True
        clients.replace_secret(row, digests.digest(secret), None)
    registration.change_client(row, {k: entry[k] for k in METADATA if k in entry})
    row.first_party = entry.get("first_party", row.first_party)
    row.require_pkce = entry.get("require_pkce", row.require_pkce)
    row.require_mfa = entry.get("require_mfa", row.require_mfa)
    _switch(entry, row)
    more = {"secret": (HIDDEN, HIDDEN)} if renewed else {}
    change = _change("client", client_id, client_id, before, declaration.of_client(row), more)
    return _with(
        change,
        disabled=lambda: _if_disabled(
            row, lambda: grants.end_of_client(client_id, "client_disabled")
        ),
        groups=lambda: revocation.lost_memberships(grant_holders.with_grants_at(client_id), [row]),
    )


def _secret(entry: Entry) -> str | None:
    if "secret" not in entry:
        return None
    secret = resolve(entry["secret"])
    if len(secret) < MIN_SECRET:
        raise RegistrationError([f"its secret is shorter than {MIN_SECRET} characters"])
    return secret


def _user(entry: Entry) -> Change | None:
    user_id = UUID(entry["id"]) if "id" in entry else None
    row = (users.find(user_id) if user_id else None) or users.find_by_email(entry["email"])
    row = users.lock_any(row.id) if row else None
    if row and user_id and row.id != user_id:
        raise RegistrationError([f"this email address is that of another user, {row.id}"])
    before = declaration.of_user(row) if row else {}
    more = {}
    if row is None:
        password = entry.get("initial_password")
        # Nobody signs in without a password: a link to set one is mailed, this once.
        invited = password is None and not entry.get("disabled", False)
        more = {"invitation": (None, "by mail")} if invited else {}
        row = registration.create_user(
            email=entry["email"],
            name=entry.get("name", ""),
            password=None if password is None else resolve(password),
            user_id=user_id,
            invited=invited,
        )
    address = row.email
    claims = entry.get("claims")
    if claims is not None:  # those that the file lacks are taken away
        claims = {**dict.fromkeys(row.claims), **claims}
    registration.change_user(
        row,
        email=entry["email"],
        name=entry.get("name"),
        groups=entry.get("groups"),
        claims=claims,
    )
    kept = row.email_verified and row.email == address
    row.email_verified = entry.get("email_verified", kept)
    _switch(entry, row)
    after = declaration.of_user(row)
    if not before and user_id is None:
        del after["id"]  # made at random each time that a plan is made
    change = _change("user", row.email, str(row.id), before, after, more)
    return _with(
        change,
        disabled=lambda: _if_disabled(
            row, lambda: revocation.everything_of_user(row.id, "user_disabled")
        ),
        groups=lambda: revocation.lost_memberships([row], clients.every()),
    )


def _switch(entry: Entry, row: Client | User) -> None:
    """Disable or enable."""
    was = row.disabled_at is not None
    if entry.get("disabled", was) != was:
        row.disabled_at = None if was else clock.now()


def _if_disabled(row: Client | User, end: Callable[[], None]) -> None:
    if row.disabled_at is not None:
        end()


def _with(change: Change | None, **afterwards: Callable[[], None]) -> Change | None:
    """What follows from the fields that changed."""
    if change is None or change.action == "create":
        return change
    steps = [step for name, step in afterwards.items() if name in change.fields]
    return replace(change, afterwards=tuple(steps))


def _change(
    kind: str,
    name: str,
    row_id: str,
    before: Entry,
    after: Entry,
    more: Mapping[str, tuple[Any, Any]],
) -> Change | None:
    fields = {
        key: (before.get(key), after.get(key))
        for key in {**before, **after}
        if before.get(key) != after.get(key)
    } | dict(more)
    if not fields:
        return None
    return Change("update" if before else "create", kind, name, fields, id=row_id)


def _surplus(kind: str, entries: list[Entry]) -> list[Change]:
    if kind == "clients":
        kept = {entry["client_id"] for entry in entries}
        # Locked now: the users' rows come after those of all clients.
        surplus = [
            clients.lock_to_remove(row.client_id)
            for row in clients.every()
            if row.client_id not in kept
        ]
        return [
            Change(
                "delete", "client", row.client_id, afterwards=(_client_end(row),), id=row.client_id
            )
            for row in surplus
            if row
        ]
    addresses = {entry["email"].strip().lower() for entry in entries}
    ids = {UUID(entry["id"]) for entry in entries if "id" in entry}
    return [
        Change("delete", "user", row.email, afterwards=(_user_end(row),), id=str(row.id))
        for row in users.every()
        if row.id not in ids and row.email not in addresses
    ]


def _client_end(row: Client) -> Callable[[], None]:
    def end() -> None:
        grants.end_of_client(row.client_id, "client_deleted")
        clients.remove(row)

    return end


def _user_end(row: User) -> Callable[[], None]:
    def end() -> None:
        revocation.everything_of_user(row.id, "user_deleted")
        users.remove(row)

    return end
