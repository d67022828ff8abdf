"""Stores approvals: a grant and its code, if what the decision was made from still holds.

On PostgreSQL one statement looks, and stores both. Where nothing else is written, a request with a
live session takes two round trips instead of five.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any
from uuid import uuid4

from sqlalchemy import (
    Connection,
    Select,
    Table,
    bindparam,
    insert,
    literal,
    select,
    true,
)

from sso import clock
from sso.models import AuthorizationCode, BrowserSession, Client, Consent, Grant, User
from sso.store import client_turn, prepared, unredeemed

_GRANTS, _CODES = prepared.table(Grant), prepared.table(AuthorizationCode)
_USERS, _SESSIONS = prepared.table(User), prepared.table(BrowserSession)
_CONSENTS = prepared.table(Consent)


@dataclass(frozen=True)
class Seen:
    """The versions of what a decision was made from."""

    client: datetime
    user: datetime
    consent: datetime | None  # none was needed


@dataclass(frozen=True)
class NewCode:
    """The row of a code that is issued, but for its grant."""

    digest: str
    redirect_uri: str
    nonce: str | None
    code_challenge: str | None
    dpop_jkt: str | None
    expires_at: datetime


_NEW = (
    "id", "user_id", "client_id", "session_id", "sid", "scope", "claims", "auth_time", "amr",
    "acr", "created_at",
)  # fmt: skip

# FOR SHARE: people sign in beside each other, but the client's row waits. Everybody locks in this
# order: client, user, session, consent, codes, grants.
_CLIENT_AS_SEEN = (
    select(Client.client_id)
    .where(
        Client.client_id == bindparam("client_id"),
        Client.updated_at == bindparam("client_seen"),
        Client.disabled_at.is_(None),
        client_turn.shared(Client.client_id),
    )
    .with_for_update(read=True)
    .subquery()
)
_VISIT = (
    select(*(bindparam(name, type_=_GRANTS.c[name].type).label(name) for name in _NEW))
    .select_from(User)
    .join(BrowserSession, BrowserSession.user_id == User.id)
    .join(_CLIENT_AS_SEEN, true())
    .where(
        BrowserSession.id == bindparam("session_id"),
        BrowserSession.ended_at.is_(None),
        User.updated_at == bindparam("user_seen"),
        User.disabled_at.is_(None),
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
    .join(_CLIENT_AS_SEEN, true())
    .where(User.id == bindparam("user_id"), BrowserSession.id == bindparam("session_id"))
    .with_for_update(key_share=True, of=(_USERS, _SESSIONS))
)
_CODE = tuple(field.name for field in fields(NewCode))


class _Statements:
    """Store a grant and its code, if there is a row of `state`."""

    def __init__(self, state: Select[Any], locked: Sequence[Table]) -> None:
        # Nobody ends them until we commit; who waits for that finds the new grant, and ends it,
        # too. Not FOR SHARE: two tabs would hold it together, and then each wait to note its visit.
        found = state.with_for_update(key_share=True, of=locked)
        self._grant = insert(_GRANTS).from_select(_NEW, found, include_defaults=False)
        approved = self._grant.returning(_GRANTS.c.id).cte("approved")
        code = (bindparam("code_" + name, type_=_CODES.c[name].type).label(name) for name in _CODE)
        self._both = insert(_CODES).from_select(
            ("grant_id", *_CODE), select(approved.c.id, *code), include_defaults=False
        )

    def run(self, connection: Connection, values: Mapping[str, Any], is_last: bool) -> bool:
        """Whether they are stored."""
        if connection.dialect.name == "sqlite":  # WITH does not write there
            return prepared.changed(connection, self._grant, values) and prepared.changed(
                connection, _ADD_CODE, values
            )
        store = prepared.changed_at_once if is_last else prepared.changed
        return store(connection, self._both, values)


_ADD_CODE = insert(_CODES).values(
    grant_id=bindparam("id"), **{name: bindparam("code_" + name) for name in _CODE}
)
_FEW = ~unredeemed.ARE_MANY
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
    """Store an approval and its code; `columns` are those of the grant.

    False if what the decision was made from has changed meanwhile: the client or the user was
    changed, the session has ended, the consent was given again or withdrawn. One statement looks
    and writes. Of the user's grants whose codes wait since `codes_since`, the oldest go if there
    are too many. `is_last`: the request writes nothing else, so that it may count at once.
    """
    values = {
        "id": uuid4(),
        "created_at": clock.now(),
        "client_seen": seen.client,
        "user_seen": seen.user,
        "codes_since": codes_since,
        **{"code_" + name: value for name, value in vars(code).items()},
        **columns,
    }
    add, add_one_of_many = _ADD, _ADD_ONE_OF_MANY
    if seen.consent is not None:
        add, add_one_of_many = _ADD_BY_CONSENT, _ADD_ONE_OF_MANY_BY_CONSENT
        values["consent_seen"] = seen.consent
    return add.run(connection, values, is_last) or (
        unredeemed.are_many(connection, columns["user_id"], codes_since)
        and _lock_in_order(connection, values)
        and unredeemed.drop_oldest(connection, columns["user_id"], codes_since)
        and add_one_of_many.run(connection, values, is_last=False)
    )


def _lock_in_order(connection: Connection, values: Mapping[str, Any]) -> bool:
    """Lock client, user and session for a transaction; whether the client is as it was seen."""
    if not connection.in_transaction():
        connection.begin()
    names = ("client_id", "client_seen", "user_id", "session_id")
    values = {name: values[name] for name in names}
    return prepared.first(connection, _IN_ORDER, values) is not None
