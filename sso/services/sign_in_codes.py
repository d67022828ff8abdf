"""Sign-in by a code that is sent by email, instead of a password. Nothing here commits.

A browser that asks for a code gets a token at once, whatever the address is. The worker gives the
token a code later, if the address has an account that may sign in so. Until then, and for all other
addresses, no code fits: neither the pages nor their time tell who has an account. The code is valid
only in the browser that asked, which has the token's id in its cookie.
"""

from datetime import timedelta
from uuid import UUID

from sso import audit, clock, context, database
from sso.audit import Actor
from sso.audit.events import Event
from sso.crypto import mail_codes, secrets
from sso.models import MailToken, User
from sso.services import credentials, identities, mail_links, notifications, roles
from sso.store import factors, mail_tokens, users

_PURPOSE = "sign_in_code"
_WAITS_FOR_MAIL = timedelta(hours=1)
_ANSWERED_FOR = _WAITS_FOR_MAIL + mail_codes.LIFETIME


@audit.acting
def request(actor: Actor, email: str, earlier: UUID | None) -> UUID:
    """Mail a code to an address, and return the id of its token; the result reveals nothing.

    `earlier`: the token that this browser had before, which ends.
    """
    if earlier:
        mail_tokens.end_one(earlier, _PURPOSE)
    now = clock.now()
    token = MailToken(
        digest=secrets.digest(secrets.make_secret(secrets.MAIL)),  # that no code has
        purpose=_PURPOSE,
        address=email,
        bound_to="",
        created_at=now,
        expires_at=now + _WAITS_FOR_MAIL,
    )
    mail_tokens.add(token)
    notifications.sign_in_code_asked(email, token.id)
    audit.event(Event.SIGN_IN_CODE_ASKED)
    return token.id


def address_of(token_id: UUID) -> str | None:
    """Return the address that a code was requested for; `None` if that is long ago."""
    token = mail_tokens.find(token_id, _PURPOSE)
    # By the time of the request alone: the purge deletes tokens with a code earlier.
    is_recent = token is not None and clock.now() - token.created_at < _ANSWERED_FOR
    return token.address if token and is_recent else None


def is_allowed_for(user: User) -> bool:
    """Return whether a user may sign in by a code: it is one factor, and replaces a password.

    Not for those who have a second factor or need one for the administration, and not for those
    whose password a directory checks, which may have locked the account.
    """
    return not (
        user.is_disabled
        or may_be_strangers(user)
        or roles.rights_of(user.groups)
        or identities.directory_of(user)
        or factors.has_any(database.session_connection(), user.id)
    )


def may_be_strangers(user: User) -> bool:
    """Return whether somebody else may know the password: the address was never confirmed.

    A code would prove the address of an account that the stranger goes on using. A reset proves it,
    too, and ends that.
    """
    return not user.email_verified and user.password_hash is not None


def make(token_id: UUID, user: User) -> str | None:
    """Give a token a new code for a user, for the mail; `None` if nobody waits for it any more."""
    code, bound_to = mail_codes.draw(), mail_links.bond(user)
    is_live = mail_tokens.set_code(
        token_id,
        _PURPOSE,
        digest=mail_codes.digest(_key(), token_id, bound_to, code),
        user=user,
        bound_to=bound_to,
        expires_at=clock.now() + mail_codes.LIFETIME,
    )
    return code if is_live else None


@audit.acting
def redeem(actor: Actor, token_id: UUID, typed: str) -> User | None:
    """Use up the code of a token; return its user, locked, or `None` if the code is wrong.

    A wrong one uses up a try. A right one proves the email address. The caller commits in both
    cases.
    """
    token = mail_tokens.spend_try_of(token_id, _PURPOSE, mail_codes.TRIES)
    user = _user_of(token, typed) if token else None
    if user is None:
        user_id = token.user_id if token else None
        audit.event(Event.SIGN_IN_FAILED, user=user_id, method="email_code")
        return None
    if not user.email_verified:
        credentials.verify_email(actor, user)
    return user


def _user_of(token: MailToken, typed: str) -> User | None:
    if token.user_id is None:
        return None
    if not mail_codes.matches(_key(), token.id, token.bound_to, typed, token.digest):
        return None
    if not mail_tokens.use(token):
        return None
    user = users.lock(token.user_id)
    # The account may have changed since the mail was written. Factors are read under the lock.
    is_same = user is not None and token.bound_to == mail_links.bond(user)
    return user if user and is_same and is_allowed_for(user) else None


def _key() -> str:
    return context.settings().secret_key
