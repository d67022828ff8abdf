"""What is different at an application's SCIM service, where people may have changed accounts or
groups."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sso.audit import Actor
from sso.extensions import db
from sso.flow import scim_people
from sso.models import Client, ScimReceiver, User
from sso.models.provisioning import GROUP, USER
from sso.process import program
from sso.services import provisioning
from sso.store import named_groups
from sso.store import provisioning as stored

if TYPE_CHECKING:
    from sso.provisioning import receiver as calls
else:
    calls = program.late_module("sso.provisioning.receiver")  # 25 MB

MISSING, INACTIVE, DIFFERENT = "missing", "inactive", "different"
STILL_ACTIVE, UNKNOWN = "still active", "unknown here"
ADDED, NOT_COMPARED = "added there", "not compared"
_LEFT_ALONE = (UNKNOWN, ADDED, NOT_COMPARED)


@dataclass(frozen=True)
class Drift:
    """An account or a group that is not as it should be. `subject_id`: `None` if it is of nobody
    here.

    `subject`: whether it is a person or a group. `fields`: the attributes that differ. `members`:
    of a group, the names of people who are missing there, or were added there; `member_ids` has
    those who are missing.
    """

    subject_id: UUID | None
    name: str
    kind: str
    fields: Sequence[str] = ()
    subject: str = USER
    members: Sequence[str] = ()
    member_ids: Sequence[UUID] = ()

    @property
    def is_repairable(self) -> bool:
        """Return whether `sync` repairs it."""
        return self.kind not in _LEFT_ALONE


def compare(client: Client, receiver: ScimReceiver) -> list[Drift]:
    """Compare all accounts there with the people here, and the groups that are sent; nothing is
    changed.

    Raises `CallError`, and `Invalid` without the secret key of the token.
    """
    token = provisioning.token_of(receiver)
    db.session.rollback()  # no transaction waits for the receiver
    service = calls.Receiver(client.scim_url or "", token)
    accounts = service.every()
    drifts = list(_drifts(client, {str(account.get("id")): account for account in accounts}))
    db.session.rollback()
    if client.scim_groups:
        drifts += _group_drifts(client, service)
    return drifts


def repair(actor: Actor, client_id: str, drifts: Sequence[Drift]) -> None:
    """Have all sent again that is not as it should be. Raises `LookupError`."""
    repairable = [drift for drift in drifts if drift.is_repairable and drift.subject_id]
    sent: dict[str, dict[UUID, str]] = {USER: {}, GROUP: {}}
    here: dict[str, dict[UUID, str]] = {USER: {}, GROUP: {}}
    for drift in repairable:
        assert drift.subject_id
        sent[drift.subject][drift.subject_id] = drift.name
        if drift.kind != STILL_ACTIVE:
            here[drift.subject][drift.subject_id] = drift.name
        sent[USER].update(dict.fromkeys(drift.member_ids, ""))
    for kind, names in here.items():
        stored.mark_due(client_id, names, kind)
    provisioning.repair(actor, client_id, sent[USER], sent[GROUP])


def _drifts(client: Client, accounts: dict[str, Mapping[str, Any]]) -> Iterator[Drift]:
    resources = stored.resources_of(client.client_id)
    by_external_id = {str(account.get("externalId")): id_ for id_, account in accounts.items()}
    by_name = {str(account.get("userName")).casefold(): id_ for id_, account in accounts.items()}
    for user in _admitted(client):
        resource = resources.pop(user.id, None)
        fields = scim_people.resource(user, client.scim_attributes)
        account_id = resource.remote_id if resource else None
        if account_id not in accounts:
            account_id = by_external_id.get(str(user.id)) or by_name.get(
                fields["userName"].casefold()
            )
        account = accounts.pop(account_id, None) if account_id else None
        if drift := _drift_of(user, fields, account):
            yield drift
    for resource in resources.values():
        account = accounts.pop(resource.remote_id or "", None)
        if account is not None and (account.get("active") is not False or client.scim_delete):
            yield Drift(resource.subject_id, resource.name, STILL_ACTIVE)
    for account in accounts.values():
        yield Drift(None, str(account.get("userName", "")), UNKNOWN)


def _admitted(client: Client) -> Iterator[User]:
    last = stored.FIRST
    while users := stored.admitted_after(client, last):
        yield from users
        last = users[-1].id
        db.session.expunge_all()


def _drift_of(
    user: User, fields: Mapping[str, Any], account: Mapping[str, Any] | None
) -> Drift | None:
    if account is None:
        return Drift(user.id, user.email, MISSING)
    if account.get("active") is False:
        return Drift(user.id, user.email, INACTIVE)
    names = scim_people.differences(fields, account)
    return Drift(user.id, user.email, DIFFERENT, names) if names else None


def _group_drifts(client: Client, service: Any) -> Iterator[Drift]:
    """Compare the groups that are sent, and who is in them."""
    there = {str(row.get("id")): row for row in service.every_group()}
    by_external_id = {str(row.get("externalId")): id_ for id_, row in there.items()}
    by_name = {str(row.get("displayName")).casefold(): id_ for id_, row in there.items()}
    resources = stored.resources_of(client.client_id, GROUP)
    names = {row.id: row.name for row in named_groups.of_names(client.named_groups)}
    people = {
        row.remote_id: row.name
        for row in stored.resources_of(client.client_id).values()
        if row.remote_id
    }
    for group_id, name in names.items():
        resource = resources.pop(group_id, None)
        remote_id = resource.remote_id if resource else None
        if remote_id not in there:
            remote_id = by_external_id.get(str(group_id)) or by_name.get(name.casefold())
        if remote_id is None:
            yield Drift(group_id, name, MISSING, subject=GROUP)
            continue
        expected = stored.members_there(client.client_id, name)
        db.session.rollback()  # no transaction waits for the receiver
        is_renamed = there[remote_id].get("displayName") != name
        try:
            members = service.members_of(remote_id)
        except calls.CallError as error:
            yield Drift(group_id, name, NOT_COMPARED, [str(error)], GROUP)
            members = expected.keys()
        missing = {expected[id_]: people.get(id_, "") for id_ in expected if id_ not in members}
        if is_renamed or missing:
            yield Drift(
                group_id, name, DIFFERENT, ["displayName"] * is_renamed, GROUP,
                sorted(missing.values()), tuple(missing),
            )  # fmt: skip
        if added := sorted(people[id_] for id_ in members if id_ in people and id_ not in expected):
            yield Drift(group_id, name, ADDED, subject=GROUP, members=added)
    for resource in resources.values():
        if resource.remote_id in there and client.scim_delete:
            yield Drift(resource.subject_id, resource.name, STILL_ACTIVE, subject=GROUP)
