"""Statements about grants: one approval, and the end of everything that it gave."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from sqlalchemy import (
    ColumnElement,
    Select,
    Uuid,
    and_,
    bindparam,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.orm import contains_eager

from sso import clock
from sso.extensions import db
from sso.models import BrowserSession, Client, Consent, Grant, Token, User
from sso.store import prepared
from sso.store.users import PERSON, Person

_GRANTS, _CONSENTS = prepared.table(Grant), prepared.table(Consent)
_NEW = (
    "id", "user_id", "client_id", "session_id", "sid", "scope", "claims", "auth_time", "amr",
    "acr", "created_at",
)  # fmt: skip
_VISIT = (
    select(*(bindparam(name, type_=_GRANTS.c[name].type).label(name) for name in _NEW))
    .select_from(User)
    .join(BrowserSession, BrowserSession.user_id == User.id)
    .where(
        BrowserSession.id == bindparam("session_id"),
        BrowserSession.ended_at.is_(None),
        User.updated_at == bindparam("user_seen"),
        User.disabled_at.is_(None),
    )
    # Nobody ends them until we commit; who waits for that finds the new grant, and ends it, too.
    # Not FOR SHARE: two tabs would hold it together, and then each wait to note its visit.
    .with_for_update(key_share=True)
)
_BY_CONSENT = _VISIT.join(
    _CONSENTS,
    (_CONSENTS.c.user_id == User.id) & (_CONSENTS.c.client_id == bindparam("client_id")),
).where(_CONSENTS.c.updated_at == bindparam("consent_seen"))
_ADD, _ADD_BY_CONSENT = (
    insert(_GRANTS)
    .from_select(_NEW, state, include_defaults=False)
    .execution_options(preserve_rowcount=True)  # SQLAlchemy keeps it for UPDATE and DELETE alone
    for state in (_VISIT, _BY_CONSENT)
)


def add(user_seen: datetime, consent_seen: datetime | None, **columns: Any) -> UUID | None:
    """Store an approval; gives its id.

    `None` if what the decision was made from has changed meanwhile: the session has ended, the user
    was changed, the consent withdrawn. One statement looks and writes.
    """
    grant_id = uuid4()
    values = {"id": grant_id, "created_at": clock.now(), "user_seen": user_seen, **columns}
    if consent_seen is None:
        is_added = prepared.changed(_ADD, values)
    else:
        is_added = prepared.changed(_ADD_BY_CONSENT, {**values, "consent_seen": consent_seen})
    return grant_id if is_added else None


class Approval(NamedTuple):
    """A grant that lives, and its user: what tokens are made from."""

    id: UUID
    user_id: UUID
    client_id: str
    sid: str
    scope: str
    claims: dict[str, Any]
    auth_time: datetime
    amr: str
    acr: str | None
    user: Person

    @property
    def is_offline(self) -> bool:
        """Whether it outlives sign-out (OIDC Core §11)."""
        return "offline_access" in self.scope.split()

    def check_client(self, client: Client) -> bool:
        """What Authlib asks a refresh token."""
        return self.client_id == client.client_id


_APPROVAL = [prepared.table(Grant).c[name] for name in Approval._fields if name != "user"]
_SESSION_LIVES = BrowserSession.ended_at.is_(None) & (BrowserSession.expires_at > bindparam("now"))
APPROVAL = (BrowserSession.id.is_not(None), *_APPROVAL, *PERSON)
"""The columns that `approval_of` reads."""


def join_approval(statement: Select[Any], grant_id: ColumnElement[UUID]) -> Select[Any]:
    """Join an enabled client with a grant of its own that lives, and the grant's enabled user.

    The statement has the parameter `now`.
    """
    is_its_own = (Grant.id == grant_id) & (Grant.client_id == Client.client_id)
    return (
        statement.outerjoin(Grant, is_its_own & Grant.ended_at.is_(None))
        .outerjoin(User, (User.id == Grant.user_id) & User.disabled_at.is_(None))
        .outerjoin(BrowserSession, (BrowserSession.id == Grant.session_id) & _SESSION_LIVES)
    )


def approval_of(columns: Sequence[Any]) -> Approval | None:
    """What the columns of `APPROVAL` hold, if all was there to join.

    Without `offline_access` a grant lives as long as the browser session in which it was given.
    """
    session_lives, count = columns[0], 1 + len(_APPROVAL)
    person = Person._make(columns[count:])
    if person.id is None:
        return None
    approval = Approval._make((*columns[1:count], person))
    return approval if session_lives or approval.is_offline else None


_FIND_LIVE = join_approval(
    select(*APPROVAL).select_from(Client), bindparam("grant_id", type_=Uuid())
).where(Client.client_id == bindparam("client"), Client.disabled_at.is_(None))


def find_live(grant_id: UUID, client_id: str) -> Approval | None:
    """A grant of this client that has not ended; its user and the client are enabled."""
    values = {"grant_id": grant_id, "client": client_id, "now": clock.now()}
    row = prepared.first(_FIND_LIVE, values)
    return approval_of(row) if row else None


_IS_OFFLINE = or_(
    Grant.scope == "offline_access",
    Grant.scope.like("offline\\_access %", escape="\\"),
    Grant.scope.like("% offline\\_access", escape="\\"),
    Grant.scope.like("% offline\\_access %", escape="\\"),
)


class Access(NamedTuple):
    """What one application has from one user: since when, and when it last got tokens."""

    client: Client
    scope: str
    since: datetime
    last_used: datetime | None


def accesses_of(user_id: UUID) -> list[Access]:
    """The applications that have something from a user: a consent, or a grant that lives."""
    given = db.session.execute(
        select(Client, Consent)
        .join(Consent, Consent.client_id == Client.client_id)
        .where(Consent.user_id == user_id)
    )
    used = db.session.execute(
        select(Client, func.min(Grant.created_at), func.max(Token.issued_at), func.max(Grant.scope))
        .join(Grant, Grant.client_id == Client.client_id)
        .outerjoin(Token, Token.grant_id == Grant.id)
        .where(Grant.user_id == user_id, Grant.ended_at.is_(None))
        .group_by(Client.client_id)
    )
    found = {
        client.client_id: Access(client, consent.scope, consent.created_at, None)
        for client, consent in given
    }
    for client, since, last_used, scope in used:
        before = found.get(client.client_id)
        found[client.client_id] = Access(
            client,
            before.scope if before else scope,
            min(before.since, since) if before else since,
            last_used,
        )
    return sorted(found.values(), key=lambda access: access.client.name.lower())


def live_at(client_id: str, limit: int) -> tuple[int, Sequence[Grant]]:
    """How many grants of a client live, and the newest of them with their users."""
    now = clock.now()
    session_lives = and_(BrowserSession.ended_at.is_(None), BrowserSession.expires_at > now)
    live = and_(
        Grant.client_id == client_id,
        Grant.ended_at.is_(None),
        or_(session_lives, _IS_OFFLINE),
        exists().where(
            Token.grant_id == Grant.id,
            or_(Token.expires_at > now, Token.refresh_expires_at > now),
        ),
    )
    joined = select(Grant).join(Grant.user).outerjoin(Grant.session).where(live)
    count = db.session.scalar(select(func.count()).select_from(joined.subquery()))
    found = db.session.scalars(
        joined.options(contains_eager(Grant.user)).order_by(Grant.created_at.desc()).limit(limit)
    ).all()
    return int(count or 0), found


def end(reason: str, *conditions: ColumnElement[bool]) -> None:
    """End the grants that meet the conditions; their codes and tokens end with them."""
    prepared.connection().execute(
        update(_GRANTS)
        .where(Grant.ended_at.is_(None), *conditions)
        .values(ended_at=clock.now(), end_reason=reason)
    )


def end_one(grant_id: UUID, reason: str) -> None:
    """End one grant."""
    end(reason, Grant.id == grant_id)


def end_of_sessions(session_ids: Sequence[UUID], reason: str) -> None:
    """End the grants of browser sessions, but for those with `offline_access`."""
    end(reason, Grant.session_id.in_(session_ids), ~_IS_OFFLINE)


def end_of_user(user_id: UUID, reason: str) -> None:
    """End all grants of a user."""
    end(reason, Grant.user_id == user_id)


def end_of_user_and_client(user_id: UUID, client_id: str, reason: str) -> None:
    """End what one user gave one client."""
    end(reason, Grant.user_id == user_id, Grant.client_id == client_id)


def end_of_user_but_session(user_id: UUID, session_id: UUID, reason: str) -> None:
    """End all grants of a user but for those of one browser session."""
    other = or_(Grant.session_id.is_(None), Grant.session_id != session_id)
    end(reason, Grant.user_id == user_id, other)


def end_of_client(client_id: str, reason: str) -> None:
    """End all grants of a client."""
    end(reason, Grant.client_id == client_id)
