"""Notifications: queue mails, with one function for each cause, in the transaction of the cause.

A worker writes and sends them (`jobs.mail`). An address that a stranger typed is not looked up
here, so that neither the text nor the time of a response depends on it.

Functions for operators return False if the mail was not queued, for instance because there were
too many within the hour.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from sso import audit, clock, context
from sso.audit.events import Event
from sso.config.email_addresses import domain
from sso.config.urls import DOCTOR_DOMAIN
from sso.i18n import N_
from sso.models import BrowserSession, Mail, User
from sso.services import mail_links
from sso.store import outbox
from sso.store.outbox import NewMail

APP_NAME = N_("Authenticator app")
# Domains without mail: RFC 6761 §6.4, and the domain of the user of `flask doctor`. Other reserved
# names, such as .test and .local, may exist in the operator's own network.
_NOWHERE = ("invalid", DOCTOR_DOMAIN)


def verify(user: User) -> bool:
    """Ask a user to confirm the address."""
    return _enqueue("verify", user.email, user) is not None


def invited(user: User) -> bool:
    """Invite a new user to set a password."""
    return _enqueue("invite", user.email, user) is not None


def welcome(invited: Iterable[User], unverified: Iterable[User]) -> list[list[NewMail]]:
    """Make the mails that invite many new users, and ask others to confirm the address."""
    return [
        [mail for user in users if (mail := _mail(kind, user.email, user, {}))]
        for kind, users in (("invite", invited), ("verify", unverified))
    ]


def queue_all(mails: Sequence[NewMail]) -> None:
    """Queue many mails of one kind in few statements."""
    surplus = outbox.add_all(mails)
    for mail in mails if surplus else ():
        if mail.id in surplus:
            audit.event(Event.MAIL_LIMITED, kind=mail.kind, user=mail.user_id)


def reset_asked(email: str) -> bool:
    """Send the link to set a new password, if there is an account with this address."""
    return _enqueue("reset", email) is not None


def sign_up_asked(email: str) -> None:
    """Send the link to create an account, or a notice if the address has one."""
    _enqueue("sign_up", email)


def sign_in_code_asked(email: str, token_id: UUID) -> None:
    """Send the code of a token, or a notice if the account of this address cannot use one."""
    _enqueue("sign_in_code", email, token=str(token_id))


def email_change_asked(user: User, email: str) -> None:
    """Ask the new address for confirmation, and warn the old one."""
    # If the password changes before the mail is sent, the link must not survive it.
    _enqueue("change_email", email, user, bond=mail_links.bond(user))
    _enqueue("email_change_asked", user.email, user, new_address=email)


def email_changed(user: User, before: str) -> None:
    """Tell the old address what the new one is."""
    _enqueue("email_changed", before, user, new_address=user.email)


def account_ends(user: User) -> None:
    """Tell a user when the account ends."""
    end = user.ends_at
    _enqueue("account_ends", user.email, user, time=end.isoformat() if end else None)


def memberships_end(user: User, groups: Sequence[str], end: datetime) -> None:
    """Tell a user when memberships of groups end."""
    _enqueue("memberships_end", user.email, user, groups=", ".join(groups), time=end.isoformat())


def api_tokens_end(user: User, names: Sequence[str]) -> None:
    """Tell who can replace them of API tokens that expire soon; `names`: each with its end."""
    _enqueue("api_tokens_end", user.email, user, names=", ".join(names))


def client_secrets_end(user: User, names: Sequence[str]) -> None:
    """Tell an administrator of client secrets that end soon, as `api_tokens_end` does."""
    _enqueue("client_secrets_end", user.email, user, names=", ".join(names))


def account_deleted(user: User) -> None:
    """Confirm to a former user that the account was deleted."""
    _enqueue("account_deleted", user.email)


def password_changed(user: User) -> None:
    _enqueue("password_changed", user.email, user)


def new_browser(user: User, session: BrowserSession) -> None:
    """Report a sign-in from a browser that is new for this user."""
    details: dict[str, Any] = {"browser": session.browser, "network": session.address}
    _enqueue("new_browser", user.email, user, **details, time=session.auth_time.isoformat())


def device_added(user: User, client: str, program: str, ip_address: str) -> None:
    """Report a device that was signed in, by its application, and where its request came from."""
    details: dict[str, Any] = {"client": client, "program": program, "network": ip_address}
    _enqueue("device_added", user.email, user, **details, time=clock.now().isoformat())


def agent_connected(user: User, client: str, ip_address: str) -> None:
    """Report an agent that a user has allowed for the first time, as it is named to people."""
    details: dict[str, Any] = {"client": client, "network": ip_address}
    _enqueue("agent_connected", user.email, user, **details, time=clock.now().isoformat())


def factor_added(user: User, name: str) -> None:
    """Report a new second factor by its name."""
    _enqueue("factor_added", user.email, user, factor=name)


def factor_removed(user: User, name: str) -> None:
    _enqueue("factor_removed", user.email, user, factor=name)


def identity_added(user: User, provider: str, account: str) -> None:
    """Report a new way to sign in: an account at an upstream provider."""
    _enqueue("identity_added", user.email, user, provider=provider, account=account)


def identity_removed(user: User, provider: str, account: str) -> None:
    _enqueue("identity_removed", user.email, user, provider=provider, account=account)


def recovery_codes_made(user: User) -> None:
    """Report new recovery codes."""
    _enqueue("recovery_codes_made", user.email, user)


def recovery_code_used(user: User, remaining: int) -> None:
    """Report that a recovery code was used, and how many are left."""
    _enqueue("recovery_code_used", user.email, user, left=remaining)


def second_step_missing(
    user: User, browser: str, network: str, after: timedelta, earlier: UUID | None
) -> UUID | None:
    """Report a correct password without the second step, unless that follows in time.

    The mail is sent `after` that time; until then `outbox.withdraw_mail` removes it. `earlier`: the
    previous mail that this browser caused; no other is queued while it waits. Returns the id of the
    waiting mail.
    """
    if earlier and outbox.is_mail_waiting(earlier, user.id):
        return earlier
    now = clock.now()
    details: dict[str, Any] = {
        "browser": browser[:200],
        "network": network[:45],
        "time": now.isoformat(),
    }
    return _enqueue("second_step_missing", user.email, user, due=now + after, **details)


def enrolment_code_asked(user: User, session_id: UUID, bond: str) -> bool:
    """Send the code that allows a session to add the first factor.

    Returns False if there were too many. `bond`: the bond of the code; the mail is dropped if it
    has changed before the mail is sent.
    """
    details: dict[str, Any] = {"session": str(session_id), "bond": bond}
    return _enqueue("enrolment_code", user.email, user, **details) is not None


def _enqueue(
    kind: str,
    email: str,
    user: User | None = None,
    due: datetime | None = None,
    **details: Any,
) -> UUID | None:
    """Queue a mail; return its id, or `None` if it was not queued."""
    planned = _mail(kind, email, user, details)
    if planned is None:
        return None
    mail = Mail(**planned._asdict())
    if due:
        mail.next_attempt_at = due
    if outbox.add_mail(mail):
        return mail.id
    audit.event(Event.MAIL_LIMITED, kind=kind, user=mail.user_id)
    return None


def _mail(kind: str, email: str, user: User | None, details: dict[str, Any]) -> NewMail | None:
    """Make a mail that is not queued yet, or return `None` if it cannot be delivered."""
    if any(f".{domain(email)}".endswith(f".{suffix}") for suffix in _NOWHERE):
        return None
    details = {**details, "language": context.language()}
    user_id = user.id if user else None
    return NewMail(uuid4(), kind, email, user_id, details)
