"""Links in mails: each has a random secret that works once, for a limited time and one purpose."""

import hashlib
from datetime import timedelta
from urllib.parse import urlencode

from sso import clock, context
from sso.crypto import secrets
from sso.models import MailToken, User
from sso.store import mail_tokens, users

LIFETIME = timedelta(hours=1)  # of all but invitations

VERIFY, CHANGE_EMAIL, RESET, INVITE, SIGN_UP, ENROLMENT = (
    "verify", "change_email", "reset", "invite", "sign_up", "enrolment_link",
)  # fmt: skip
# Not a link: the browser keeps it after using one to set a password (see `emailed_code`).
LINK_USED = "link_used"

# The page of each, below the base URL.
_PATHS = {
    VERIFY: "/verify-email",
    CHANGE_EMAIL: "/verify-email",
    RESET: "/new-password",
    INVITE: "/new-password",
    SIGN_UP: "/complete-sign-up",
    ENROLMENT: "/account/factors/link",  # handed over by an operator instead of a mail
}


def make(
    purpose: str, email: str, user: User | None, lives: timedelta | None = None
) -> tuple[MailToken, str]:
    """Create a link with a new secret, and store its digest.

    `lives`: its lifetime; by default, that of the purpose.
    """
    token, secret = make_secret(purpose, email, user, lives or lifetime(purpose))
    # The base URL, because a client may send any Host header.
    base_url = context.settings().base_url
    return token, f"{base_url}{_PATHS[purpose]}?{urlencode({'token': secret})}"


def make_secret(
    purpose: str, email: str, user: User | None, lives: timedelta
) -> tuple[MailToken, str]:
    """Create a secret without a link, and store its digest."""
    secret = secrets.make_secret(secrets.MAIL)
    now = clock.now()
    token = MailToken(
        digest=secrets.digest(secret),
        purpose=purpose,
        user_id=user.id if user else None,
        address=email,
        bound_to=bond(user),
        created_at=now,
        expires_at=now + lives,
    )
    mail_tokens.add(token)
    return token, secret


def lifetime(purpose: str) -> timedelta:
    """Return the lifetime of a link, counted from writing its mail."""
    if purpose == INVITE:
        return timedelta(seconds=context.settings().invitation_lifetime)
    return LIFETIME


def find(secret: str, *purposes: str) -> tuple[MailToken, User | None] | None:
    """Find the token and the user of an unused secret.

    The link stays valid, because mail scanners open links.
    """
    row = mail_tokens.find_live(secrets.digest(secret[:200]), purposes)
    if row is None:
        return None
    token, user = row
    if token.user_id is not None and (user is None or token.bound_to != bond(user)):
        return None
    return token, user


def use(token: MailToken, user: User | None) -> bool:
    """Mark a link as used; return False if it already was, or if the user has changed since.

    The user is locked until the transaction ends.
    """
    if not mail_tokens.use(token):
        return False
    if token.user_id is None:
        return True
    return users.lock(token.user_id) is not None and token.bound_to == bond(user)


def redeem(secret: str, *purposes: str) -> tuple[MailToken, User | None] | None:
    """Find a link and mark it as used; lock its user. Does not commit."""
    link = find(secret, *purposes)
    return link if link and use(*link) else None


def end_before_factors(user: User) -> None:
    """Invalidate links that were requested before the first factor, or before a reset.

    The caller has locked the user. Does not commit.
    """
    mail_tokens.end_all(user.id, (CHANGE_EMAIL, ENROLMENT, LINK_USED))


def bond(user: User | None) -> str:
    """Return a digest that changes with the address and the password of the user."""
    state = f"{user.email}\n{user.password_hash}" if user else ""
    return "sha256:" + hashlib.sha256(state.encode()).hexdigest()
