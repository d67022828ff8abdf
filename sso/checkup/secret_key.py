"""Whether the database is encrypted with the secret key of now; it reads every secret."""

from itertools import count

from sso import context
from sso.audit import chain
from sso.audit.chain import ChainBroken
from sso.checkup.finding import Findings, ok, warning, wrong
from sso.crypto import keys, secrets
from sso.extensions import db
from sso.i18n import N_
from sso.i18n.message import Message, joined
from sso.mfa import totp
from sso.process.program import COMMAND
from sso.store import factors, webhooks
from sso.store import keys as stored_keys

BATCH = 100


def secret_key(most: int | None = None) -> Findings:
    """Everything is encrypted with the current secret key, and with it alone.

    `most`: how many authenticator apps are checked; a million takes a minute.
    """
    found = waiting(most)
    is_partial = most is not None and factors.count_totp_secrets() > most
    db.session.rollback()
    has_previous = context.settings().secret_key_previous is not None
    if found:
        what = joined(N_("%(one)s, %(other)s"), found)
        seen = Message("still encrypted with another secret key: %(what)s", what=what)
        hint = Message(
            "run: %(command)s, with SSO_SECRET_KEY_PREVIOUS set", command=f"{COMMAND} key reencrypt"
        )
        yield (warning if has_previous else wrong)("secret key", seen, hint)
    elif has_previous and is_partial:
        seen = Message(
            "SSO_SECRET_KEY_PREVIOUS is set; only %(count)s authenticator apps were checked",
            count=most,
        )
        hint = Message(
            "run: %(command)s, which checks all of them and says whether it is needed",
            command=f"{COMMAND} doctor",
        )
        yield warning("secret key", seen, hint)
    elif has_previous:
        seen = Message("nothing at rest needs SSO_SECRET_KEY_PREVIOUS any more")
        hint = Message("remove it: at once if it leaked, else once most browsers have come back")
        yield warning("secret key", seen, hint)
    elif is_partial:
        seen = Message(
            "everything is encrypted with SSO_SECRET_KEY; only %(count)s authenticator apps were "
            "checked",
            count=most,
        )
        yield ok("secret key", seen)
    else:
        yield ok("secret key", Message("everything is encrypted with SSO_SECRET_KEY"))


def waiting(most: int | None = None) -> list[Message]:
    """What is not encrypted or sealed with the newest secret key, in words; changes nothing.

    `most`: see `secret_key`.
    """
    newest = context.settings().secret_key
    found = []
    if not all(keys.can_decrypt(newest, row) for row in stored_keys.every_signing_key()):
        found.append(Message("signing keys"))
    if not _are_apps_current(most):
        found.append(Message("authenticator apps"))
    if not all(
        secrets.can_decrypt_webhook_secret(newest, row.sealed_secret) for row in webhooks.every()
    ):
        found.append(Message("secrets of webhooks"))
    try:
        if chain.is_rekeying_due():
            found.append(Message("the audit trail"))
    except ChainBroken:
        command = f"{COMMAND} audit verify"
        found.append(Message("the audit trail (see: %(command)s)", command=command))
    db.session.rollback()
    return found


def _are_apps_current(most: int | None) -> bool:
    last = None
    for checked in count(0, BATCH):
        rows = factors.totp_secret_batch(last, BATCH)
        if not all(totp.is_current(row) for row in rows):
            return False
        if len(rows) < BATCH or (most is not None and checked + BATCH >= most):
            break
        last = rows[-1].user_id
    return True
