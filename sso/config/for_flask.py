"""Flask's own configuration, from ours."""

from sso.config.settings import Settings
from sso.process.concurrency import MAX_BODY


def flask_config(settings: Settings) -> dict[str, object]:
    # The __Host- prefix demands Path=/ and Secure; without https the base path binds the cookie.
    return {
        "SECRET_KEY": settings.secret_key,
        # What the secret key before this one signed is read, and signed again with this one.
        "SECRET_KEY_FALLBACKS": list(settings.secret_keys[1:]) or None,
        "WTF_CSRF_SECRET_KEY": settings.signing_secrets,
        "SESSION_COOKIE_NAME": "__Host-sso" if settings.is_https else "sso_browser",
        "SESSION_COOKIE_PATH": "/" if settings.is_https else settings.base_path or "/",
        "SESSION_COOKIE_SECURE": settings.is_https,
        "SESSION_COOKIE_HTTPONLY": True,
        "SESSION_COOKIE_SAMESITE": "Lax",
        "PERMANENT_SESSION_LIFETIME": settings.session_lifetime,
        # The cookie is signed again when the session is prolonged (browser_session.touch).
        "SESSION_REFRESH_EACH_REQUEST": False,
        "MAX_CONTENT_LENGTH": MAX_BODY,
        "WTF_CSRF_CHECK_DEFAULT": False,  # see routing
        # A sign-in page left open overnight still works; the token lives as long as the cookie.
        "WTF_CSRF_TIME_LIMIT": None,
        # Pages send no Referer (see headers); the token alone proves the form is ours.
        "WTF_CSRF_SSL_STRICT": False,
    }
