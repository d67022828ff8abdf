"""The session cookie and the language cookie, and the requests that read and set them."""

from flask import Flask, Request, Response, request
from flask.sessions import SecureCookieSession, SecureCookieSessionInterface, SessionMixin
from itsdangerous import BadSignature
from werkzeug.wrappers import Response as BaseResponse

from sso import context
from sso.ratelimit import device_cookie
from sso.web import routing

_YEAR = 365 * 24 * 3600


class PageSessions(SecureCookieSessionInterface):
    """Cookies are for people's browsers: protocol routes neither read nor set them.

    Static files, which are the same for everybody, set none.
    """

    def open_session(self, app: Flask, request: Request) -> SecureCookieSession | None:
        if routing.is_protocol():
            return SecureCookieSession()
        session = super().open_session(app, request)
        if session and app.config["SECRET_KEY_FALLBACKS"] and self._is_signed_before(app, request):
            session.modified = True  # the response signs it with the current secret key
        return session

    def _is_signed_before(self, app: Flask, request: Request) -> bool:
        """Return whether the cookie was signed with the previous secret key."""
        serializer = self.get_signing_serializer(app)
        assert serializer
        serializer.secret_keys = serializer.secret_keys[-1:]
        try:
            serializer.loads(request.cookies.get(self.get_cookie_name(app), ""))
        except BadSignature:
            return True
        return False

    def save_session(self, app: Flask, session: SessionMixin, response: Response) -> None:
        if routing.is_protocol() or request.endpoint == "static":
            return
        if not self._may_change_cookies(app):
            return
        super().save_session(app, session, response)
        device_cookie.save(response)

    def _may_change_cookies(self, app: Flask) -> bool:
        """Return whether the browser sent its cookie, or navigates and would have sent one.

        SameSite=Lax withholds the cookie from other sites' forms, frames and images. If the
        response set or deleted it, the browser would be signed out although its session is live.
        Paths outside of the cookie's path never receive it.
        """
        if self.get_cookie_name(app) in request.cookies:
            return True
        headers = request.headers
        return (
            request.method in ("GET", "HEAD")
            and request.path.startswith(self.get_cookie_path(app))
            and headers.get("Sec-Fetch-Mode", "navigate") == "navigate"
            and headers.get("Sec-Fetch-Dest", "document") == "document"
        )


def language() -> str | None:
    """Return the language that was chosen in this browser, unchecked."""
    return None if routing.is_protocol() else request.cookies.get(_language_name())


def choose_language(response: BaseResponse, tag: str | None) -> None:
    """Store a language in this browser; `None` deletes it."""
    is_https = context.settings().is_https
    response.set_cookie(
        _language_name(),
        tag or "",
        max_age=_YEAR if tag else 0,
        path="/" if is_https else context.settings().base_path or "/",
        secure=is_https,
        httponly=True,
        samesite="Lax",
    )


def _language_name() -> str:
    # The __Host- prefix demands Path=/ and Secure.
    return "__Host-sso_language" if context.settings().is_https else "sso_language"
