"""Statements about upstream identities and the sign-ins through them."""

from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import delete, or_, select, update

from sso.extensions import db
from sso.models import BrowserSession, Grant, Identity, UpstreamSession, User, WaitingSignIn
from sso.store.lists import write


def find(issuer: str, subject: str) -> Identity | None:
    return db.session.scalar(
        select(Identity).where(Identity.issuer == issuer, Identity.subject == subject)
    )


def of_user(user_id: UUID) -> Sequence[Identity]:
    """A user's identities, oldest first."""
    return db.session.scalars(
        select(Identity)
        .where(Identity.user_id == user_id)
        .order_by(Identity.linked_at, Identity.id)
    ).all()


def of_providers(user_id: UUID, providers: Collection[str]) -> int:
    """With how many identities of these providers a user can sign in."""
    return sum(one.provider in providers for one in of_user(user_id))


def add(identity: Identity) -> None:
    """Raises `IntegrityError` when it is linked already."""
    db.session.add(identity)
    db.session.flush()


def use(identity: Identity, provider: str, now: datetime) -> None:
    """Note a sign-in. `provider`: its id, which the operator may have changed."""
    identity.provider, identity.last_used_at, identity.checked_at = provider, now, now
    db.session.flush()


def remove(user_id: UUID, identity_id: UUID) -> Identity | None:
    """Delete one of the user's own, and give what it was."""
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
    """A sign-in of this user that waits for its second factor."""
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
    """Note which session it began; false if it is gone, or has begun one already."""
    return (
        write(
            update(UpstreamSession)
            .where(UpstreamSession.id == session.id, UpstreamSession.session_id.is_(None))
            .values(session_id=browser_session_id)
        )
        == 1
    )


def last_of_session(browser_session_id: UUID) -> tuple[UpstreamSession, Identity] | None:
    """The last sign-in through a provider in a session, if there is one."""
    row = db.session.execute(
        select(UpstreamSession, Identity)
        .join(Identity, Identity.id == UpstreamSession.identity_id)
        .where(UpstreamSession.session_id == browser_session_id)
        .order_by(UpstreamSession.created_at.desc())
        .limit(1)
    ).first()
    return (row[0], row[1]) if row else None


def meant_by(issuer: str, subject: str | None, sid: str | None) -> Sequence[Identity]:
    """The identities that a provider names, by a subject or by a session alone."""
    found = select(Identity).where(Identity.issuer == issuer)
    if subject is not None:
        return db.session.scalars(found.where(Identity.subject == subject)).all()
    named = select(UpstreamSession.identity_id).where(UpstreamSession.sid == sid)
    return db.session.scalars(found.where(Identity.id.in_(named))).all()


def sessions_of(identity_id: UUID, sid: str | None = None, unnamed: bool = False) -> Sequence[UUID]:
    """The browser sessions that an identity began, in this session of its provider if given.

    `unnamed`: and those of which the provider named none.
    """
    found = select(UpstreamSession.session_id).where(
        UpstreamSession.identity_id == identity_id,
        UpstreamSession.session_id.is_not(None),
    )
    if sid is not None:
        of_sid = UpstreamSession.sid == sid
        found = found.where(or_(of_sid, UpstreamSession.sid.is_(None)) if unnamed else of_sid)
    return [one for one in db.session.scalars(found.distinct()) if one]


def forget_waiting(identity_id: UUID, sid: str | None = None) -> None:
    """Sign-ins that still wait for their second factor begin no session any more."""
    gone = delete(UpstreamSession).where(
        UpstreamSession.identity_id == identity_id, UpstreamSession.session_id.is_(None)
    )
    write(gone if sid is None else gone.where(UpstreamSession.sid == sid))


def due(provider: str, before: datetime, size: int) -> Sequence[tuple[UpstreamSession, Identity]]:
    """Live sign-ins through a provider that it has not confirmed since, the oldest first."""
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
    """Identities of users who are signed in, or whose applications have tokens, and about whom the
    provider was last asked before this moment; the longest ago first."""
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
            User.disabled_at.is_(None),
            or_(signed_in, has_grants),
        )
        .order_by(Identity.checked_at)
        .limit(size)
    ).all()


def note_check(identity_id: UUID, now: datetime) -> None:
    """Note that the provider was asked about somebody."""
    write(update(Identity).where(Identity.id == identity_id).values(checked_at=now))


def barred() -> set[UUID]:
    """Return the ids of users whom a directory has disabled."""
    return set(db.session.scalars(select(Identity.user_id).where(Identity.barred_at.is_not(None))))


def forget_bars(user_id: UUID) -> None:
    """No directory has disabled this user (any more): an operator has."""
    write(update(Identity).where(Identity.user_id == user_id).values(barred_at=None))


def claim_check(session_id: UUID, seen: datetime | None, now: datetime) -> bool:
    """Note that a sign-in is checked; `seen`: unless somebody else has done so since."""
    same = [UpstreamSession.checked_at == seen] if seen else []
    changed = update(UpstreamSession).where(UpstreamSession.id == session_id, *same)
    return write(changed.values(checked_at=now)) == 1


def keep_token(session_id: UUID, sealed: str | None) -> None:
    write(
        update(UpstreamSession)
        .where(UpstreamSession.id == session_id)
        .values(sealed_refresh_token=sealed)
    )
