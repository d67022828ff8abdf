"""Browsers that people have signed in from before, by a cookie that outlives their sessions.

Such a browser has a budget of failures of its own, so that nobody is locked out by what others
try in their name. The cookie names accounts by keyed digests; it signs nobody in.
"""

import secrets
from typing import Any

from flask import Response, g, request
from itsdangerous import BadSignature, URLSafeTimedSerializer

from sso import current, digests, sealing

LIFETIME = 400 * 24 * 3600  # seconds; browsers keep no cookie longer
MOST = 10  # accounts a browser is known by; then the one not used for longest is forgotten


def mark(account: str) -> str:
    """What stands for an account (an e-mail address) where its name must not stand."""
    return _marks(account)[0]


def _marks(account: str) -> list[str]:
    """As `mark`, by each secret key; one that is being replaced made the older cookies."""
    keys = sealing.derive_keys(current.settings().secret_keys, "known browser")
    return [digests.derive("", account.strip().lower(), key)[:22] for key in keys]


def id_for(account: str) -> str | None:
    """This browser's id if this account has signed in from it before, else `None`."""
    known = _read()
    return known[0] if known and not set(known[1]).isdisjoint(_marks(account)) else None


def remember(account: str) -> None:
    """Note with the answer to this request that the account has signed in from this browser."""
    browser_id, marks = _read() or (secrets.token_urlsafe(16), [])
    mine = _marks(account)
    marks = [mine[0], *(one for one in marks if one not in mine)][:MOST]
    g.sso_known_browser = [browser_id, marks]


def save(response: Response) -> None:
    """Set the cookie, if there is something new to remember."""
    if "sso_known_browser" in g:
        _set(response, g.sso_known_browser)


def cookie_name() -> str:
    # The __Host- prefix demands Path=/ and Secure.
    return "__Host-sso_known" if current.settings().is_https else "sso_known"


def _set(response: Response, content: list[Any]) -> None:
    settings = current.settings()
    response.set_cookie(
        cookie_name(),
        str(_serializer().dumps(content)),
        max_age=LIFETIME,
        path="/" if settings.is_https else settings.base_path or "/",
        secure=settings.is_https,
        httponly=True,
        samesite="Lax",
    )


def _read() -> tuple[str, list[str]] | None:
    try:
        browser_id, marks = _serializer().loads(
            request.cookies.get(cookie_name(), "")[:2048], max_age=LIFETIME
        )
    except (BadSignature, ValueError, TypeError):
        return None
    return str(browser_id), [str(one) for one in marks]


def _serializer() -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(current.settings().signing_secrets, salt="known browser")
