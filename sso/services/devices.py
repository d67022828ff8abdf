"""Approve or refuse a device that waits for a user (RFC 8628 §3.3)."""

from collections.abc import Sequence
from dataclasses import replace

from sso import audit, database
from sso.audit import Actor
from sso.audit.events import Event
from sso.flow import decision
from sso.flow.request import AuthorizationRequest
from sso.models import User
from sso.services import notifications, revocation
from sso.store import approvals, devices
from sso.store.clients import RegisteredClient
from sso.store.devices import WaitingDevice
from sso.store.sessions import ResourceOwner


@audit.acting
def approve(
    actor: Actor,
    user: User,
    owner: ResourceOwner,
    client: RegisteredClient,
    device: WaitingDevice,
    asked: AuthorizationRequest,
    allowed: Sequence[str],
    declined: Sequence[str],
) -> bool:
    """Approve a device: remember the consent, store the grant, and notify the user.

    Return False if the device was answered before or has expired, or if the client, the user or the
    session has changed since the page was shown. The caller then rolls back.
    """
    connection = database.session_connection()
    versions = approvals.Seen(client.updated_at, owner.user_seen, None)
    if not approvals.lock_in_order(
        connection, client.client_id, versions, user.id, owner.session_id
    ):
        return False
    given_at = revocation.remember_consent(actor, user.id, client.client_id, allowed, declined)
    asked = asked.without(frozenset(declined))
    grant_id = approvals.add_for_device(
        connection,
        replace(versions, consent=given_at),
        user_id=user.id,
        client_id=client.client_id,
        session_id=owner.session_id,
        sid=str(owner.session_id),
        auth_time=owner.auth_time,
        amr=owner.amr,
        **decision.granted(asked, owner.acr),
    )
    if grant_id is None or not devices.answer(connection, device.digest, grant_id):
        return False
    audit.own_event(
        Event.DEVICE_APPROVED,
        user.id,
        client=client.client_id,
        grant=grant_id,
        scope=audit.Uncut(asked.scope),
        program=device.program or None,
        requested_from=device.address,
    )
    notifications.device_added(user, client.name, device.program, device.address)
    return True


@audit.acting
def deny(actor: Actor, user: User, device: WaitingDevice) -> bool:
    """Refuse a device; return False if it was answered before or has expired."""
    if not devices.answer(database.session_connection(), device.digest, None):
        return False
    audit.own_event(
        Event.DEVICE_DENIED,
        user.id,
        client=device.client_id,
        program=device.program or None,
        requested_from=device.address,
    )
    return True
