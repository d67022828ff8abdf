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
MOST = 10  # accounts in the cookie; beyond that, the least recently used one is removed
_PENDING, _EXTENSION = "sso_known_browser", "sso.find_device"

# The id of an account and its version; `None` if there is no such account.
FindDevice = Callable[[str], tuple[UUID, int] | None]


class _Browser(NamedTuple):
    """This browser's id, and the proofs of accounts' versions by the accounts' marks, newest
    first.
    """

    browser_id: str
    proofs: dict[str, str]


def init_app(app: Flask, find_device: FindDevice) -> None:
    """Look accounts up with `find_device`, which takes an email address."""
    app.extensions[_EXTENSION] = find_device


def mark(account: str) -> str:
    """Return the keyed digest that stands for an account's email address."""
    return _keyed(account.strip().lower())[0]


def _marks(account: str) -> list[str]:
    """Return the `mark` by each secret key."""
    return _keyed(account.strip().lower())


def id_for(account: str, at_password: bool = False) -> str | None:
    """Return this browser's id if this account has signed in from it before, else `None`.

    `at_password`: accept a browser in which only the account's password was set.
    The account is looked up only if the cookie names it.
    """
    browser = _read()
    proof = _proof_for(browser, account) if browser else None
    if browser is None or proof is None:
        return None
    find: FindDevice = current_app.extensions[_EXTENSION]
    device = find(account)
    if device is None:
        return None
    proven = _proves(proof, *device) or (at_password and _proves(proof, *device, at_password))
    return browser.browser_id if proven else None


def knows(user: User) -> bool:
    """Return whether this user has signed in from this browser before. Needs no database."""
    browser = _read()
    proof = _proof_for(browser, user.email) if browser else None
    return proof is not None and _proves(proof, user.id, user.device_version)


def remember(user: User, at_password: bool = False) -> None:
    """Record in the cookie that the user has signed in from this browser.

    `at_password`: the user has only set the password in it.
    """
    browser_id, proofs = _read() or _Browser(secrets.token_urlsafe(16), {})
    marks = _marks(user.email)
    older = {mark: proof for mark, proof in proofs.items() if mark not in marks}
    entries = {marks[0]: _proofs(user.id, user.device_version, at_password)[0], **older}
    setattr(g, _PENDING, _Browser(browser_id, dict(list(entries.items())[:MOST])))


def forget(user: User) -> None:
    """Remove the user from the cookie of this browser."""
    browser = _read()
    if browser is None:
        return
    marks = _marks(user.email)
    proofs = {mark: proof for mark, proof in browser.proofs.items() if mark not in marks}
    if proofs != browser.proofs:
        setattr(g, _PENDING, browser._replace(proofs=proofs))


def save(response: Response) -> None:
    """Set or delete the cookie, if it changed."""
    browser: _Browser | None = g.get(_PENDING)
    if browser is None:
        return
    settings = context.settings()
    content = [browser.browser_id, [f"{mark}.{proof}" for mark, proof in browser.proofs.items()]]
    response.set_cookie(
        cookie_name(),
        str(_serializer().dumps(content)) if browser.proofs else "",
        max_age=LIFETIME if browser.proofs else 0,
        path="/" if settings.is_https else settings.base_path or "/",
        secure=settings.is_https,
        httponly=True,
        samesite="Lax",
    )


def cookie_name() -> str:
    # The __Host- prefix requires Path=/ and Secure.
    return "__Host-sso_known" if context.settings().is_https else "sso_known"


def _read() -> _Browser | None:
    if _PENDING in g:
        pending: _Browser = g.get(_PENDING)
        return pending
    try:
        browser_id, entries = _serializer().loads(
            request.cookies.get(cookie_name(), "")[:2048], max_age=LIFETIME
        )
    except (BadSignature, ValueError, TypeError):
        return None
    pairs = (str(entry).partition(".") for entry in entries)
    return _Browser(str(browser_id), {mark: proof for mark, _, proof in pairs})


def _proof_for(browser: _Browser, account: str) -> str | None:
    return next((browser.proofs[mark] for mark in _marks(account) if mark in browser.proofs), None)


def _proofs(user_id: UUID, version: int, at_password: bool = False) -> list[str]:
    # With the id: an email address may be given to another person.
    return _keyed(f"{user_id} {version}" + (" at the password" if at_password else ""))


def _proves(proof: str, user_id: UUID, version: int, at_password: bool = False) -> bool:
    if not proof:
        return version == 0  # set by an older version of this server, without a proof
    return any(
        crypto_secrets.is_equal(proof, valid_proof)
        for valid_proof in _proofs(user_id, version, at_password)
    )


def _keyed(text: str) -> list[str]:
    """Return the digests by each secret key: older cookies are from one that is being replaced."""
    keys = crypto_secrets.derive_keys(context.settings().secret_keys, "known browser")
    return [crypto_secrets.derive_secret("", text, key)[:22] for key in keys]


def _serializer() -> URLSafeTimedSerializer:
    return crypto_secrets.serializer("known browser", *context.settings().signing_secrets)
