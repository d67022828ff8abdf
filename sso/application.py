"""The web application: the inventory of what it is made of."""

from collections.abc import Mapping
from pathlib import Path

from flask import Flask

from sso import core, models, oauth
from sso.config.settings import Settings
from sso.crypto import password_strength
from sso.crypto.keys import ID_TOKEN_LIFETIME, KeyRing
from sso.endpoints import browser_session, routes
from sso.i18n import languages
from sso.metrics import server as metrics
from sso.observability import tracing
from sso.process import concurrency
from sso.ratelimit import device_cookie, limiting
from sso.store import signing_keys, users
from sso.web import access_log, errors, headers, proxies, static_files
from sso.web.extensions import csrf


def create_app(environ: Mapping[str, str] | None, instance: Path) -> Flask:
    """Build the application; see `sso.create_app`."""
    models.load_all()
    app = core.create_app(environ, instance)
    settings: Settings = app.extensions["sso.settings"]
    app.config.update(flask_settings(settings))
    app.extensions["sso.keys"] = KeyRing(
        settings.secret_keys,
        load=signing_keys.sealed,
        keep_published=max(settings.access_token_lifetime, ID_TOKEN_LIFETIME) + 600,
    )
    access_log.init_app(app)
    metrics.init_app(app)
    tracing.init_app(app)
    limiting.init_app(app, settings.redis_url)
    device_cookie.init_app(app, users.find_device)
    password_strength.init_app(app, settings.base_url, settings.mail_from)
    browser_session.init_app(app)
    languages.init_app(app, browser_session.locale)
    csrf.init_app(app)
    oauth.init_app(app)
    routes.init_app(app)
    static_files.init_app(app)
    errors.init_app(app)
    headers.init_app(app)

    concurrency.init_app(app)
    proxies.init_app(app, settings.trusted_proxies, settings.base_path)
    return app


def flask_settings(settings: Settings) -> dict[str, object]:
    """Flask's own configuration, from ours."""
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
        "MAX_CONTENT_LENGTH": concurrency.MAX_BODY,
        "WTF_CSRF_CHECK_DEFAULT": False,  # see routing
        # A sign-in page left open overnight still works; the token lives as long as the cookie.
        "WTF_CSRF_TIME_LIMIT": None,
        # Pages send no Referer (see headers); the token alone proves the form is ours.
        "WTF_CSRF_SSL_STRICT": False,
    }
