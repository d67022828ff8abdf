"""Statements about upstream identities and the sign-ins through them."""

from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import ColumnElement, delete, func, or_, select, update

from sso.extensions import db
from sso.models import BrowserSession, Grant, Identity, UpstreamSession, User, WaitingSignIn
from sso.store import lists, users
from sso.store.lists import write, write_one


def find(issuer: str, subject: str) -> Identity | None:
    return db.session.scalar(
        select(Identity).where(Identity.issuer == issuer, Identity.subject == subject)
    )


def of_user(user_id: UUID) -> Sequence[Identity]:
    """Return a user's identities, oldest first."""
    return db.session.scalars(
        select(Identity)
        .where(Identity.user_id == user_id)
        .order_by(Identity.linked_at, Identity.id)
    ).all()


def of_providers(user_id: UUID, providers: Collection[str]) -> int:
    """Return the number of identities at these providers that a user can sign in with."""
    return sum(identity.provider in providers for identity in of_user(user_id))


def usage(provider: str) -> tuple[int, datetime | None]:
    """Return how many identities a provider has, and the last sign-in with one of them."""
    statement = select(func.count(), func.max(Identity.last_used_at))
    count, last_used = db.session.execute(statement.where(Identity.provider == provider)).one()
    return count, last_used


def linked(issuer: str, subjects: Collection[str]) -> set[str]:
    """Return those of these subjects of an issuer that are linked to a user."""
    statement = select(Identity.subject).where(Identity.issuer == issuer)
    return {row[0] for row in lists.rows_with(statement, Identity.subject, subjects)}


def add(identity: Identity) -> None:
    """Link an identity. Raises `IntegrityError` if it is linked already."""
    db.session.add(identity)
    db.session.flush()


def use(identity: Identity, provider: str, now: datetime) -> None:
    """Record a sign-in. `provider`: its id, which the operator may have changed."""
    identity.provider, identity.last_used_at, identity.checked_at = provider, now, now
    db.session.flush()


def remove(user_id: UUID, identity_id: UUID) -> Identity | None:
    """Delete an identity of this user and return it; `None` if there is no such identity."""
    return db.session.scalar(
        delete(Identity)
        .where(Identity.id == identity_id, Identity.user_id == user_id)
        .returning(Identity)
        .execution_options(synchronize_session=False)
    )


def add_waiting(digest: str, client_id: str, resume: str, expires_at: datetime) -> None:
    """Store an authorization request until the provider has answered."""
    db.session.add(
        WaitingSignIn(digest=digest, client_id=client_id, resume=resume, expires_at=expires_at)
    )
    db.session.flush()


def find_waiting(digest: str) -> WaitingSignIn | None:
    return db.session.get(WaitingSignIn, digest)


def add_session(session: UpstreamSession) -> None:
    db.session.add(session)
    db.session.flush()


def unused_session(session_id: UUID, user_id: UUID) -> UpstreamSession | None:
    """Return a sign-in of this user that waits for its second factor."""
    return db.session.scalar(
        select(UpstreamSession)
        .join(Identity, Identity.id == UpstreamSession.identity_id)
        .where(
            UpstreamSession.id == session_id,
            UpstreamSession.session_id.is_(None),
            Identity.user_id == user_id,
        )
    )


def bind(session: UpstreamSession, browser_session_id: UUID) -> bool:
    """Bind a sign-in to the session that it began; return False if it is deleted or bound."""
    return write_one(
        update(UpstreamSession)
        .where(UpstreamSession.id == session.id, UpstreamSession.session_id.is_(None))
        .values(session_id=browser_session_id)
    )


def last_of_session(browser_session_id: UUID) -> tuple[UpstreamSession, Identity] | None:
    """Return the last sign-in through a provider in a session, if there is one."""
    row = db.session.execute(
        select(UpstreamSession, Identity)
        .join(Identity, Identity.id == UpstreamSession.identity_id)
        .where(UpstreamSession.session_id == browser_session_id)
        .order_by(UpstreamSession.created_at.desc())
        .limit(1)
    ).first()
    return (row[0], row[1]) if row else None


def meant_by(issuer: str, subject: str | None, sid: str | None) -> Sequence[Identity]:
    """Return the identities that a provider means by a subject, or else by one of its sessions."""
    statement = select(Identity).where(Identity.issuer == issuer)
    if subject is not None:
        return db.session.scalars(statement.where(Identity.subject == subject)).all()
    of_sid = select(UpstreamSession.identity_id).where(UpstreamSession.sid == sid)
    return db.session.scalars(statement.where(Identity.id.in_(of_sid))).all()


def sessions_of(identity_id: UUID, sid: str | None = None, unnamed: bool = False) -> Sequence[UUID]:
    """Return the browser sessions that an identity began, only in this session of its provider if
    there is a `sid`.

    `unnamed`: also those for which the provider sent no `sid`.
    """
    statement = select(UpstreamSession.session_id).where(
        *_in_session(identity_id, sid, unnamed), UpstreamSession.session_id.is_not(None)
    )
    return [session_id for session_id in db.session.scalars(statement.distinct()) if session_id]


def forget_waiting(identity_id: UUID, sid: str | None = None, unnamed: bool = False) -> None:
    """Delete the sign-ins that wait for their second factor: they can begin no session any more.

    `sid` and `unnamed` choose among them as in `sessions_of`.
    """
    conditions = _in_session(identity_id, sid, unnamed)
    write(delete(UpstreamSession).where(*conditions, UpstreamSession.session_id.is_(None)))


def _in_session(identity_id: UUID, sid: str | None, unnamed: bool) -> list[ColumnElement[bool]]:
    conditions = [UpstreamSession.identity_id == identity_id]
    if sid is not None:
        of_sid = UpstreamSession.sid == sid
        conditions.append(or_(of_sid, UpstreamSession.sid.is_(None)) if unnamed else of_sid)
    return conditions


def due(provider: str, before: datetime, size: int) -> Sequence[tuple[UpstreamSession, Identity]]:
    """Return live sign-ins that the provider has not confirmed since a moment, oldest first."""
    rows = db.session.execute(
        select(UpstreamSession, Identity)
        .join(Identity, Identity.id == UpstreamSession.identity_id)
        .join(BrowserSession, BrowserSession.id == UpstreamSession.session_id)
        .where(
            Identity.provider == provider,
            UpstreamSession.checked_at < before,
            BrowserSession.ended_at.is_(None),
            BrowserSession.expires_at > before,
        )
        .order_by(UpstreamSession.checked_at)
        .limit(size)
    ).all()
    return [(row[0], row[1]) for row in rows]


def due_people(provider: str, before: datetime, size: int) -> Sequence[Identity]:
    """Return the identities that the provider was last asked about before a moment, oldest first.

    Only those of enabled users who are signed in or have live grants.
    """
    signed_in = (
        select(BrowserSession.id)
        .where(BrowserSession.user_id == Identity.user_id, BrowserSession.ended_at.is_(None))
        .exists()
    )
    has_grants = (
        select(Grant.id).where(Grant.user_id == Identity.user_id, Grant.ended_at.is_(None)).exists()
    )
    return db.session.scalars(
        select(Identity)
        .join(User, User.id == Identity.user_id)
        .where(
            Identity.provider == provider,
            Identity.checked_at < before,
            users.enabled(),
            or_(signed_in, has_grants),
        )
        .order_by(Identity.checked_at)
        .limit(size)
    ).all()


def note_check(identity_id: UUID, now: datetime) -> None:
    """Record that the provider was asked about an identity."""
    write(update(Identity).where(Identity.id == identity_id).values(checked_at=now))


def barred() -> set[UUID]:
    """Return the ids of users whom a directory has disabled."""
    return set(db.session.scalars(select(Identity.user_id).where(Identity.barred_at.is_not(None))))


def forget_bars(user_id: UUID) -> None:
    """Record that no directory has disabled this user, or that an operator has taken over."""
    write(update(Identity).where(Identity.user_id == user_id).values(barred_at=None))


def claim_check(session_id: UUID, checked_at: datetime | None, now: datetime) -> bool:
    """Record that a sign-in is checked now; with `checked_at`, return False if another process has
    recorded a check since then.
    """
    is_unchanged = [UpstreamSession.checked_at == checked_at] if checked_at else []
    statement = update(UpstreamSession).where(UpstreamSession.id == session_id, *is_unchanged)
    return write_one(statement.values(checked_at=now))


def replace_refresh_token(session_id: UUID, encrypted_token: str | None) -> None:
    """Store the encrypted refresh token of a sign-in."""
    write(
        update(UpstreamSession)
        .where(UpstreamSession.id == session_id)
        .values(sealed_refresh_token=encrypted_token)
    )
