"""Whether a user has signed in from this browser before: a signed cookie that lives for a year."""

from uuid import UUID

from flask import Response, after_this_request, current_app, request
from itsdangerous import BadData, URLSafeSerializer

from sso import current

_MOST = 8  # users of one browser
_LIFETIME = 366 * 24 * 3600  # seconds


def knows(user_id: UUID) -> bool:
    """Whether this browser has seen a sign-in of this user."""
    return user_id.hex in _read()


def remember(user_id: UUID) -> None:
    """Note it; the answer to this request carries the cookie."""
    known = [user_id.hex, *(one for one in _read() if one != user_id.hex)][:_MOST]
    value = str(_serializer().dumps(known))

    @after_this_request
    def _set(response: Response) -> Response:
        config = current_app.config
        response.set_cookie(
            _name(),
            value,
            max_age=_LIFETIME,
            path=config["SESSION_COOKIE_PATH"],
            secure=config["SESSION_COOKIE_SECURE"],
            httponly=True,
            samesite="Lax",
        )
        return response


def _read() -> list[str]:
    try:
        return list(_serializer().loads(request.cookies.get(_name(), "")))
    except BadData:
        return []


def _name() -> str:
    return "__Host-sso_known" if current.settings().is_https else "sso_known"


def _serializer() -> URLSafeSerializer:
    return URLSafeSerializer(current.settings().secret_key, salt="known browser")
