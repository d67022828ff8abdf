"""Proofs that the person who adds the first factor also reads the account's mail.

A user who has just set the password by a mailed link has given this proof. Everyone else gets a
short code by mail.

A code works once, for ten minutes, in the session that asked for it, until the password or the
address changes. Eight digits are few: they are stored as a keyed digest, and tries are limited.
"""

import secrets
import unicodedata
from datetime import timedelta
from uuid import UUID, uuid4

from sso import audit, clock, context, database
from sso.audit import Actor
from sso.audit.events import Event
from sso.crypto import secrets as crypto_secrets
from sso.mfa import policy
from sso.models import BrowserSession, MailToken, User
from sso.services import mail_links, notifications
from sso.store import factors, mail_tokens

LIFETIME = timedelta(minutes=10)
LINK_COUNTS_FOR = timedelta(minutes=10)  # to sign in and begin to add the first factor
DIGITS = 8
TRIES = 5
_PURPOSE = "enrolment_code"


def make(user: User, session_id: UUID) -> tuple[MailToken, str]:
    """A new code for one session, which ends the one before."""
    bound_to, now = bond(user, session_id), clock.now()
    mail_tokens.end(user.id, _PURPOSE, bound_to)
    code = f"{secrets.randbelow(10**DIGITS):0{DIGITS}}"
    token_id = uuid4()
    token = MailToken(
        id=token_id,
        digest=_digest(token_id, bound_to, code),
        purpose=_PURPOSE,
        user_id=user.id,
        address=user.email,
        bound_to=bound_to,
        created_at=now,
        expires_at=now + LIFETIME,
    )
    mail_tokens.add(token)
    return token, code


@audit.acting
def request(actor: Actor, user: User, session: BrowserSession) -> bool:
    """Mail a code for this session. False if the user was sent too many within the hour."""
    if not notifications.enrolment_code_asked(user, session.id, bond(user, session.id)):
        return False
    audit.event(Event.ENROLMENT_CODE_ASKED, user=user.id)
    return True


@audit.acting
def allow_enrolment(actor: Actor, user: User, session: BrowserSession, method: str) -> None:
    """Let this session add the first factor, for a while: by `method`, "email" or "link"."""
    session.enrolment_allowed_at = clock.now()
    audit.event(Event.ENROLMENT_ALLOWED, user=user.id, sid=session.id, method=method)


def remember_link(user: User) -> str | None:
    """Make a secret for the browser in which this user has just set the password by a mailed link.

    `allow_by_link` accepts it instead of a code. Returns `None` for an account that has a factor,
    or whose email address changed recently. The caller has locked the user.
    """
    if not _may_be_first(user):
        return None
    return mail_links.make_secret(mail_links.LINK_USED, user.email, user, LINK_COUNTS_FOR)[1]


@audit.acting
def allow_by_link(actor: Actor, user: User, session: BrowserSession, secret: str) -> bool:
    """Let a new session add the first factor, until ten minutes after the link was used.

    `secret`: the one that `remember_link` made for this browser; it works once. Returns False if it
    is another user's, has expired, or became invalid by a change of the password, the address or
    the factors. The caller has locked the user.
    """
    token, owner = mail_links.find(secret, mail_links.LINK_USED) or (None, None)
    if token is None or owner is None or owner.id != user.id or not _may_be_first(user):
        return False
    if not mail_links.use(token, owner):
        return False
    session.enrolment_allowed_at = token.created_at - (policy.ALLOWED_FOR - LINK_COUNTS_FOR)
    audit.event(Event.ENROLMENT_ALLOWED, user=user.id, sid=session.id, method="password_link")
    return True


def _may_be_first(user: User) -> bool:
    has_factor = factors.has_any(database.session_connection(), user.id)
    return not has_factor and policy.email_settled(user)


@audit.acting
def accept(actor: Actor, user: User, session_id: UUID, code: str) -> bool:
    """Whether it is this session's code, which is used up; a wrong one uses up a try.

    The caller commits, whatever the answer is.
    """
    is_right = _use(user, session_id, code)
    if not is_right:
        audit.event(Event.ENROLMENT_CODE_FAILED, user=user.id)
    return is_right


def _use(user: User, session_id: UUID, code: str) -> bool:
    bound_to = bond(user, session_id)
    found = mail_tokens.spend_try(user.id, _PURPOSE, bound_to, TRIES)
    # Spaces and dashes are ignored; an Arabic keyboard has digits of its own.
    typed = "".join(str(unicodedata.decimal(one)) for one in code[:40] if one.isdecimal())
    if found is None or not crypto_secrets.is_equal(
        found.digest, _digest(found.id, bound_to, typed)
    ):
        return False
    return mail_tokens.use(found)


def bond(user: User, session_id: UUID) -> str:
    """Differs for each session, and once the address or the password changes."""
    return crypto_secrets.digest(f"{mail_links.bond(user)} {session_id}")


def _digest(token_id: UUID, bound_to: str, code: str) -> str:
    # Keyed: there are few codes, and a reader of the database could try them all.
    key = crypto_secrets.derive_key(context.settings().secret_key, "emailed code")
    return crypto_secrets.derive_secret("hmac-sha256:", f"{token_id} {bound_to} {code}", key)
