"""Upkeep: delete expired rows, reencrypt secrets, and recheck upstream sign-ins.

Expired rows are deleted in batches short enough that other requests do not wait. Reencryption
replaces a row only if it still has the text that was read, so that no concurrent change is lost.
Rows that use the newest secret key are skipped: the work can be interrupted and started again at
any time. Providers and directories are asked whether users who signed in through them may still
sign in.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from sso import audit, clock, context
from sso.audit.events import Event
from sso.config.upstream.ldap import LdapProvider
from sso.config.upstream.oidc import OidcProvider
from sso.crypto import keys, secrets
from sso.extensions import db
from sso.ldap.directory import NotAllowed
from sso.mfa import totp
from sso.models import KeyState
from sso.services import accounts, program_secrets
from sso.services import identities as linking
from sso.store import (
    client_work,
    expired,
    factors,
    identities,
    outbox,
    provisioning,
    sessions,
    webhooks,
)
from sso.store import keys as stored_keys
from sso.upstream import ldap, oidc
from sso.upstream.identity import UpstreamIdentity, UpstreamUnavailable

PURGE_BATCH = 200  # rows deleted in one transaction
MOST_STAYING = 50_000  # rows of a table that one purge of the worker examines in vain
# Between two batches others have the database to themselves for twice as long as the batch took:
# SQLite has one writer at a time. Seconds.
SHORTEST_PAUSE, LONGEST_PAUSE = 0.005, 0.5


Places = dict[int, Any]
"""The row that the next purge begins after, by the position of the rule; see `Piecewise`."""


def batches(
    size: int = PURGE_BATCH,
    expiries: Sequence[expired.Expiry] = expired.EXPIRIES,
    places: Places | None = None,
) -> Iterator[tuple[str, int]]:
    """Delete expired rows in batches; yield the table and the number of rows after each commit.

    It pauses before the next batch. It can be stopped at any point: a new purge finds the rest.
    With `places`, it ends at `MOST_STAYING` rows that stay, and notes where.
    """
    for number, expiry in enumerate(expiries):
        is_in_parts = places is not None and expiry.many_stay
        last, stayed = (_place(expiry, number, places or {}) if is_in_parts else None), 0
        while True:
            began = time.monotonic()
            batch = expired.delete_batch(expiry, last, size)
            db.session.commit()
            took = time.monotonic() - began
            last, stayed = batch.last, stayed + batch.stayed
            if is_in_parts and places is not None:
                places[number] = last
            yield expiry.name, batch.deleted
            if batch.deleted:
                time.sleep(min(max(2 * took, SHORTEST_PAUSE), LONGEST_PAUSE))
            if last is None or (is_in_parts and stayed >= MOST_STAYING):
                break


def _place(expiry: expired.Expiry, number: int, places: Places) -> Any:
    """Return the row to begin after: where the purge before ended, or at first, somewhere."""
    return places[number] if number in places else expired.somewhere(expiry, MOST_STAYING)


def purge(size: int = PURGE_BATCH, report: Callable[[int], None] | None = None) -> dict[str, int]:
    """Delete all expired rows; return their number by table."""
    counts = dict.fromkeys((expiry.name for expiry in expired.EXPIRIES), 0)
    for name, deleted in batches(size):
        counts[name] += deleted
        if report:
            report(deleted)
    return counts


class Piecewise:
    """A purge for the worker: each call deletes one batch and returns the number of rows.

    It returns 0 at the end of the purge; the next call begins a new one. Of a table most of whose
    rows stay, such as grants in use, each purge examines a part, and the next one goes on from
    there: what a purge costs does not grow with the table.
    """

    def __init__(self, expiries: Sequence[expired.Expiry] = expired.EXPIRIES) -> None:
        self._expiries = expiries
        self._batches: Iterator[tuple[str, int]] | None = None
        self._places: Places = {}

    def __call__(self) -> int:
        # A batch that raises ends its purge: the next call begins a new one.
        purge, self._batches = self._batches or self._begun(), None
        for _, deleted in purge:
            if deleted:
                self._batches = purge
                return deleted
        return 0

    def _begun(self) -> Iterator[tuple[str, int]]:
        return batches(expiries=self._expiries, places=self._places)


REENCRYPTION_BATCH = 100


class ReencryptionCount(NamedTuple):
    """The number of reencrypted rows, and the rows that no secret key decrypts."""

    changed: int
    unreadable: tuple[str, ...] = ()


def reencrypt_signing_keys() -> ReencryptionCount:
    """Encrypt the private keys with the newest secret key, and commit."""
    changed, unreadable = 0, []
    for row in stored_keys.every_signing_key():
        try:
            text = keys.reencrypt(context.settings().secret_keys, row)
        except secrets.InvalidToken:
            if row.state != KeyState.RETIRED:  # of retired keys only the public half is used
                unreadable.append(row.kid)
        else:
            before = row.sealed_private_jwk
            changed += bool(text and stored_keys.replace_signing_key(row.kid, before, text))
    return _done("signing_keys", changed, unreadable)


def reencrypt_totp_secrets(report: Callable[[int, int], None] | None = None) -> ReencryptionCount:
    """Encrypt the secrets of authenticator apps with the newest secret key; commit each batch.

    `report`: called with the number of secrets since its last call, and the total.
    """
    changed, unreadable, last = 0, [], None
    total = factors.count_totp_secrets() if report else 0
    while rows := factors.totp_secret_batch(last, REENCRYPTION_BATCH):
        last = rows[-1].user_id
        for row in rows:
            try:
                text = totp.reencrypt(row)
            except secrets.InvalidToken:
                unreadable.append(str(row.user_id))
            else:
                before = row.sealed_secret
                changed += bool(text and factors.replace_totp_secret(row.user_id, before, text))
        db.session.commit()
        if report:
            report(len(rows), total)
    return _done("totp_secrets", changed, unreadable)


def reencrypt_webhook_secrets() -> ReencryptionCount:
    """Encrypt the secrets of webhooks with the newest secret key, and commit."""
    changed, unreadable = 0, []
    for row in webhooks.every():
        before = row.sealed_secret
        try:
            text = secrets.reencrypt_webhook_secret(context.settings().secret_keys, before)
        except secrets.InvalidToken:
            unreadable.append(str(row.id))
        else:
            changed += bool(text and webhooks.replace_secret(row.id, before, text))
    return _done("webhook_secrets", changed, unreadable)


def reencrypt_scim_tokens() -> ReencryptionCount:
    """Encrypt the tokens for SCIM services with the newest secret key, and commit."""
    changed, unreadable = 0, []
    for row in provisioning.every():
        before = row.sealed_token
        try:
            text = before and secrets.reencrypt_scim_token(context.settings().secret_keys, before)
        except secrets.InvalidToken:
            unreadable.append(row.client_id)
        else:
            changed += bool(
                before and text and provisioning.replace_token(row.client_id, before, text)
            )
    return _done("scim_tokens", changed, unreadable)


def _done(kind: str, changed: int, unreadable: list[str]) -> ReencryptionCount:
    if changed:
        audit.event(Event.REENCRYPTED, what=kind, count=changed)
    db.session.commit()
    db.session.expunge_all()
    return ReencryptionCount(changed, tuple(unreadable))


def end_due() -> int:
    """Announce ends that are near, and carry out those that were reached; commit.

    Returns how many people this concerned.
    """
    count = accounts.announce_ends(audit.SYSTEM)
    db.session.commit()
    count += accounts.end_due(audit.SYSTEM)
    db.session.commit()
    count += accounts.end_memberships_due(audit.SYSTEM)
    db.session.commit()
    count += program_secrets.announce_ends(audit.SYSTEM)
    db.session.commit()
    return count


def end_of_changed_clients(size: int = client_work.BATCH) -> int:
    """Do one batch of what changes of clients have left (see `store.client_work`), and commit.

    Returns 0 if there is nothing to do. It can be killed at any point.
    """
    key = client_work.next_key()
    db.session.rollback()
    if key is None:
        return 0
    is_last = client_work.do_batch(*key, size)
    db.session.commit()
    if is_last:
        client_work.remove_client(key[0])
        db.session.commit()
    return 1


SECONDS_OF_BATCH = 0.5  # others wait that long for SQLite's only writer
SMALLEST_BATCH = 50


class InTime:
    """`end_of_changed_clients` for the worker, with batches that take about as long as they may.

    A disk that is slow, or has more to do, gets smaller ones.
    """

    def __init__(self) -> None:
        self.size = client_work.BATCH

    def __call__(self) -> int:
        began = time.monotonic()
        done = end_of_changed_clients(self.size)
        took = max(time.monotonic() - began, 0.001)
        fitting = int(self.size * SECONDS_OF_BATCH / took)
        self.size = min(max(fitting, SMALLEST_BATCH), client_work.BATCH)
        return done


SESSIONS_AT_ONCE = 500


class LastActive:
    """Record when people were last active, for sessions of versions up to 0.1, one batch a call.

    Returns 0 at the end, which the database remembers: no later worker reads the sessions again.
    One that was killed begins again, and changes only what is missing.
    """

    def __init__(self) -> None:
        self._after: UUID | None = None
        self._has_begun = self._is_done = False

    def __call__(self) -> int:
        if not self._has_begun:
            self._is_done = outbox.last_beat(outbox.ACTIVITY_FILLED) is not None
            self._has_begun = True
        if self._is_done:
            db.session.rollback()
            return 0
        last = sessions.fill_last_active(self._after, SESSIONS_AT_ONCE)
        if last is None:
            outbox.beat(outbox.ACTIVITY_FILLED)
        db.session.commit()
        self._after, self._is_done = last, last is None
        return int(not self._is_done)


RECHECK_BATCH = 20  # sessions of a provider at a time
MOST_TROUBLES = 3  # errors until the provider is skipped in this run


def recheck_providers() -> int:
    """Recheck the sessions that are due, and commit; return how many were checked."""
    return sum(
        _recheck_at_provider(provider, provider.recheck)
        for provider in context.upstreams()
        if provider.recheck and isinstance(provider, OidcProvider)
    )


def _recheck_at_provider(provider: OidcProvider, seconds: int) -> int:
    before, checked, troubles = clock.now() - timedelta(seconds=seconds), 0, 0
    for session, identity in identities.due(provider.id, before, RECHECK_BATCH):
        last_checked_at = session.checked_at
        if not identities.claim_check(session.id, last_checked_at, clock.now()):
            db.session.commit()
            continue  # another worker does it
        db.session.commit()  # no transaction waits for the provider
        checked += 1
        refresh_token = linking.decrypted_token(session.sealed_refresh_token)
        access_token = linking.decrypted_token(session.sealed_access_token)
        if not (refresh_token or access_token):
            continue  # without a token, the provider cannot be asked
        client = oidc.oidc_client(provider)
        try:
            upstream_identity = client.ask_again(
                identity.issuer, identity.subject, refresh_token, access_token
            )
        except UpstreamUnavailable:
            identities.claim_check(session.id, None, last_checked_at)
            db.session.commit()
            troubles += 1
            if troubles == MOST_TROUBLES:
                break
        else:
            linking.confirm_session(audit.SYSTEM, provider, session, identity, upstream_identity)
            db.session.commit()
    return checked


logger = logging.getLogger("sso.jobs")
DIRECTORY_BATCH = 20  # people in one connection


def recheck_directories() -> int:
    """Look up the people who are due in each directory, and commit; return how many were due."""
    return sum(
        _recheck_in_directory(provider)
        for provider in context.upstreams()
        if isinstance(provider, LdapProvider)
    )


def _recheck_in_directory(provider: LdapProvider) -> int:
    before = clock.now() - timedelta(seconds=provider.recheck or 0)
    due = {
        identity.subject: identity.id
        for identity in identities.due_people(provider.id, before, DIRECTORY_BATCH)
    }
    db.session.rollback()  # no transaction waits for somebody else's server
    if not due:
        return 0
    try:
        answers = ldap.look_up(provider, due)
    except UpstreamUnavailable as error:
        # Sessions continue: an outage of the directory must not become an outage here.
        logger.warning("directory %s cannot be asked again: %s", provider.id, error)
        return 0
    for subject, identity_id in due.items():
        identities.note_check(identity_id, clock.now())
        answer = answers.get(subject)
        identity = identities.find(provider.issuer, subject)
        if identity and isinstance(answer, NotAllowed):
            linking.disable_user(audit.SYSTEM, provider, identity, answer.reason)
        elif identity and isinstance(answer, UpstreamIdentity):
            linking.confirm_directory_account(audit.SYSTEM, provider, identity, answer)
        db.session.commit()
    return len(due)
