"""Second factors: show one, add one, remove one. Nothing here commits."""

from typing import NamedTuple

from sqlalchemy.exc import IntegrityError

from sso import audit
from sso.audit import Actor
from sso.audit.events import Event
from sso.i18n import N_
from sso.mfa import passkey_names, passkeys, policy, totp
from sso.models import Passkey, User
from sso.services import changes as differences
from sso.services import mail_links, notifications, revocation, unlinking
from sso.store import factors
from sso.store.factors import Factors
from sso.store.sessions import CurrentSession


class FactorRefused(ValueError):
    """A factor cannot be added or removed; `str()` says why, to its owner. To be rolled back."""


class Shown(NamedTuple):
    """Which kind of factor was tried, and the methods that it proves (RFC 8176) if it is right."""

    kind: str
    methods: str | None


class Added(NamedTuple):
    """A factor that was added, and so shown, and the recovery codes that the first one brings."""

    methods: str
    codes: list[str]


def show(user: User, code: str, recovery_code: str, credential: str, challenge: str) -> Shown:
    """Check what was given of a second factor, and use it up. The caller has locked the user.

    Nothing is recorded: the caller may still refuse the attempt and roll back. After that, call
    `record_recovery_code` where one was used.
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
    """Record that a recovery code was used, and tell its owner how many are left."""
    audit.event(Event.RECOVERY_CODE_USED, user=user.id)
    notifications.recovery_code_used(user, factors.unused_recovery_codes(user.id))


@audit.acting
def add_passkey(
    actor: Actor,
    current: CurrentSession,
    known: Factors,
    browser: str,
    credential: str,
    challenge: str,
) -> Added:
    """Add the passkey that a browser has made. `known`: the factors, read under `policy.lock`.

    `browser`: the browser's name, for a passkey of an unknown authenticator.
    """
    if len(known.passkeys) >= passkeys.MOST:
        raise FactorRefused(
            N_("You have reached the maximum number of passkeys. Remove one first.")
        )
    try:
        made = passkeys.enrol(current.user, browser, list(known.passkeys), credential, challenge)
    except IntegrityError:
        raise FactorRefused(N_("This passkey is already registered.")) from None
    if made is None:
        raise FactorRefused(N_("The passkey could not be set up. Please try again."))
    return _added(current, known, "passkey", made.name, policy.passkey_methods(made.is_synced))


@audit.acting
def add_totp(
    actor: Actor, current: CurrentSession, known: Factors, secret: str, code: str
) -> Added | None:
    """Add an authenticator app by a code of it; `None` if that is not right.

    `known`: as for `add_passkey`. Raises `IntegrityError` when there is one already.
    """
    if not totp.enrol(current.user.id, secret, code):
        return None
    return _added(current, known, "totp", notifications.APP_NAME, policy.OTP)


def _added(current: CurrentSession, known: Factors, kind: str, name: str, methods: str) -> Added:
    """With the first factor ends what the password alone has opened, `offline_access` included."""
    user, codes = current.user, []
    audit.event(Event.FACTOR_ADDED, user=user.id, kind=kind)
    notifications.factor_added(user, name)
    if not known:
        mail_links.end_before_factors(user)
        revocation.everything_of_user(user.id, "factor_added", current.session.id)
        codes = _new_codes(user)
    return Added(methods, codes)


@audit.acting
def rename_passkey(actor: Actor, user: User, known: Factors, passkey_id: str, name: str) -> None:
    """Rename one of the passkeys in `known`; a number makes the name distinct."""
    chosen = _chosen(known, passkey_id)
    if not (cleaned := passkey_names.clean(name)):
        raise FactorRefused(N_("Enter a name for the passkey."))
    others = [one.name for one in known.passkeys if one.id != chosen.id]
    after = {"name": passkey_names.distinct(cleaned, others)}
    if changes := differences.between({"name": chosen.name}, after):
        chosen.name = after["name"]
        audit.own_event(Event.FACTOR_RENAMED, user.id, kind="passkey", changes=changes)


def _chosen(known: Factors, passkey_id: str) -> Passkey:
    chosen = next((one for one in known.passkeys if str(one.id) == passkey_id), None)
    if chosen is None:
        raise FactorRefused(N_("This passkey was already removed."))
    return chosen


@audit.acting
def remove_passkey(actor: Actor, user: User, known: Factors, passkey_id: str) -> None:
    """Remove one of the passkeys in `known`."""
    chosen = _chosen(known, passkey_id)
    if not unlinking.has_other_way_in(user, passkey=chosen.id):
        raise FactorRefused(N_("This passkey is your only way to sign in. Add another one first."))
    factors.remove_passkey(user.id, chosen.id)
    _removed(user, known, "passkey", chosen.name)


@audit.acting
def remove_totp(actor: Actor, user: User, known: Factors) -> None:
    """Remove the authenticator app."""
    if not factors.remove_totp_secret(user.id):
        raise FactorRefused(N_("The authenticator app was already removed."))
    _removed(user, known, "totp", notifications.APP_NAME)


def _removed(user: User, known: Factors, kind: str, name: str) -> None:
    if known.count == 1:
        # They stand in for a factor; without one they would only be forgotten.
        factors.remove_recovery_codes(user.id)
    audit.event(Event.FACTOR_REMOVED, user=user.id, kind=kind)
    notifications.factor_removed(user, name)


@audit.acting
def renew_recovery_codes(actor: Actor, user: User, known: Factors) -> list[str]:
    """A new sheet of recovery codes, to be shown this once."""
    if not known:
        raise FactorRefused(N_("Set up a passkey or an authenticator app first."))
    notifications.recovery_codes_made(user)
    return _new_codes(user)


def _new_codes(user: User) -> list[str]:
    codes = totp.renew_recovery_codes(user.id)
    audit.event(Event.RECOVERY_CODES_MADE, user=user.id)
    return codes
