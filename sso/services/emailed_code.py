"""A short code in a mail: proves that who adds the first factor also reads the account's mail.

It works once, for ten minutes, in the session that asked for it, and dies with the password and
the address. Eight digits are few: they are stored as a keyed digest, and only so many tries count.
"""

import secrets
import unicodedata
from datetime import timedelta
from uuid import UUID, uuid4

from sso import clock, context
from sso.crypto import digests, encryption
from sso.models import MailToken, User
from sso.services import mail_links
from sso.store import mail_tokens

LIFETIME = timedelta(minutes=10)
DIGITS = 8
TRIES = 5
_PURPOSE = "enrolment_code"


def make(user: User, session_id: UUID) -> tuple[MailToken, str]:
    """A new code for one session, which ends the one before. Does not commit."""
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


def accept(user: User, session_id: UUID, code: str) -> bool:
    """Whether it is this session's code; it is used up. A wrong one uses up a try.

    Does not commit; the caller does, whatever the answer is.
    """
    bound_to = bond(user, session_id)
    found = mail_tokens.spend_try(user.id, _PURPOSE, bound_to, TRIES)
    # Spaces and dashes are ignored; an Arabic keyboard has digits of its own.
    typed = "".join(str(unicodedata.decimal(one)) for one in code[:40] if one.isdecimal())
    if found is None or not digests.equal(found.digest, _digest(found.id, bound_to, typed)):
        return False
    return mail_tokens.use(found)


def bond(user: User, session_id: UUID) -> str:
    """Another one for each session, and as soon as the address or the password is another one."""
    return digests.digest(f"{mail_links.bond(user)} {session_id}")


def _digest(token_id: UUID, bound_to: str, code: str) -> str:
    # Keyed: who reads the database alone could try all the codes that there are.
    key = encryption.derive_key(context.settings().secret_key, "emailed code")
    return digests.derive("hmac-sha256:", f"{token_id} {bound_to} {code}", key)
