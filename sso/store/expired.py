"""Delete expired rows that nobody can ask about any more, a bounded number at a time."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, and_, delete, exists, func, inspect, or_, select, true, tuple_
from sqlalchemy.orm import InstrumentedAttribute, aliased

from sso import clock
from sso.extensions import Base, db
from sso.models import (
    ApiToken,
    AuthorizationCode,
    BrowserSession,
    Client,
    DeviceCode,
    Grant,
    ImportedHash,
    LogoutDelivery,
    Mail,
    MailToken,
    PushedRequest,
    Refusal,
    ScimDelivery,
    ServiceToken,
    SigningKey,
    Token,
    UpstreamSession,
    UsedOnce,
    User,
    WaitingSignIn,
    WebhookDelivery,
)
from sso.store.lists import write

# A used code or an ended session is still looked up for a while: reuse must be detected.
KEEP = timedelta(days=1)
KEEP_UNREDEEMED = timedelta(minutes=10)  # the longest life of a code
CLOCK_SKEW = timedelta(minutes=1)  # between nodes
TOKENS_AT_ONCE = 20  # of one grant
EXAMINED = 5000  # rows by one statement
KEEP_DEVICES = timedelta(hours=1)  # so that a device learns that its code has expired
KEEP_DELIVERIES = timedelta(days=7)  # to look up why an application was not notified
KEEP_REFUSALS = timedelta(days=7)
KEEP_KEYS = timedelta(days=90)
KEEP_API_TOKENS = timedelta(days=90)
KEEP_AGENTS = timedelta(days=30)  # without use


@dataclass(frozen=True)
class Expiry:
    """The rule by which rows may be deleted: `keep` after the moment in `column`, if `condition`
    holds.

    `column` has an index, and has a value in every row that is ever deleted. `many_stay`: most rows
    stay for long after that moment, because of others; the worker examines a part of them at once.
    """

    table: type[Base]
    column: InstrumentedAttribute[Any]
    keep: timedelta = KEEP
    condition: Callable[[datetime], ColumnElement[bool]] = lambda _: true()
    among: ColumnElement[bool] | None = None
    many_stay: bool = False

    @property
    def name(self) -> str:
        return str(self.table.__tablename__)


class Batch(NamedTuple):
    """The last row that a batch examined (`None` at the end), and the number of deleted rows.

    `stayed`: how many rows were examined and stay, about.
    """

    last: tuple[Any, Any] | None
    deleted: int
    stayed: int = 0


def somewhere(expiry: Expiry, most: int) -> tuple[Any, Any] | None:
    """Return a candidate at random to begin after; `None`, for the oldest, if there are few.

    So a worker that is started again and again gets to all rows nevertheless.
    """
    key = inspect(expiry.table).primary_key[0]
    candidates = select(expiry.column, key).order_by(expiry.column, key)
    oldest = db.session.scalar(candidates.limit(1))
    if oldest is None or db.session.execute(candidates.offset(most).limit(1)).first() is None:
        return None
    moment = oldest + (clock.now() - oldest) * random.random()  # noqa: S311  # no secret
    row = db.session.execute(candidates.where(expiry.column >= moment).limit(1)).first()
    return (row[0], row[1]) if row else None


def delete_batch(
    expiry: Expiry, after: tuple[Any, Any] | None, size: int, examined: int = EXAMINED
) -> Batch:
    """Examine the next candidates, oldest first, and delete up to `size` that may be deleted.

    The database examines up to `examined` rows, and returns only those: a used code is examined
    again and again until its tokens have expired. Reading locks nothing. Rows that another
    transaction has locked are left for the next time.
    """
    now, stayed = clock.now(), 0
    key, condition = inspect(expiry.table).primary_key[0], expiry.condition(now)
    place = tuple_(expiry.column, key)
    candidates = select(expiry.column, key).where(expiry.column < now - expiry.keep)
    if expiry.among is not None:
        candidates = candidates.where(expiry.among)
    if after is not None:
        candidates = candidates.where(place > tuple_(*after))
    in_order = candidates.order_by(expiry.column, key)
    last = db.session.execute(in_order.offset(examined - 1).limit(1)).first()
    if last is not None:
        in_order = in_order.where(place <= tuple_(*last))
    rows = db.session.execute(in_order.where(condition).limit(size)).all()
    deleted = 0
    if rows:
        keys = [row[1] for row in rows]
        unlocked = select(key).where(key.in_(keys), condition).with_for_update(skip_locked=True)
        deleted = write(delete(expiry.table).where(key.in_(unlocked)))
    if len(rows) == size:
        last = rows[-1]
    elif last is not None:
        stayed = examined - deleted
    return Batch((last[0], last[1]) if last else None, deleted, stayed)


def _code(_: datetime) -> ColumnElement[bool]:
    return and_(
        # As long as a token from this code may live, reuse of the code must end it.
        ~exists().where(Token.grant_id == AuthorizationCode.grant_id),
        # An unused code shows that its grant gave no tokens, and is deleted with it.
        AuthorizationCode.used_at.is_not(None),
    )


def _device_code(_: datetime) -> ColumnElement[bool]:
    # As for an authorization code. An unused one is deleted with its grant, too.
    return and_(
        ~exists().where(Token.grant_id == DeviceCode.grant_id),
        DeviceCode.used_at.is_not(None),
    )


def _grant(now: datetime) -> ColumnElement[bool]:
    has_tokens = exists().where(Token.grant_id == Grant.id)
    session_is_live = exists().where(
        BrowserSession.id == Grant.session_id,
        BrowserSession.ended_at.is_(None),
        BrowserSession.expires_at > now,
    )
    never_gave_tokens = and_(~has_tokens, _has_unused_code(Grant, now - CLOCK_SKEW))
    is_over = and_(
        Grant.created_at < now - KEEP,
        # While its session lives, the client has to get a logout token when the session ends.
        ~session_is_live,
        ~has_tokens,
        ~exists().where(AuthorizationCode.grant_id == Grant.id),
        ~exists().where(DeviceCode.grant_id == Grant.id),
    )
    has_ended = and_(
        Grant.ended_at < now - KEEP,
        ~_has_many_tokens(),
        # A later grant of the same session ensures the logout token.
        or_(~session_is_live, _has_later()),
    )
    return or_(never_gave_tokens, is_over, has_ended)


def _has_unused_code(grant: Any, expired_by: datetime | None = None) -> ColumnElement[bool]:
    """Whether a code or a device code that gave the grant was never redeemed."""
    return or_(
        *(
            exists().where(
                code.grant_id == grant.id,
                code.used_at.is_(None),
                *([code.expires_at < expired_by] if expired_by else []),
            )
            for code in (AuthorizationCode, DeviceCode)
        )
    )


def _has_many_tokens() -> ColumnElement[bool]:
    """Return the condition that a grant has too many tokens to be deleted with it: they are deleted
    when they expire.
    """
    of_grant = select(Token.jti).where(Token.grant_id == Grant.id).correlate(Grant)
    return of_grant.offset(TOKENS_AT_ONCE).limit(1).exists()


def _has_later() -> ColumnElement[bool]:
    """Return the condition that the same session gave the same client tokens once more."""
    later = aliased(Grant)
    return exists().where(
        later.session_id == Grant.session_id,
        later.client_id == Grant.client_id,
        later.created_at > Grant.created_at,
        ~_has_unused_code(later),
    )


def _agent(_: datetime) -> ColumnElement[bool]:
    # Without LIMIT, SQLite that knows how many grants a client has on average reads all of them.
    grants = select(Grant.id).where(Grant.client_id == Client.client_id).correlate(Client).limit(1)
    # A disabled one stays, so that it does not come back.
    return and_(Client.disabled_at.is_(None), ~grants.exists())


def _mail(now: datetime) -> ColumnElement[bool]:
    # Never delivered: strangers requested them for email addresses that no account has.
    has_no_account = and_(Mail.attempts == 1, Mail.delivered_at.is_(None))
    is_old = Mail.created_at < now - KEEP_DELIVERIES
    return and_(Mail.next_attempt_at.is_(None), or_(is_old, has_no_account))


def _pushed_request(now: datetime) -> ColumnElement[bool]:
    # The user may be at one of our pages.
    is_waiting = PushedRequest.waits_until >= now - CLOCK_SKEW
    return or_(PushedRequest.used_at.is_not(None), PushedRequest.waits_until.is_(None), ~is_waiting)


def _imported_hash(now: datetime) -> ColumnElement[bool]:
    method = ImportedHash.method
    is_in_use = func.substr(User.password_hash, 1, func.length(method) + 1) == method + "$"
    # An import may have added users with this method since the row was read.
    return and_(ImportedHash.imported_at < now - KEEP, ~exists().where(is_in_use))


# There may be very many of these rows, and pushed requests may hold personal data.
LIVING_MINUTES = (
    Expiry(UsedOnce, UsedOnce.expires_at, CLOCK_SKEW),
    Expiry(PushedRequest, PushedRequest.expires_at, CLOCK_SKEW, _pushed_request),
    Expiry(WaitingSignIn, WaitingSignIn.expires_at, CLOCK_SKEW),
    Expiry(DeviceCode, DeviceCode.expires_at, KEEP_DEVICES, among=DeviceCode.grant_id.is_(None)),
)
# In this order: a row is deleted after the rows that need it.
EXPIRIES = (
    Expiry(Token, Token.refresh_expires_at, condition=lambda now: Token.expires_at < now - KEEP),
    # Of a repeated refresh: its refresh token stands in another row.
    Expiry(Token, Token.expires_at, among=Token.refresh_expires_at.is_(None)),
    # Nothing hangs on it, and a service may ask for one a second.
    Expiry(ServiceToken, ServiceToken.expires_at, CLOCK_SKEW),
    Expiry(AuthorizationCode, AuthorizationCode.expires_at, condition=_code, many_stay=True),
    Expiry(
        DeviceCode,
        DeviceCode.expires_at,
        condition=_device_code,
        among=DeviceCode.grant_id.is_not(None),
        many_stay=True,
    ),
    Expiry(Grant, Grant.created_at, KEEP_UNREDEEMED, _grant, many_stay=True),
    # An ended session is deleted when it would have expired.
    Expiry(BrowserSession, BrowserSession.expires_at),
    # Of a sign-in that was never completed; others are deleted with their session.
    Expiry(
        UpstreamSession,
        UpstreamSession.created_at,
        condition=lambda _: UpstreamSession.session_id.is_(None),
        many_stay=True,
    ),
    Expiry(
        LogoutDelivery,
        LogoutDelivery.created_at,
        KEEP_DELIVERIES,
        lambda _: LogoutDelivery.next_attempt_at.is_(None),
    ),
    Expiry(
        WebhookDelivery,
        WebhookDelivery.created_at,
        KEEP_DELIVERIES,
        lambda _: WebhookDelivery.next_attempt_at.is_(None),
    ),
    Expiry(ScimDelivery, ScimDelivery.started_at, KEEP_DELIVERIES),
    Expiry(Mail, Mail.created_at, condition=_mail),
    Expiry(MailToken, MailToken.expires_at),
    *LIVING_MINUTES,
    Expiry(Refusal, Refusal.at, KEEP_REFUSALS),
    Expiry(SigningKey, SigningKey.retired_at, KEEP_KEYS),
    Expiry(ApiToken, ApiToken.expires_at, KEEP_API_TOKENS),
    Expiry(Client, Client.updated_at, KEEP_AGENTS, _agent, among=Client.registration.is_not(None)),
    Expiry(ImportedHash, ImportedHash.imported_at, condition=_imported_hash),
)
