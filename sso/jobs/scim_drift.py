"""What is different at an application's SCIM service, where people may have changed accounts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sso.extensions import db
from sso.flow import scim_people
from sso.models import Client, ScimReceiver, User
from sso.process import program
from sso.services import provisioning
from sso.store import provisioning as stored

if TYPE_CHECKING:
    from sso.provisioning import receiver as calls
else:
    calls = program.late_module("sso.provisioning.receiver")  # 25 MB

MISSING, INACTIVE, DIFFERENT = "missing", "inactive", "different"
STILL_ACTIVE, UNKNOWN = "still active", "unknown here"


@dataclass(frozen=True)
class Drift:
    """An account that is not as it should be. `subject_id`: `None` if nobody here has it.

    `fields`: the attributes that differ.
    """

    subject_id: UUID | None
    name: str
    kind: str
    fields: Sequence[str] = ()


def compare(client: Client, receiver: ScimReceiver) -> list[Drift]:
    """Compare all accounts there with the people here; nothing is changed.

    Raises `CallError`, and `Invalid` without the secret key of the token.
    """
    token = provisioning.token_of(receiver)
    db.session.rollback()  # no transaction waits for the receiver
    accounts = calls.Receiver(client.scim_url or "", token).every()
    return list(_drifts(client, {str(account.get("id")): account for account in accounts}))


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
