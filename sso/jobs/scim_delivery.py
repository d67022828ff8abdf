"""Send people to the applications that have a SCIM URL, one after the other for each of them.

What is sent is decided at that moment: the person as they are now. There is one worker for each
receiver at a time, so nothing is overtaken.
"""

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from flask import Flask, current_app

from sso import audit, clock
from sso.extensions import db
from sso.flow import scim_people
from sso.models import Client, ScimReceiver, ScimResource, User
from sso.models.provisioning import GROUP
from sso.process import program
from sso.services import provisioning
from sso.services.checks import Invalid
from sso.store import named_groups, scim_deliveries
from sso.store import provisioning as stored

if TYPE_CHECKING:
    from sso.provisioning import receiver as calls
else:
    calls = program.late_module("sso.provisioning.receiver")  # 25 MB

logger = logging.getLogger("sso.jobs")

SECONDS = 4.0  # for one receiver; then others have their turn, and lost access is looked for
AT_ONCE = 5  # people who are read together
LEASE = timedelta(seconds=90)  # the time above, and what all calls about one person may take
_LEAVING_PAUSE = timedelta(minutes=30)  # lost access is never given up
CREATED, ADOPTED, CHANGED = "created", "adopted", "changed"
_BROKEN = 500
_NOT_FOUND = "it has this user already, but does not find it"
DEACTIVATED, DELETED, NOTHING = "deactivated", "deleted", "nothing"


def note_changes() -> int:
    """Note who has changed, and whom new receivers should have, and commit; return how many."""
    count = provisioning.note_changes()
    db.session.commit()
    count += provisioning.scan()
    db.session.commit()
    return count


def deliver_due(*, is_failing: bool = False, client_id: str | None = None) -> int:
    """Send what is due, and commit; return how many people were sent.

    `is_failing`: to receivers that failed the last time; a job of their own keeps them from
    delaying the others. `client_id`: to the receiver of this client alone.
    """
    until = clock.now() + LEASE
    claimed = stored.claim(is_failing=is_failing, until=until, client_id=client_id)
    targets = [_target_of(receiver, client, until) for receiver, client in claimed]
    db.session.commit()
    if not targets:
        return 0
    app: Flask = current_app._get_current_object()  # type: ignore[attr-defined]  # Flask's own way
    with ThreadPoolExecutor(len(targets)) as pool:
        return sum(pool.map(partial(_serve_in, app), targets))


@dataclass(frozen=True)
class Target:
    """A receiver, with what is to be known about its client. `error`: it cannot be called.

    `until`: it is claimed until then.
    """

    client: Client
    until: datetime
    token: str
    error: str | None = None
    is_failing: bool = False


def _target_of(receiver: ScimReceiver, client: Client, until: datetime) -> Target:
    is_failing = receiver.failing_since is not None
    try:
        return Target(client, until, provisioning.token_of(receiver), is_failing=is_failing)
    except Invalid as error:
        return Target(client, until, "", str(error), is_failing)


def _serve_in(app: Flask, target: Target) -> int:
    with app.app_context(), audit.acting_as(audit.SYSTEM):
        try:
            return serve(target)
        except Exception:
            logger.exception("people are not sent to %s", target.client.client_id)
            return 0
        finally:
            db.session.rollback()
            stored.release(target.client.client_id, target.until)
            db.session.commit()


def serve(target: Target, seconds: float = SECONDS) -> int:
    """Send to a claimed receiver until nothing is due, time is up or it fails; commit."""
    client_id, until = target.client.client_id, time.monotonic() + seconds
    receiver, sent = None, 0
    while time.monotonic() < until:
        # After a failure one person at a time tells whether the receiver is back.
        due = stored.due(client_id, 1 if target.is_failing else AT_ONCE)
        people = stored.people([resource.subject_id for resource in due])
        groups = _groups_there(target.client)
        db.session.commit()
        db.session.expunge_all()  # no transaction waits for the receiver
        if not due:
            break
        receiver = receiver or calls.Receiver(target.client.scim_url or "", target.token)
        for resource in due:
            if not stored.is_claimed(client_id, target.until):
                return sent
            db.session.commit()
            try:
                if target.error:
                    raise calls.CallError(target.error, is_of_service=True)
                if resource.kind == GROUP:
                    with _groups_alone():
                        action = _send_group(receiver, target.client, resource)
                else:
                    user = people.get(resource.subject_id)
                    action = _send(receiver, target.client, resource, user, groups)
            except calls.CallError as error:
                _record_failure(resource, error)
                db.session.commit()
                if error.is_of_service:
                    return sent + 1
            else:
                _record_success(resource, action, receiver.last_status)
                db.session.commit()
            sent += 1
        if target.is_failing:
            break
    return sent


def _groups_there(client: Client) -> dict[str, str]:
    """Return the ids there of the groups that are sent, by their names here."""
    if not client.scim_groups:
        return {}
    names = client.named_groups
    there = stored.groups_there(client.client_id)
    return {name: there[name] for name in names if name in there}


def digest(fields: Mapping[str, Any]) -> str:
    """Return what identifies the state of a person that was sent."""
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def _send(
    receiver: Any,
    client: Client,
    resource: ScimResource,
    user: User | None,
    groups: Mapping[str, str],
) -> str:
    """Make a person at the receiver as they are here; return what was done. Raises `CallError`.

    `groups`: the ids of groups there, by their names here.
    """
    group_ids: set[str] = set()
    is_forced = resource.sent_digest is None
    if user is not None and provisioning.is_admitted(client, user):
        action = _send_active(receiver, client, resource, user)
        group_ids = {groups[name] for name in user.groups if name in groups}
    else:
        action = _send_leaving(receiver, client, resource, user)
    if client.scim_groups and resource.remote_id:
        is_changed = _send_memberships(receiver, resource, group_ids, is_forced=is_forced)
        return CHANGED if is_changed and action == NOTHING else action
    return action


def _send_memberships(
    receiver: Any, resource: ScimResource, group_ids: set[str], *, is_forced: bool
) -> bool:
    """Make a person a member of these groups there, and of no others that this server added them
    to; return whether anything was changed.

    `is_forced`: the person may have been removed there.
    """
    remote_id, sent = resource.remote_id, set(resource.sent_groups or ())
    if is_forced:
        sent -= group_ids
    if sent == group_ids:
        return False
    try:
        with _groups_alone():
            for group_id in sorted(sent - group_ids):
                receiver.remove_member(group_id, remote_id)
                sent.discard(group_id)
            for group_id in sorted(group_ids - sent):
                if receiver.add_member(group_id, remote_id):
                    sent.add(group_id)
                else:  # it is created again, and then its members are added
                    stored.mark_group_gone(resource.client_id, group_id)
    finally:
        stored.record(resource, sent_groups=sorted(sent))
        db.session.commit()
    return True


@contextmanager
def _groups_alone() -> Iterator[None]:
    """Say that groups are at fault, and let a service where they do not work get people."""
    try:
        yield
    except calls.CallError as error:
        is_of_service = error.is_of_service and error.status != _BROKEN
        raise calls.CallError(
            f"groups: {error}", error.status, is_of_service=is_of_service, pause=error.pause
        ) from None


def _send_group(receiver: Any, client: Client, resource: ScimResource) -> str:
    """Make a group at the receiver as it is here, without its members; return what was done."""
    group = named_groups.find(resource.subject_id)
    name = group.name if group else ""
    db.session.rollback()  # no transaction waits for the receiver
    if not client.scim_groups:
        return NOTHING
    if not name or name not in client.named_groups:
        if resource.remote_id is None or not client.scim_delete:
            return NOTHING
        receiver.delete_group(resource.remote_id)
        _forget_id(resource)
        return DELETED
    fields = scim_people.group_resource(resource.subject_id, name)
    state = {"name": name, "is_active": True, "sent_digest": digest(fields)}
    if resource.remote_id:
        if resource.sent_digest == state["sent_digest"]:
            return NOTHING
        if receiver.rename_group(resource.remote_id, name):
            stored.record(resource, **state)
            return CHANGED
        _forget_id(resource)
    # First of all: names of groups need not be unique there.
    found_id = receiver.find_group(fields)
    members = stored.members_there(client.client_id, name)
    db.session.rollback()
    remote_id = found_id or receiver.create_group(fields, list(members)[:1])
    _keep_id(resource, remote_id)
    stored.record(resource, **state)
    stored.mark_members(client.client_id, name)
    return ADOPTED if found_id else CREATED


def _send_active(receiver: Any, client: Client, resource: ScimResource, user: User) -> str:
    fields = scim_people.resource(user, client.scim_attributes)
    state = {"name": fields["userName"], "is_active": True, "sent_digest": digest(fields)}
    if resource.remote_id:
        if resource.sent_digest == state["sent_digest"] and resource.is_active:
            return NOTHING
        if receiver.replace(resource.remote_id, fields):
            stored.record(resource, **state)
            return CHANGED
        _forget_id(resource)
    remote_id = receiver.create(fields)
    if remote_id is not None:
        _keep_id(resource, remote_id)
        stored.record(resource, **state)
        return CREATED
    remote_id = receiver.find(fields)
    if remote_id is None:
        raise calls.CallError(_NOT_FOUND)
    _keep_id(resource, remote_id)
    if not receiver.replace(remote_id, fields):
        raise calls.CallError(_NOT_FOUND)
    stored.record(resource, **state)
    return ADOPTED


def _send_leaving(receiver: Any, client: Client, resource: ScimResource, user: User | None) -> str:
    fields = scim_people.resource(user, client.scim_attributes) if user else None
    # The answer to an attempt to create the account may have been lost.
    is_unsure = resource.remote_id is None and resource.last_fault
    if is_unsure and fields and (remote_id := receiver.find(fields)) is not None:
        _keep_id(resource, remote_id)
        resource.is_active = True
    if resource.remote_id is None:
        return NOTHING
    if client.scim_delete:
        receiver.delete(resource.remote_id)
        _forget_id(resource)
        return DELETED
    if not resource.is_active and resource.sent_digest:
        return NOTHING
    if receiver.deactivate(resource.remote_id, fields):
        stored.record(resource, is_active=False, sent_digest=digest({"active": False}))
        return DEACTIVATED
    _forget_id(resource)
    return NOTHING


def _keep_id(resource: ScimResource, remote_id: str) -> None:
    """Store an id at once: what follows may fail."""
    if not stored.keep_remote_id(resource, remote_id):
        raise calls.CallError("it answered with the id of somebody else")
    resource.remote_id = remote_id
    db.session.commit()


def _forget_id(resource: ScimResource) -> None:
    stored.record(resource, remote_id=None, is_active=False, sent_digest=None, sent_groups=None)
    resource.remote_id = resource.sent_digest = resource.sent_groups = None
    resource.is_active = False
    db.session.commit()


def _record_success(resource: ScimResource, action: str, status: int | None) -> None:
    now = clock.now()
    more: dict[str, Any] = {}
    if action != NOTHING:
        more = {"last_action": action}
        provisioning.note_sent(audit.SYSTEM, resource, action)
        scim_deliveries.record(resource, action=action, status=status, fault=None)
        stored.note_success(resource.client_id)
    stored.record(
        resource, next_attempt_at=None, attempted_at=now, delivered_at=now, last_fault=None,
        attempts=0, **more,
    )  # fmt: skip
    if action == DELETED or (action == NOTHING and resource.remote_id is None):
        stored.forget(resource)


def _record_failure(resource: ScimResource, error: Any) -> None:
    db.session.rollback()
    attempts, now = resource.attempts + 1, clock.now()
    again_at = stored.outbox.next_attempt(resource.created_at, attempts, now)
    if again_at is None and resource.is_leaving:
        again_at = now + _LEAVING_PAUSE
    fault = str(error)
    if again_at is None:
        provisioning.note_given_up(audit.SYSTEM, resource, fault)
    scim_deliveries.record(resource, action=None, status=error.status, fault=fault)
    if error.is_of_service:
        stored.note_failure(resource.client_id, fault, error.pause)
    elif error.status:
        stored.note_answer(resource.client_id)
    stored.record(
        resource, next_attempt_at=again_at, attempted_at=now, attempts=attempts, last_fault=fault
    )
    logger.warning(
        "%s is not sent to %s: %s; attempt %d, %s",
        resource.subject_id, resource.client_id, fault, attempts,
        f"again at {again_at:%Y-%m-%d %H:%M:%S}" if again_at else "given up",
    )  # fmt: skip


RUNS: tuple[tuple[str, Callable[[], int]], ...] = (
    ("note who is to be provisioned", note_changes),
    ("provision people", deliver_due),
    ("provision people where it failed", partial(deliver_due, is_failing=True)),
)
