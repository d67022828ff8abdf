"""What a user must prove before an account is changed, and the lock under which it is checked.

A session begins, factors change and passwords change only while the user's row is locked, and
whether the account has factors is read after that: so no session with one factor begins
after the first factor was added. Locks are taken in this order: user, then factor, then session.
"""

from datetime import datetime, timedelta

from sso import clock, context, database
from sso.flow.request import TWO_FACTORS
from sso.models import User
from sso.store import factors, sessions, users
from sso.store.factors import Factors
from sso.store.sessions import CurrentSession

FRESH_SIGN_IN = timedelta(minutes=5)  # to change factors, or to ask for an emailed code
RECENT_FACTOR = timedelta(minutes=15)  # to change the password or the email address
ALLOWED_FOR = timedelta(minutes=15)  # to add the first factor, after a code or a link allowed it
SETUP = timedelta(minutes=15)  # to scan a QR code and type a code back
# Anyone who has the password alone can redirect the account's mail; the owner needs time to notice.
EMAIL_SETTLES = timedelta(days=7)


def lock(visit: CurrentSession) -> CurrentSession | None:
    """The visit as it is now, its user locked until the transaction ends.

    `None` if meanwhile the session ended or got a new identifier, the password was changed, or the
    user was disabled.
    """
    digest, password_hash = visit.session.digest, visit.user.password_hash
    user = users.lock(visit.user.id)
    if user is None or user.password_hash != password_hash:
        return None
    return sessions.find_live_fresh(digest)


def is_fresh(visit: CurrentSession) -> bool:
    """Whether the person signed in just now."""
    return _within(visit.session.auth_time, FRESH_SIGN_IN)


def lacks_second_factor(visit: CurrentSession) -> bool:
    """Whether the account has factors, and none of them was shown in this session lately."""
    shown = _within(visit.session.second_factor_at, RECENT_FACTOR)
    return not shown and factors.has_any(database.session_connection(), visit.user.id)


def asks_for_code(visit: CurrentSession, known: Factors) -> bool:
    """Whether the first factor needs more than the password: a code by email, or a link.

    Without a mail server there is nothing to ask for.
    """
    if known or visit.session.acr == TWO_FACTORS or context.settings().smtp_url is None:
        return False
    return not _within(visit.session.enrolment_allowed_at, ALLOWED_FOR)


def may_change(visit: CurrentSession, known: Factors) -> bool:
    """Whether factors may be added or removed in this session now."""
    if known:
        return is_fresh(visit) and visit.session.acr == TWO_FACTORS
    if asks_for_code(visit, known):
        return False
    # The code was asked for by a fresh sign-in; its mail may have taken minutes.
    return is_fresh(visit) or _within(visit.session.enrolment_allowed_at, ALLOWED_FOR)


def may_finish(visit: CurrentSession, known: Factors) -> bool:
    """Whether an authenticator app may be added whose set-up page this session was given."""
    if visit.session.acr == TWO_FACTORS:
        return True
    if known:
        return False
    allowed = _within(visit.session.enrolment_allowed_at, ALLOWED_FOR + SETUP)
    return allowed or context.settings().smtp_url is None


def email_settled(user: User) -> bool:
    """Whether the email address is the user's for long enough to prove who they are."""
    return not _within(user.email_changed_at, EMAIL_SETTLES)


def _within(moment: datetime | None, span: timedelta) -> bool:
    return moment is not None and clock.now() - moment < span
