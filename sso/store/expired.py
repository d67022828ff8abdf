"""Deletes what has expired and can no longer be asked about."""

from collections.abc import Callable
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, and_, delete, exists, or_

from sso import clock
from sso.extensions import db
from sso.models import (
    AuthorizationCode,
    BrowserSession,
    Grant,
    LogoutDelivery,
    Mail,
    MailToken,
    SigningKey,
    Token,
)

# A used code or an ended session is still asked about for a while: reuse must be seen.
KEEP = timedelta(days=1)
KEEP_DELIVERIES = timedelta(days=7)  # to look up why an application was not told
KEEP_KEYS = timedelta(days=90)


def purge(access_token_keep: timedelta) -> dict[str, int]:
    """Delete expired rows; tells how many of each table."""
    now = clock.now()
    return {
        name: _delete(table, condition(now, access_token_keep))
        for name, (table, condition) in _EXPIRED.items()
    }


def _delete(table: type, condition: ColumnElement[bool]) -> int:
    result = db.session.execute(
        delete(table).where(condition).execution_options(synchronize_session=False)
    )
    return int(result.rowcount)  # type: ignore[attr-defined]


def _tokens(now: datetime, _: timedelta) -> ColumnElement[bool]:
    return and_(
        Token.expires_at < now - KEEP,
        or_(Token.refresh_expires_at.is_(None), Token.refresh_expires_at < now - KEEP),
    )


def _codes(now: datetime, _: timedelta) -> ColumnElement[bool]:
    # As long as a token that the code gave may live, its reuse has something to end.
    return and_(
        AuthorizationCode.expires_at < now - KEEP,
        ~exists().where(Token.grant_id == AuthorizationCode.grant_id),
    )


def _grants(now: datetime, _: timedelta) -> ColumnElement[bool]:
    return and_(
        Grant.created_at < now - KEEP,
        # While its session lives, the client is owed a logout token when that ends.
        ~exists().where(
            BrowserSession.id == Grant.session_id,
            BrowserSession.ended_at.is_(None),
            BrowserSession.expires_at > now,
        ),
        ~exists().where(Token.grant_id == Grant.id),
        ~exists().where(AuthorizationCode.grant_id == Grant.id),
    )


def _sessions(now: datetime, _: timedelta) -> ColumnElement[bool]:
    return or_(BrowserSession.expires_at < now - KEEP, BrowserSession.ended_at < now - KEEP)


def _deliveries(now: datetime, _: timedelta) -> ColumnElement[bool]:
    return and_(
        LogoutDelivery.next_attempt_at.is_(None), LogoutDelivery.created_at < now - KEEP_DELIVERIES
    )


def _mails(now: datetime, _: timedelta) -> ColumnElement[bool]:
    return and_(
        Mail.next_attempt_at.is_(None),
        or_(
            Mail.created_at < now - KEEP_DELIVERIES,
            # Asked for by strangers, for addresses that nobody here has.
            and_(Mail.attempts == 1, Mail.delivered_at.is_(None), Mail.created_at < now - KEEP),
        ),
    )


def _mail_tokens(now: datetime, _: timedelta) -> ColumnElement[bool]:
    return MailToken.expires_at < now - KEEP


def _keys(now: datetime, keep: timedelta) -> ColumnElement[bool]:
    return SigningKey.retired_at < now - max(KEEP_KEYS, keep)


_EXPIRED: dict[str, tuple[type, Callable[[datetime, timedelta], ColumnElement[bool]]]] = {
    "tokens": (Token, _tokens),
    "authorization_codes": (AuthorizationCode, _codes),
    "grants": (Grant, _grants),
    "browser_sessions": (BrowserSession, _sessions),
    "logout_deliveries": (LogoutDelivery, _deliveries),
    "mails": (Mail, _mails),
    "mail_tokens": (MailToken, _mail_tokens),
    "signing_keys": (SigningKey, _keys),
}
