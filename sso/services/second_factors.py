"""Second factors: verify, add, rename and remove them. Nothing here commits.

Adding the first factor requires access to the user's mail. A user who has just set the password by
a mailed link has proven it. All others are mailed a short code. It works once, for ten minutes, in
the session that requested it, until the password or the email address changes. Because eight digits
are few, the code is stored as a keyed digest, and tries are limited.
"""

from datetime import timedelta
from typing import NamedTuple
from uuid import UUID, uuid4

from sqlalchemy.exc import IntegrityError

from sso import audit, clock, context, database
from sso.audit import Actor
from sso.audit.events import Event
from sso.crypto import mail_codes
from sso.crypto import secrets as crypto_secrets
from sso.i18n import N_
from sso.mfa import passkey_names, passkeys, policy, totp
from sso.models import BrowserSession, MailToken, Passkey, User
from sso.services import changes as differences
from sso.services import identities, mail_links, notifications, revocation
from sso.store import factors, mail_tokens
from sso.store.factors import Factors
from sso.store.sessions import CurrentSession


class FactorRefused(ValueError):
    """A factor cannot be added or removed; `str()` tells the user why. The caller rolls back."""


class Shown(NamedTuple):
    """The kind of factor that was tried; `methods` (RFC 8176) is `None` if it was wrong."""

    kind: str
    methods: str | None


class Added(NamedTuple):
    """The methods of a new factor, and the recovery codes that come with the first one."""

    methods: str
    codes: list[str]


def show(user: User, code: str, recovery_code: str, credential: str, challenge: str) -> Shown:
    """Verify a second factor, and mark it as used. The caller has locked the user.

    No event is recorded: the caller may still refuse the attempt and roll back. After a recovery
    code, the caller calls `record_recovery_code`.
    """
    if credential:
        return Shown("passkey", passkeys.accept_as_second(user, credential, challenge))
    if not recovery_code:
        return Shown("totp", policy.OTP if totp.accept(user.id, code) else None)
    return Shown(
        "recovery", policy.OTP if totp.accept_recovery_code(user.id, recovery_code) else None
    )


@audit.acting
def record_recovery_code(actor: Actor, user: User) -> None:
    """Record the use of a recovery code, and notify the user how many are left."""
    audit.event(Event.RECOVERY_CODE_USED, user=user.id)
    notifications.recovery_code_used(user, factors.unused_recovery_codes(user.id))


@audit.acting
def add_passkey(
    actor: Actor,
    current: CurrentSession,
    existing: Factors,
    browser: str,
    credential: str,
    challenge: str,
) -> Added:
    """Add a passkey that a browser has created. `existing`: factors, read under `policy.lock`.

    `browser`: the browser's name, for a passkey of an unknown authenticator.
    """
    if len(existing.passkeys) >= passkeys.MOST:
        raise FactorRefused(
            N_("You have reached the maximum number of passkeys. Remove one first.")
        )
    try:
        passkey = passkeys.enrol(
            current.user, browser, list(existing.passkeys), credential, challenge
        )
    except IntegrityError:
        raise FactorRefused(N_("This passkey is already registered.")) from None
    if passkey is None:
        raise FactorRefused(N_("The passkey could not be set up. Please try again."))
    return _added(
        current, existing, "passkey", passkey.name, policy.passkey_methods(passkey.is_synced)
    )


@audit.acting
def add_totp(
    actor: Actor, current: CurrentSession, existing: Factors, secret: str, code: str
) -> Added | None:
    """Add an authenticator app that shows this code; return `None` if the code is wrong.

    `existing`: as for `add_passkey`. Raises `IntegrityError` when there is one already.
    """
    if not totp.enrol(current.user.id, secret, code):
        return None
    return _added(current, existing, "totp", notifications.APP_NAME, policy.OTP)


def _added(current: CurrentSession, existing: Factors, kind: str, name: str, methods: str) -> Added:
    """Record a new factor. The first one ends all other sessions and grants of the user."""
    user, codes = current.user, []
    audit.event(Event.FACTOR_ADDED, user=user.id, kind=kind)
    notifications.factor_added(user, name)
    if not existing:
        end_what_was_before(user, current.session.id)
        codes = _new_codes(user)
    return Added(methods, codes)


def end_what_was_before(user: User, but: UUID | None = None) -> None:
    """End what a user got before the first second factor, by a password alone: sessions, except the
    session `but`, grants, and mailed links. The caller has locked the user.
    """
    mail_links.end_before_factors(user)
    revocation.everything_of_user(user.id, "factor_added", but)


@audit.acting
def rename_passkey(actor: Actor, user: User, existing: Factors, passkey_id: str, name: str) -> None:
    """Rename one of the passkeys in `existing`; a number makes the name distinct."""
    passkey = _chosen(existing, passkey_id)
    if not (cleaned := passkey_names.clean(name)):
        raise FactorRefused(N_("Enter a name for the passkey."))
    names = [other.name for other in existing.passkeys if other.id != passkey.id]
    after = {"name": passkey_names.distinct(cleaned, names)}
    if changes := differences.between({"name": passkey.name}, after):
        passkey.name = after["name"]
        audit.own_event(Event.FACTOR_RENAMED, user.id, kind="passkey", changes=changes)


def _chosen(existing: Factors, passkey_id: str) -> Passkey:
    passkey = next(
        (candidate for candidate in existing.passkeys if str(candidate.id) == passkey_id), None
    )
    if passkey is None:
        raise FactorRefused(N_("This passkey was already removed."))
    return passkey


@audit.acting
def remove_passkey(actor: Actor, user: User, existing: Factors, passkey_id: str) -> None:
    """Remove one of the passkeys in `existing`."""
    passkey = _chosen(existing, passkey_id)
    if not identities.has_other_way_in(user, passkey=passkey.id):
        raise FactorRefused(N_("This passkey is your only way to sign in. Add another one first."))
    factors.remove_passkey(user.id, passkey.id)
    _removed(user, existing, "passkey", passkey.name)


@audit.acting
def remove_totp(actor: Actor, user: User, existing: Factors) -> None:
    """Remove the authenticator app."""
    if not factors.remove_totp_secret(user.id):
        raise FactorRefused(N_("The authenticator app was already removed."))
    _removed(user, existing, "totp", notifications.APP_NAME)


def _removed(user: User, existing: Factors, kind: str, name: str) -> None:
    if existing.count == 1:
        # They replace a factor; without one they have no use.
        factors.remove_recovery_codes(user.id)
    audit.event(Event.FACTOR_REMOVED, user=user.id, kind=kind)
    notifications.factor_removed(user, name)


@audit.acting
def renew_recovery_codes(actor: Actor, user: User, existing: Factors) -> list[str]:
    """Replace the recovery codes; return the new ones, which are shown once."""
    if not existing:
        raise FactorRefused(N_("Set up a passkey or an authenticator app first."))
    notifications.recovery_codes_made(user)
    return _new_codes(user)


def _new_codes(user: User) -> list[str]:
    codes = totp.renew_recovery_codes(user.id)
    audit.event(Event.RECOVERY_CODES_MADE, user=user.id)
    return codes


LINK_COUNTS_FOR = timedelta(minutes=10)  # to sign in and begin to add the first factor
_PURPOSE = "enrolment_code"


def make_emailed_code(user: User, session_id: UUID) -> tuple[MailToken, str]:
    """Create a code for one session, and invalidate its previous code."""
    bound_to, now = emailed_code_bond(user, session_id), clock.now()
    mail_tokens.end(user.id, _PURPOSE, bound_to)
    code, token_id = mail_codes.draw(), uuid4()
    token = MailToken(
        id=token_id,
        digest=mail_codes.digest(_key(), token_id, bound_to, code),
        purpose=_PURPOSE,
        user_id=user.id,
        address=user.email,
        bound_to=bound_to,
        created_at=now,
        expires_at=now + mail_codes.LIFETIME,
    )
    mail_tokens.add(token)
    return token, code


@audit.acting
def request_emailed_code(actor: Actor, user: User, session: BrowserSession) -> bool:
    """Mail a code for this session; return False if too many were sent within the hour."""
    if not notifications.enrolment_code_asked(
        user, session.id, emailed_code_bond(user, session.id)
    ):
        return False
    audit.event(Event.ENROLMENT_CODE_ASKED, user=user.id)
    return True


@audit.acting
def allow_enrolment(actor: Actor, user: User, session: BrowserSession, method: str) -> None:
    """Allow this session to add the first factor, for a while. `method`: "email" or "link"."""
    session.enrolment_allowed_at = clock.now()
    audit.event(Event.ENROLMENT_ALLOWED, user=user.id, sid=session.id, method=method)


def remember_link(user: User) -> str | None:
    """Create a secret for the browser in which a mailed link was just used to set the password.

    `allow_by_link` accepts it instead of a code. Returns `None` for an account that has a factor,
    or whose email address changed recently. The caller has locked the user.
    """
    if not _may_be_first(user):
        return None
    return mail_links.make_secret(mail_links.LINK_USED, user.email, user, LINK_COUNTS_FOR)[1]


@audit.acting
def allow_by_link(actor: Actor, user: User, session: BrowserSession, secret: str) -> bool:
    """Allow a new session to add the first factor, until ten minutes after the link was used.

    `secret`: the secret that `remember_link` made for this browser; it works once. Returns False if
    it belongs to another user, has expired, or became invalid by a change of the password, the
    email address or the factors. The caller has locked the user.
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
def accept_emailed_code(actor: Actor, user: User, session_id: UUID, code: str) -> bool:
    """Use up this session's code; return False if it is wrong, which uses up a try.

    The caller commits in both cases.
    """
    is_right = _use(user, session_id, code)
    if not is_right:
        audit.event(Event.ENROLMENT_CODE_FAILED, user=user.id)
    return is_right


def _use(user: User, session_id: UUID, code: str) -> bool:
    bound_to = emailed_code_bond(user, session_id)
    token = mail_tokens.spend_try(user.id, _PURPOSE, bound_to, mail_codes.TRIES)
    if token is None or not mail_codes.matches(_key(), token.id, bound_to, code, token.digest):
        return False
    return mail_tokens.use(token)


def emailed_code_bond(user: User, session_id: UUID) -> str:
    """Return a digest that differs for each session, email address and password."""
    return crypto_secrets.digest(f"{mail_links.bond(user)} {session_id}")


def _key() -> str:
    return context.settings().secret_key
