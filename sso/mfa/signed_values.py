"""Short-lived values that a browser carries for us: signed, timed, and bound to that browser.

Nothing is stored for somebody who may never sign in.
"""

import secrets
from datetime import UTC, datetime, timedelta
from typing import Any

import flask
from itsdangerous import BadData, URLSafeSerializer

from sso import clock, context

_BROWSER = "browser"  # in the browser's cookie; a new sign-in makes a new one
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def sign(value: Any, purpose: str) -> str:
    """Sign a JSON value for one purpose and this browser, with its time."""
    micros = (clock.now() - _EPOCH) // timedelta(microseconds=1)
    text = _serializer(purpose).dumps([micros, value])
    return text if isinstance(text, str) else text.decode()


def verify(text: str, purpose: str, lifetime: int) -> tuple[Any, datetime] | None:
    """The value and when it was signed; `None` if the signature is invalid, of another browser,
    or older than `lifetime` seconds."""
    if _BROWSER not in flask.session:
        return None  # and the session stays as it is
    try:
        micros, value = _serializer(purpose).loads(text)
    except (BadData, ValueError, TypeError):
        return None
    signed_at = _EPOCH + timedelta(microseconds=micros)
    age = clock.now() - signed_at
    return (value, signed_at) if age <= timedelta(seconds=lifetime) else None


def _serializer(purpose: str) -> URLSafeSerializer:
    browser = flask.session.get(_BROWSER)
    if not isinstance(browser, str):
        browser = flask.session[_BROWSER] = secrets.token_urlsafe(16)
    return URLSafeSerializer(context.settings().signing_secrets, salt=f"{purpose} in {browser}")
