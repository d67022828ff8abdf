"""Links in mails: a random secret that works once, for a while, for one purpose and one address."""

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
# Not a link: kept by the browser that used one to set a password (see `emailed_code`).
LINK_USED = "link_used"

# Where each leads, below the base address.
_PATHS = {
    VERIFY: "/verify-email",
    CHANGE_EMAIL: "/verify-email",
    RESET: "/new-password",
    INVITE: "/new-password",
    SIGN_UP: "/complete-sign-up",
    ENROLMENT: "/account/factors/link",  # handed over by an operator instead of a mail
}


def make(
    purpose: str, address: str, user: User | None, lives: timedelta | None = None
) -> tuple[MailToken, str]:
    """A new secret, stored as its digest, and the link that carries it.

    `lives`: how long it works, if not as long as all links for this purpose.
    """
    token, secret = make_secret(purpose, address, user, lives or lifetime(purpose))
    # The base URL alone: a Host header is whatever a client sends.
    base_url = context.settings().base_url
    return token, f"{base_url}{_PATHS[purpose]}?{urlencode({'token': secret})}"


def make_secret(
    purpose: str, address: str, user: User | None, lives: timedelta
) -> tuple[MailToken, str]:
    """Do the same as `make`, but return the secret without a link."""
    secret = secrets.make_secret(secrets.MAIL)
    now = clock.now()
    token = MailToken(
        digest=secrets.digest(secret),
        purpose=purpose,
        user_id=user.id if user else None,
        address=address,
        bound_to=bond(user),
        created_at=now,
        expires_at=now + lives,
    )
    mail_tokens.add(token)
    return token, secret


def lifetime(purpose: str) -> timedelta:
    """How long a link for this purpose works, from the moment when its mail is written."""
    if purpose == INVITE:
        return timedelta(seconds=context.settings().invitation_lifetime)
    return LIFETIME


def find(secret: str, *purposes: str) -> tuple[MailToken, User | None] | None:
    """The token and the user of an unused secret; changes nothing (mail scanners open links)."""
    found = mail_tokens.find_live(secrets.digest(secret[:200]), purposes)
    if found is None:
        return None
    token, user = found
    if token.user_id is not None and (user is None or token.bound_to != bond(user)):
        return None
    return token, user


def use(token: MailToken, user: User | None) -> bool:
    """Use a link up. False if another request was quicker, or the user has changed meanwhile.

    Nobody else changes the user until the transaction ends.
    """
    if not mail_tokens.use(token):
        return False
    if token.user_id is None:
        return True
    return users.lock(token.user_id) is not None and token.bound_to == bond(user)


def redeem(secret: str, *purposes: str) -> tuple[MailToken, User | None] | None:
    """As `find`, and use the link up, at once; then its user is locked. Does not commit."""
    found = find(secret, *purposes)
    return found if found and use(*found) else None


def end_before_factors(user: User) -> None:
    """End what was asked for before the first factor, or before a reset. Does not commit.

    The caller has locked the user.
    """
    mail_tokens.end_all(user.id, (CHANGE_EMAIL, ENROLMENT, LINK_USED))


def bond(user: User | None) -> str:
    """Differs once the user's address or password changes."""
    state = f"{user.email}\n{user.password_hash}" if user else ""
    return "sha256:" + hashlib.sha256(state.encode()).hexdigest()
