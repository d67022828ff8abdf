"""Browsers that users have signed in from before, by a cookie that outlives their sessions.

Such a browser has its own budget of failures, so that attempts of others lock nobody out. The
cookie names accounts by keyed digests; it signs nobody in. It is valid for one version of the
account: `users.forget_devices` increments it, which voids every copy. If a password was set by mail
and a factor is still to be shown, the cookie is valid at the password only.
"""

import secrets
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from flask import Flask, Response, current_app, g, request
from itsdangerous import BadSignature, URLSafeTimedSerializer

from sso import context
from sso.crypto import secrets as crypto_secrets
from sso.models import User

LIFETIME = 400 * 24 * 3600  # seconds; browsers keep no cookie longer
MOST = 10  # accounts a browser is known by; then the one not used for longest is forgotten
_PENDING, _EXTENSION = "sso_known_browser", "sso.find_device"

# The id of an account and its version; `None` if there is no such account.
FindDevice = Callable[[str], tuple[UUID, int] | None]


class _Known(NamedTuple):
    """This browser's id, and by an account's mark the proof of its version, newest first."""

    browser_id: str
    proofs: dict[str, str]


def init_app(app: Flask, find_device: FindDevice) -> None:
    """Look accounts up with `find_device`, which takes an email address."""
    app.extensions[_EXTENSION] = find_device


def mark(account: str) -> str:
    """A keyed digest that replaces an account's email address."""
    return _keyed(account.strip().lower())[0]


def _marks(account: str) -> list[str]:
    """As `mark`, by each secret key."""
    return _keyed(account.strip().lower())


def id_for(account: str, at_password: bool = False) -> str | None:
    """This browser's id if this account has signed in from it before, else `None`.

    `at_password`: accept a browser in which only the account's password was set.
    The account is looked up only if the cookie names it.
    """
    known = _read()
    proof = _proof_for(known, account) if known else None
    if known is None or proof is None:
        return None
    find: FindDevice = current_app.extensions[_EXTENSION]
    device = find(account)
    if device is None:
        return None
    proven = _proves(proof, *device) or (at_password and _proves(proof, *device, at_password))
    return known.browser_id if proven else None


def knows(user: User) -> bool:
    """Whether this user has signed in from this browser before; asks the database nothing."""
    known = _read()
    proof = _proof_for(known, user.email) if known else None
    return proof is not None and _proves(proof, user.id, user.device_version)


def remember(user: User, at_password: bool = False) -> None:
    """Record in the cookie that the user has signed in from this browser.

    `at_password`: that they have only set the password in it.
    """
    browser_id, proofs = _read() or _Known(secrets.token_urlsafe(16), {})
    mine = _marks(user.email)
    others = {name: proof for name, proof in proofs.items() if name not in mine}
    entries = {mine[0]: _proofs(user.id, user.device_version, at_password)[0], **others}
    setattr(g, _PENDING, _Known(browser_id, dict(list(entries.items())[:MOST])))


def forget(user: User) -> None:
    """Remove the user from the cookie of this browser."""
    known = _read()
    if known is None:
        return
    mine = _marks(user.email)
    others = {name: proof for name, proof in known.proofs.items() if name not in mine}
    if others != known.proofs:
        setattr(g, _PENDING, known._replace(proofs=others))


def save(response: Response) -> None:
    """Set or delete the cookie, if it changed."""
    known: _Known | None = g.get(_PENDING)
    if known is None:
        return
    settings = context.settings()
    content = [known.browser_id, [f"{name}.{proof}" for name, proof in known.proofs.items()]]
    response.set_cookie(
        cookie_name(),
        str(_serializer().dumps(content)) if known.proofs else "",
        max_age=LIFETIME if known.proofs else 0,
        path="/" if settings.is_https else settings.base_path or "/",
        secure=settings.is_https,
        httponly=True,
        samesite="Lax",
    )


def cookie_name() -> str:
    # The __Host- prefix demands Path=/ and Secure.
    return "__Host-sso_known" if context.settings().is_https else "sso_known"


def _read() -> _Known | None:
    if _PENDING in g:
        pending: _Known = g.get(_PENDING)
        return pending
    try:
        browser_id, entries = _serializer().loads(
            request.cookies.get(cookie_name(), "")[:2048], max_age=LIFETIME
        )
    except (BadSignature, ValueError, TypeError):
        return None
    pairs = (str(entry).partition(".") for entry in entries)
    return _Known(str(browser_id), {name: proof for name, _, proof in pairs})


def _proof_for(known: _Known, account: str) -> str | None:
    return next((known.proofs[name] for name in _marks(account) if name in known.proofs), None)


def _proofs(user_id: UUID, version: int, at_password: bool = False) -> list[str]:
    # The id as well: an address may become another person's.
    return _keyed(f"{user_id} {version}" + (" at the password" if at_password else ""))


def _proves(proof: str, user_id: UUID, version: int, at_password: bool = False) -> bool:
    if not proof:
        return version == 0  # set by the version before, which proved nothing
    return any(
        crypto_secrets.is_equal(proof, one) for one in _proofs(user_id, version, at_password)
    )


def _keyed(text: str) -> list[str]:
    """By each secret key: one that is being replaced made the older cookies."""
    keys = crypto_secrets.derive_keys(context.settings().secret_keys, "known browser")
    return [crypto_secrets.derive_secret("", text, key)[:22] for key in keys]


def _serializer() -> URLSafeTimedSerializer:
    return crypto_secrets.serializer("known browser", *context.settings().signing_secrets)
