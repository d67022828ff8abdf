"""The session cookie: which requests read and set it. The cookie of the language."""

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
            session.modified = True  # the next answer signs it with the secret key of now
        return session

    def _is_signed_before(self, app: Flask, request: Request) -> bool:
        """Whether the cookie was signed with the secret key before this one."""
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
        """Whether the browser shows its cookie, or asks for a page and so would show one.

        SameSite=Lax withholds the cookie from other sites' forms, frames and images. To set or
        delete it in the answer would sign the browser out while its session lives on. Paths
        outside of the cookie's never get it.
        """
        if self.get_cookie_name(app) in request.cookies:
            return True
        sent = request.headers
        return (
            request.method in ("GET", "HEAD")
            and request.path.startswith(self.get_cookie_path(app))
            and sent.get("Sec-Fetch-Mode", "navigate") == "navigate"
            and sent.get("Sec-Fetch-Dest", "document") == "document"
        )


def language() -> str | None:
    """The language that was chosen in this browser, as it came."""
    return None if routing.is_protocol() else request.cookies.get(_language_name())


def choose_language(response: BaseResponse, tag: str | None) -> None:
    """Keep a language in this browser; `None` forgets the last one."""
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
