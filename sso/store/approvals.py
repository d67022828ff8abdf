"""Store approvals: a grant and its code, if the rows that the decision was based on are unchanged.

On PostgreSQL one statement checks this and stores both. A request with a live session that writes
nothing else takes two round trips instead of five.

A signed-in user could have codes made in a loop. A user with too many unredeemed codes loses the
oldest ones, which no application will redeem any more. So no request is refused, and the number of
rows is bounded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from threading import Lock
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import (
    Connection,
    Select,
    Table,
    and_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    literal,
    or_,
    select,
    true,
    update,
)

from sso import clock
from sso.database import dialects
from sso.extensions import db
from sso.models import (
    AuthorizationCode,
    BrowserSession,
    Consent,
    Grant,
    Identity,
    PushedRequest,
    User,
)
from sso.store import clients, prepared

MOST_UNREDEEMED = 300
_AT_ONCE = 50  # are dropped, so that not every request of a flood has to do it

_UNREDEEMED_GRANTS, _UNREDEEMED_CODES = prepared.table(Grant), prepared.table(AuthorizationCode)
_WITH_CODES = _UNREDEEMED_CODES.join(
    _UNREDEEMED_GRANTS, _UNREDEEMED_GRANTS.c.id == _UNREDEEMED_CODES.c.grant_id
)
_ARE_UNREDEEMED = (
    (_UNREDEEMED_GRANTS.c.user_id == bindparam("user_id"))
    & (_UNREDEEMED_GRANTS.c.created_at > bindparam("codes_since"))
    & _UNREDEEMED_CODES.c.used_at.is_(None)
)
_COUNT = select(func.count().label("count")).select_from(
    select(_UNREDEEMED_CODES.c.digest)
    .select_from(_WITH_CODES)
    .where(_ARE_UNREDEEMED)
    .limit(literal(MOST_UNREDEEMED))
    .subquery()
)
ARE_MANY_UNREDEEMED = exists(
    select(_UNREDEEMED_GRANTS.c.created_at)
    .where(_UNREDEEMED_GRANTS.c.user_id == bindparam("user_id"))
    .where(_UNREDEEMED_GRANTS.c.created_at > bindparam("codes_since"))
    .order_by(_UNREDEEMED_GRANTS.c.created_at)
    .limit(1)
    .offset(MOST_UNREDEEMED - 1)
)
"""The condition that `user_id` got as many codes since `codes_since`, redeemed or not. An index
answers it.
"""
_TELL_MANY = select(ARE_MANY_UNREDEEMED.label("are_many"))


class _Uncounted:
    """How many codes of a user may still be stored before they are counted again.

    Each process remembers what it has counted, so that somebody whose codes are redeemed, as by a
    program that signs in in a loop, costs one statement. Codes of other processes are not counted
    meanwhile: together, each of them may exceed the limit by as many as it remembers.
    """

    def __init__(self, most_users: int) -> None:
        self.most_users = most_users
        self._left: dict[UUID, int] = {}
        self._lock = Lock()

    def allow(self, user_id: UUID, count: int) -> None:
        """Remember that so many more of a user need not be counted."""
        with self._lock:
            if len(self._left) >= self.most_users:
                self._left.clear()
            self._left[user_id] = count

    def take(self, user_id: UUID) -> bool:
        """Return whether one more of a user need not be counted."""
        if not self._left:
            return False
        with self._lock:
            left = self._left.pop(user_id, 0)
            if left > 1:
                self._left[user_id] = left - 1
        return left > 0


_UNCOUNTED = _Uncounted(most_users=10_000)


def are_many_unredeemed(connection: Connection, user_id: UUID, codes_since: datetime) -> bool:
    """Return whether a user got so many codes that the unredeemed ones have to be counted."""
    values = {"user_id": user_id, "codes_since": codes_since}
    row = prepared.first(connection, _TELL_MANY, values)
    return row is not None and bool(row["are_many"])


def drop_oldest_unredeemed(connection: Connection, user_id: UUID, codes_since: datetime) -> bool:
    """Delete the oldest grants with unredeemed codes if there are too many; return False if none of
    them could be deleted.

    The caller has locked client, user and session, as for every end of grants. Codes are locked
    before grants, as in their redemption; a code that is being redeemed is left alone.
    """
    values = {"user_id": user_id, "codes_since": codes_since}
    row = prepared.first(connection, _COUNT, values)
    count = row["count"] if row else 0
    if count < MOST_UNREDEEMED:  # most were redeemed, or another request has dropped some
        # One of them is for the code that is about to be stored.
        _UNCOUNTED.allow(user_id, min(_AT_ONCE, MOST_UNREDEEMED - count - 1))
        return True
    oldest = (
        select(_UNREDEEMED_CODES.c.grant_id)
        .select_from(_WITH_CODES)
        .where(_ARE_UNREDEEMED)
        .order_by(_UNREDEEMED_GRANTS.c.created_at)
        .limit(_AT_ONCE)
        .with_for_update(of=_UNREDEEMED_CODES, skip_locked=True)
    )
    ids = connection.scalars(oldest, values).all()
    connection.execute(delete(_UNREDEEMED_GRANTS).where(_UNREDEEMED_GRANTS.c.id.in_(ids)))
    return bool(ids)


def drop_all_unredeemed(user_id: UUID) -> None:
    """Delete a user's grants. The caller knows that no application has redeemed their codes."""
    db.session.execute(delete(_UNREDEEMED_GRANTS).where(_UNREDEEMED_GRANTS.c.user_id == user_id))


_GRANTS, _CODES = prepared.table(Grant), prepared.table(AuthorizationCode)
_USERS, _SESSIONS = prepared.table(User), prepared.table(BrowserSession)
_CONSENTS, _PUSHED = prepared.table(Consent), prepared.table(PushedRequest)


@dataclass(frozen=True)
class Seen:
    """The versions of the rows that a decision was based on."""

    client: datetime
    user: datetime
    consent: datetime | None  # `None`: none was needed


@dataclass(frozen=True)
class NewCode:
    """The row of a new code, without its grant."""

    digest: str
    redirect_uri: str
    nonce: str | None
    code_challenge: str | None
    dpop_jkt: str | None
    once: bool
    expires_at: datetime


@dataclass(frozen=True)
class PushedUse:
    """A pushed request that an answer uses up, and what is left of its parameters."""

    digest: str
    left: str


_NEW = (
    "id", "user_id", "client_id", "session_id", "sid", "scope", "claims", "auth_time", "amr",
    "acr", "created_at",
)  # fmt: skip

# All transactions lock in this order: client, user, session, consent, codes, grants.
_ENABLED = and_(
    User.disabled_at.is_(None),
    or_(User.ends_at.is_(None), User.ends_at > bindparam("created_at")),
)
_VISIT = (
    select(*(bindparam(name, type_=_GRANTS.c[name].type).label(name) for name in _NEW))
    .select_from(User)
    .join(BrowserSession, BrowserSession.user_id == User.id)
    .join(clients.AS_SEEN, true())
    .where(
        BrowserSession.id == bindparam("session_id"),
        BrowserSession.ended_at.is_(None),
        User.updated_at == bindparam("user_seen"),
        _ENABLED,
    )
)
_BY_CONSENT = _VISIT.join(
    _CONSENTS,
    (_CONSENTS.c.user_id == User.id) & (_CONSENTS.c.client_id == bindparam("client_id")),
).where(_CONSENTS.c.updated_at == bindparam("consent_seen"))
# Before grants are dropped: an ending locks these first, and the grants last.
_IN_ORDER = (
    select(literal(1).label("is_locked"))
    .select_from(User)
    .join(BrowserSession, BrowserSession.user_id == User.id)
    .join(clients.AS_SEEN, true())
    .where(User.id == bindparam("user_id"), BrowserSession.id == bindparam("session_id"))
    .with_for_update(key_share=True, of=(_USERS, _SESSIONS))
)
_CODE = tuple(field.name for field in fields(NewCode))


class _Statements:
    """The statements that store a grant and its code, if `state` selects a row."""

    def __init__(self, state: Select[Any], tables: Sequence[Table]) -> None:
        # No transaction can end these rows until this one commits; one that waits for them then
        # reads the new grant, and ends it, too. Not FOR SHARE: two tabs would hold the lock
        # together, and then each would wait for the other to update its session.
        row = state.with_for_update(key_share=True, of=tables)
        self._grant = insert(_GRANTS).from_select(_NEW, row, include_defaults=False)
        approved = self._grant.returning(_GRANTS.c.id).cte("approved")
        code = [bindparam("code_" + name, type_=_CODES.c[name].type).label(name) for name in _CODE]
        names = ("grant_id", *_CODE)
        self._both = insert(_CODES).from_select(
            names, select(approved.c.id, *code), include_defaults=False
        )
        # The pushed request is locked last, as everywhere; it is used only if it still can be.
        unused = (_PUSHED.c.digest == bindparam("pushed_digest")) & _PUSHED.c.used_at.is_(None)
        row = state.join(_PUSHED, unused).with_for_update(key_share=True, of=(*tables, _PUSHED))
        grant = insert(_GRANTS).from_select(_NEW, row, include_defaults=False)
        approved = grant.returning(_GRANTS.c.id).cte("approved")
        used = (
            update(_PUSHED)
            .where(unused, approved.c.id == bindparam("id"))
            .values(used_at=bindparam("created_at"), parameters=bindparam("pushed_left"))
            .returning(approved.c.id)
            .cte("used")
        )
        self._all = insert(_CODES).from_select(
            names, select(used.c.id, *code), include_defaults=False
        )

    def add_grant(self, connection: Connection, values: Mapping[str, Any]) -> bool:
        """Store a grant without a code; return whether it is stored."""
        return prepared.changed(connection, self._grant, values)

    def run(self, connection: Connection, values: Mapping[str, Any], is_last: bool) -> bool:
        """Store both; return False if `state` selects no row."""
        if connection.dialect.name == "sqlite":  # WITH does not write there
            return prepared.changed(connection, self._grant, values) and prepared.changed(
                connection, _ADD_CODE, values
            )
        store = prepared.changed_at_once if is_last else prepared.changed
        return store(connection, self._both, values)

    def run_with_pushed(self, connection: Connection, values: Mapping[str, Any]) -> bool:
        """Store both and use the pushed request, all at once; return False if one is impossible."""
        return prepared.changed_at_once(connection, self._all, values)


_ADD_CODE = insert(_CODES).values(
    grant_id=bindparam("id"), **{name: bindparam("code_" + name) for name in _CODE}
)
_FEW = ~ARE_MANY_UNREDEEMED
_ADD, _ADD_ONE_OF_MANY, _ADD_BY_CONSENT, _ADD_ONE_OF_MANY_BY_CONSENT = (
    _Statements(_VISIT.where(_FEW), (_USERS, _SESSIONS)),
    _Statements(_VISIT, (_USERS, _SESSIONS)),
    _Statements(_BY_CONSENT.where(_FEW), (_USERS, _SESSIONS, _CONSENTS)),
    _Statements(_BY_CONSENT, (_USERS, _SESSIONS, _CONSENTS)),
)


def add(
    connection: Connection,
    seen: Seen,
    code: NewCode,
    *,
    codes_since: datetime,
    is_last: bool = False,
    **columns: Any,
) -> bool:
    """Store an approval and its code; return False if a row that the decision was based on has
    changed: client, user, session or consent. `columns` are those of the grant.

    One statement checks and writes. If the user has too many grants with unredeemed codes since
    `codes_since`, the oldest ones are deleted. `is_last`: the request writes nothing else, so that
    this may be committed at once.
    """
    values = _values(seen, code, codes_since, columns)
    add, add_one_of_many = _ADD, _ADD_ONE_OF_MANY
    if seen.consent is not None:
        add, add_one_of_many = _ADD_BY_CONSENT, _ADD_ONE_OF_MANY_BY_CONSENT
    if _UNCOUNTED.take(columns["user_id"]):
        return add_one_of_many.run(connection, values, is_last)
    return add.run(connection, values, is_last) or (
        are_many_unredeemed(connection, columns["user_id"], codes_since)
        and _lock_in_order(connection, values)
        and drop_oldest_unredeemed(connection, columns["user_id"], codes_since)
        and add_one_of_many.run(connection, values, is_last=False)
    )


def add_and_use_pushed(
    connection: Connection,
    seen: Seen,
    code: NewCode,
    pushed: PushedUse,
    *,
    codes_since: datetime,
    **columns: Any,
) -> bool:
    """Store an approval and its code, and use up the pushed request that it answers.

    Return False if that is not possible in one statement, as on SQLite, or not any more. Nothing is
    changed then, and `add` and `redemption.use_pushed` do it one after the other. The request
    writes nothing else: this may be committed at once. Arguments as for `add`.
    """
    if not dialects.is_postgresql(connection):
        return False
    values = {
        **_values(seen, code, codes_since, columns),
        "pushed_digest": pushed.digest,
        "pushed_left": pushed.left,
    }
    is_by_consent = seen.consent is not None
    return (_ADD_BY_CONSENT if is_by_consent else _ADD).run_with_pushed(connection, values)


def _values(
    seen: Seen, code: NewCode, codes_since: datetime, columns: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the parameters of the statements that store an approval and its code."""
    return {
        "id": uuid4(),
        "created_at": clock.now(),
        "client_seen": seen.client,
        "user_seen": seen.user,
        "codes_since": codes_since,
        **({"consent_seen": seen.consent} if seen.consent is not None else {}),
        **{"code_" + name: value for name, value in vars(code).items()},
        **columns,
    }


_BY_ASSERTION = (
    select(*(bindparam(name, type_=_GRANTS.c[name].type).label(name) for name in _NEW))
    .select_from(User)
    .join(clients.AS_SEEN, true())
    .where(
        User.id == bindparam("user_id"),
        User.updated_at == bindparam("user_seen"),
        _ENABLED,
        exists().where(
            Identity.user_id == User.id,
            Identity.issuer == bindparam("issuer"),
            Identity.subject == bindparam("subject"),
        ),
    )
    .with_for_update(key_share=True, of=_USERS)
)
_ADD_BY_ASSERTION = insert(_GRANTS).from_select(_NEW, _BY_ASSERTION, include_defaults=False)


def add_by_assertion(
    connection: Connection, seen: Seen, issuer: str, subject: str, **columns: Any
) -> bool:
    """Store the grant that another server's assertion about a user gives. `columns` as for `add`.

    Return False if the client or the user has changed meanwhile, or if the user's account at that
    server is no longer linked.
    """
    values = {
        "client_seen": seen.client,
        "user_seen": seen.user,
        "issuer": issuer,
        "subject": subject,
        **columns,
    }
    return prepared.changed(connection, _ADD_BY_ASSERTION, values)


def add_for_device(connection: Connection, seen: Seen, **columns: Any) -> UUID | None:
    """Store an approval that a device waits for; return its id. `columns` as for `add`.

    Return `None` if what the decision was made from has changed meanwhile. The caller has called
    `lock_in_order`, and has remembered the consent since.
    """
    values = {
        "id": uuid4(),
        "created_at": clock.now(),
        "client_seen": seen.client,
        "user_seen": seen.user,
        "consent_seen": seen.consent,
        **columns,
    }
    is_stored = _ADD_ONE_OF_MANY_BY_CONSENT.add_grant(connection, values)
    return values["id"] if is_stored else None


def add_without_code(connection: Connection, seen: Seen, **columns: Any) -> UUID | None:
    """Store an approval that is answered at once, without a code; return its id.

    Return `None` if a row that the decision was based on has changed. `columns` as for `add`.
    """
    values = {
        "id": uuid4(),
        "created_at": clock.now(),
        "client_seen": seen.client,
        "user_seen": seen.user,
        **columns,
    }
    statements = _ADD_ONE_OF_MANY
    if seen.consent is not None:
        statements = _ADD_ONE_OF_MANY_BY_CONSENT
        values["consent_seen"] = seen.consent
    return values["id"] if statements.add_grant(connection, values) else None


def lock_in_order(
    connection: Connection, client_id: str, seen: Seen, user_id: UUID, session_id: UUID
) -> bool:
    """Lock client, user and session before a consent is written; see `_lock_in_order`."""
    values = {"client_id": client_id, "client_seen": seen.client}
    return _lock_in_order(connection, {**values, "user_id": user_id, "session_id": session_id})


def _lock_in_order(connection: Connection, values: Mapping[str, Any]) -> bool:
    """Lock client, user and session for a transaction; return False if the client has changed."""
    if not connection.in_transaction():
        connection.begin()
    names = ("client_id", "client_seen", "user_id", "session_id")
    values = {name: values[name] for name in names}
    return prepared.first(connection, _IN_ORDER, values) is not None
