"""People at applications that keep accounts of their own: who is due there, and its receiver.

`jobs.scim_delivery` sends what is due; `provisioning.receiver` has the calls.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import UUID

from sso import audit, context
from sso.audit import Actor
from sso.audit.events import Event
from sso.config import urls
from sso.config.client_fields import FIELDS
from sso.crypto import secrets
from sso.crypto.secrets import InvalidToken
from sso.extensions import db
from sso.flow import scim_people
from sso.flow.permissions import Permission
from sso.i18n.message import Message
from sso.models import Client, ScimReceiver, ScimResource
from sso.models.provisioning import GROUP
from sso.process import program
from sso.services import attributes, roles
from sso.services.checks import Invalid, has_person
from sso.services.webhooks import is_for_commands
from sso.store import named_groups
from sso.store import provisioning as stored

if TYPE_CHECKING:
    from sso.provisioning import receiver as calls
else:
    calls = program.late_module("sso.provisioning.receiver")  # 25 MB

MAX_TOKEN = 4000  # characters
# Changes of a registration after which everybody is looked at again.
_ABOUT_PEOPLE = {
    *("scim_url", "scim_everyone", "scim_attributes", "scim_groups", "scim_delete", "groups"),
    *("roles", "own_claims"),  # which name groups
}


def client_errors(metadata: Mapping[str, Any], before: Mapping[str, Any]) -> Iterable[Message]:
    """Yield why an application cannot be provisioned like this."""
    entries, earlier = (of.get("scim_attributes", []) for of in (metadata, before))
    yield from scim_people.errors(entries)
    yield from attributes.unknown_in(entries, earlier)
    if "scim_url" not in metadata:
        return
    if not has_person(metadata):
        yield Message("nobody signs in to the application, so nobody can be provisioned there")
    elif not metadata.get("groups") and not metadata.get("scim_everyone"):
        yield Message(
            "everybody may use the application: require a group, or provision everybody",
            for_commands="everybody may use the application: require a group, or give "
            f"{FIELDS['scim_everyone'].flag}",
        )


def require_may_call(actor: Actor, url: str | None, before: str | None = None) -> None:
    """Raise `Invalid` if only commands on this machine may set such a URL, or if a program lacks
    the scope to read users.

    Raises `NotAllowed` if the actor may not see people, because all who are sent there would be
    seen.
    """
    if not url or url == before:
        return
    roles.require(actor, Permission.READ_PEOPLE)
    if not actor.reads_people:
        raise Invalid([Message("the SCIM URL of a program needs the scope scim:read")])
    if urls.strict_url_error(url) is None and is_for_commands(actor, url):
        reason = Message("it is not https (http is for commands on this machine)")
        raise Invalid([urls.refused(Message("the SCIM URL"), url, reason)])


def keep(client: Client, changes: Iterable[str], former_url: str | None = None) -> None:
    """Keep the receiver of a client whose registration is new, or has these changes.

    Another URL is another service: nothing is known about people there. Another origin does not get
    the token.
    """
    receiver, url = stored.find(client.client_id), client.scim_url
    if url is None:
        if receiver:
            stored.remove(client.client_id)
    elif receiver is None:
        stored.add(client.client_id)
    elif _ABOUT_PEOPLE & {*changes}:
        if former_url and former_url != url:
            stored.forget_people(client.client_id)
            _reset(client.client_id)
            if urls.origin(former_url) != urls.origin(url):
                stored.change(client.client_id, sealed_token=None)
        stored.start_scan(client.client_id)


def _reset(client_id: str) -> None:
    """Reset the count of failures; a worker that sends at this moment stops."""
    stored.change(
        client_id, failing_since=None, failures=0, retry_at=None, last_fault=None,
        claimed_until=None,
    )  # fmt: skip


def token_of(receiver: ScimReceiver) -> str:
    """Decrypt the token of a receiver; "" is none. Raises `Invalid` without its secret key."""
    if receiver.sealed_token is None:
        return ""
    try:
        return secrets.decrypt_scim_token(context.settings().secret_keys, receiver.sealed_token)
    except InvalidToken:
        raise Invalid([Message("SSO_SECRET_KEY does not decrypt the SCIM token")]) from None


@audit.acting
def set_token(actor: Actor, client_id: str, token: str | None) -> None:
    """Set the bearer token that a receiver requires; `None` removes it.

    Raises `LookupError`, `Invalid` and, as all of these, `NotAllowed` if the helpdesk asks.
    """
    roles.require_reach_client(actor, client_id)
    if stored.find(client_id) is None:
        raise LookupError(client_id)
    sealed = None
    if token is not None:
        # RFC 6750 §2.1; other characters could end the header.
        if not 0 < len(token) <= MAX_TOKEN or not all("!" <= char <= "~" for char in token):
            raise Invalid(
                [
                    Message(
                        "the SCIM token is no text of 1 to %(most)d ASCII characters without "
                        "spaces",
                        most=MAX_TOKEN,
                    )
                ]
            )
        sealed = secrets.encrypt_scim_token(context.settings().secret_keys, token)
    stored.change(client_id, sealed_token=sealed)
    _reset(client_id)
    what = "token" if token else "no token"
    audit.event(Event.PROVISIONING_TOKEN_CHANGED, by=actor.by, client=client_id, what=what)


@audit.acting
def ping(actor: Actor, client: Client) -> str | None:
    """Ask the receiver of a client for one person; return what is wrong, or `None`.

    It takes as long as the receiver does, up to 8 seconds: end the transaction before. Raises
    `LookupError`, and `Invalid` without the secret key of its token.
    """
    roles.require_reach_client(actor, client.client_id)
    receiver = stored.find(client.client_id)
    if receiver is None or client.scim_url is None:
        raise LookupError(client.client_id)
    token = token_of(receiver)
    db.session.rollback()
    fault = None
    try:
        calls.Receiver(client.scim_url, token).test()
    except calls.CallError as error:
        fault = str(error)
    audit.event(
        Event.PROVISIONING_TESTED, by=actor.by, client=client.client_id, fault=fault,
        host=urlsplit(client.scim_url).netloc,
    )  # fmt: skip
    return fault


@audit.acting
def retry(actor: Actor, resource_id: UUID) -> ScimResource:
    """Send a person again now who was given up or waits. Raises `LookupError`."""
    resource = stored.lock_resource(resource_id)
    if resource is None:
        raise LookupError(resource_id)
    roles.require_reach_client(actor, resource.client_id)
    stored.mark_resource_again(resource)
    stored.change(resource.client_id, retry_at=None)
    about = _about(resource)
    audit.event(Event.PROVISIONING_RETRIED, by=actor.by, client=resource.client_id, **about)
    db.session.refresh(resource)
    return resource


@audit.acting
def repair(
    actor: Actor, client_id: str, user_ids: Collection[UUID], group_ids: Collection[UUID] = ()
) -> None:
    """Have people and groups sent again that are not at the receiver as they are here.

    Raises `LookupError`.
    """
    if stored.find(client_id) is None:
        raise LookupError(client_id)
    stored.mark_again(client_id, group_ids, GROUP)
    stored.mark_again(client_id, user_ids)
    stored.change(client_id, retry_at=None)
    count = len(user_ids) + len(group_ids)
    audit.event(Event.PROVISIONING_REPAIRED, by=actor.by, client=client_id, count=count)


def note_changes() -> int:
    """Note for each receiver who has changed since the last call; return how many."""
    user_ids = stored.take_changes()
    if not user_ids:
        return 0
    people = stored.people(user_ids)
    for receiver in stored.every():
        client = db.session.get(Client, receiver.client_id)
        if client is None:
            continue
        admitted = {id_: people[id_].email for id_ in people if is_admitted(client, people[id_])}
        stored.mark_due(client.client_id, admitted)
        stored.mark_leaving(client.client_id, [id_ for id_ in user_ids if id_ not in admitted])
    return len(user_ids)


def scan() -> int:
    """Look at some of the people whom a receiver should have; return how many.

    It goes on where it was, so that it can be interrupted.
    """
    count = 0
    for receiver in stored.scanning():
        client = db.session.get(Client, receiver.client_id)
        if client is None or receiver.scan_after is None:
            continue
        if client.scim_groups and receiver.scan_after == stored.FIRST:
            rows = named_groups.of_names(client.named_groups)
            stored.mark_due(client.client_id, {row.id: row.name for row in rows}, GROUP)
        users = stored.admitted_after(client, receiver.scan_after)
        stored.mark_due(client.client_id, {user.id: user.email for user in users})
        last = users[-1].id if len(users) == stored.AT_ONCE else None
        stored.change(client.client_id, scan_after=last)
        count += len(users)
    return count


def is_admitted(client: Client, user: Any) -> bool:
    """Return whether a user is to be at the receiver of a client; see `store.admitted`."""
    if user.is_disabled or user.email.endswith(f"@{urls.DOCTOR_DOMAIN}"):
        return False
    return client.admits(user.groups) if client.groups else client.scim_everyone


def _about(resource: ScimResource) -> dict[str, UUID]:
    """Return the field of events that says whom a resource is about."""
    return {"group" if resource.kind == GROUP else "user": resource.subject_id}


@audit.acting
def note_sent(actor: Actor, resource: ScimResource, action: str) -> None:
    """Record in the audit trail what was done at a receiver."""
    audit.event(Event.PROVISIONED, client=resource.client_id, what=action, **_about(resource))


@audit.acting
def note_given_up(actor: Actor, resource: ScimResource, fault: str) -> None:
    """Record in the audit trail that a person or a group is not at a receiver as here."""
    client_id, about = resource.client_id, _about(resource)
    audit.event(Event.PROVISIONING_FAILED, client=client_id, fault=fault, **about)
