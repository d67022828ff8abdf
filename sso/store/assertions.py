"""Statements about identity assertions (ID-JAG): from which grant one is made, and whom one means.

`store.approvals` stores the grant that an assertion gives.
"""

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, bindparam, select

from sso import clock
from sso.models import Consent, Grant, Identity, User
from sso.store import grants, prepared
from sso.store.grants import LiveGrant
from sso.store.users import ENABLED, USER_PROFILE, UserProfile, profile_of

_GRANTS = prepared.table(Grant)
_OF_SIGN_IN = (
    grants.join_today(
        select(*grants.LIVE_GRANT)
        .select_from(Grant)
        .join(User, User.id == Grant.user_id)
        .where(ENABLED, Grant.ended_at.is_(None))
    )
    .where(Grant.client_id == bindparam("client_id"), Grant.sid == bindparam("sid"))
    .order_by(Grant.created_at.desc())
    .limit(1)
)
_FIND_GRANT = _OF_SIGN_IN.where(Grant.user_id == bindparam("user_id", type_=_GRANTS.c.user_id.type))


def find_grant(
    connection: Connection, user_id: UUID | None, client_id: str, sid: str
) -> LiveGrant | None:
    """Return the newest grant of a user's sign-in at a client, if it and its user are live.

    `user_id`: `None` if the sign-in alone says who that is.
    """
    values = {"client_id": client_id, "sid": sid, "now": clock.now()}
    if user_id is None:
        row = prepared.first(connection, _OF_SIGN_IN, values)
    else:
        row = prepared.first(connection, _FIND_GRANT, {**values, "user_id": user_id})
    return grants.live_grant_of(row) if row else None


@dataclass(frozen=True)
class AssertedUser:
    """The user that an assertion of another server is about.

    `declined`: the scopes that the user withholds from the client.
    """

    user: UserProfile
    declined: str | None


_CONSENTS = prepared.table(Consent)
_FIND_USER = (
    select(*USER_PROFILE, _CONSENTS.c.declined.label("consent_declined"))
    .select_from(Identity)
    .join(User, User.id == Identity.user_id)
    .outerjoin(
        _CONSENTS,
        (_CONSENTS.c.user_id == User.id) & (_CONSENTS.c.client_id == bindparam("client_id")),
    )
    .where(
        Identity.issuer == bindparam("issuer"),
        Identity.subject == bindparam("subject"),
        Identity.barred_at.is_(None),
        ENABLED,
    )
)


def find_user(
    connection: Connection, issuer: str, subject: str, client_id: str
) -> AssertedUser | None:
    """Return the enabled user whose account at another server is linked."""
    values = {"issuer": issuer, "subject": subject, "client_id": client_id, "now": clock.now()}
    row = prepared.first(connection, _FIND_USER, values)
    if row is None:
        return None
    return AssertedUser(profile_of(row), row["consent_declined"])
