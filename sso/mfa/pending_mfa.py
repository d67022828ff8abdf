"""A sign-in that still needs its second factor.

The signed value is in the browser's cookie. It gives access to one page, the one that asks for the
second factor. It ends after ten minutes, with a new password, or with the end of the sign-in.
"""

from typing import NamedTuple
from uuid import UUID

import flask

from sso.crypto import secrets
from sso.mfa import signed_values
from sso.models import UpstreamSession, User
from sso.store import identities, outbox, users

LIFETIME = 600  # seconds, to look for the phone
_KEY = "pending_mfa"
_PURPOSE = "password was right"
_NOTICE = "half_way_notice"


class PendingMfa(NamedTuple):
    """Who has entered the right password, and whether to keep them signed in.

    `upstream`: or else, the sign-in through an identity provider.
    """

    user: User
    remember: bool
    upstream: UpstreamSession | None = None


def begin(user: User, remember: bool, upstream: UpstreamSession | None = None) -> None:
    """Note in the browser's cookie that the first factor was right."""
    value = [str(user.id), remember, _fingerprint(user), str(upstream.id) if upstream else None]
    flask.session[_KEY] = signed_values.sign(value, _PURPOSE)


def current() -> PendingMfa | None:
    """Whose second factor is pending in this browser, if they may still sign in."""
    text = flask.session.get(_KEY)
    found = signed_values.verify(text, _PURPOSE, LIFETIME) if isinstance(text, str) else None
    if found is None:
        return None
    user_id, remember, fingerprint, *via = found[0]
    user = users.find(UUID(user_id))
    if user is None or user.disabled_at or not secrets.is_equal(fingerprint, _fingerprint(user)):
        return None
    upstream = None
    if via and via[0]:
        upstream = identities.unused_session(UUID(via[0]), user.id)
        if upstream is None:  # ended by the provider, or unlinked
            return None
    return PendingMfa(user, bool(remember), upstream)


def notice_id() -> UUID | None:
    """The mail that is owed if the second step in this browser stays undone."""
    try:
        return UUID(flask.session.get(_NOTICE, ""))
    except (ValueError, TypeError, AttributeError):
        return None


def keep_notice(mail_id: UUID | None) -> None:
    """Remember that mail, so that `finish` can withdraw it."""
    if mail_id:
        flask.session[_NOTICE] = str(mail_id)


def finish(user: User) -> None:
    """The second step is done: the mail about it is owed no more. Does not commit."""
    if mail_id := notice_id():
        outbox.withdraw_mail(mail_id, user.id)
    flask.session.pop(_NOTICE, None)
    end()


def end() -> None:
    flask.session.pop(_KEY, None)


def _fingerprint(user: User) -> str:
    return secrets.digest(user.password_hash or "")
