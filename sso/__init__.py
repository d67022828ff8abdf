"""sso: a single sign-on server that people run themselves."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flask import Flask

from sso import (
    assets,
    audit_trail,
    browser_session,
    command_line,
    cors,
    database,
    endpoints,
    errors,
    headers,
    languages,
    limiting,
    logs,
    oauth,
    observation,
    password_strength,
    proxies,
    tracing,
    turns,
)
from sso.extensions import csrf, db
from sso.keys import ID_TOKEN_LIFETIME, KeyRing
from sso.metrics import server as metrics
from sso.settings import Settings, load_settings
from sso.store import signing_keys

ROOT = Path(__file__).resolve().parent.parent


class Application(Flask):
    """Flask's application; all that it calls are plain functions."""

    def ensure_sync(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Nothing to make sure of: Flask would look at each function again for each request."""
        return func


def create_app(environ: Mapping[str, str] | None = None, instance: Path | None = None) -> Flask:
    """Build the application from the environment. Raises `SettingsError` with every fault."""
    instance = instance or ROOT / "instance"
    settings = load_settings(os.environ if environ is None else environ, instance)
    app = Application("sso", instance_path=str(instance), static_folder=None)  # see assets
    app.extensions["sso.settings"] = settings
    app.config.update(flask_settings(settings))
    logs.configure(app)

    database.configure(app, settings.database_url)
    db.init_app(app)
    database.prepare(app)
    audit_trail.init_app(app)

    app.extensions["sso.keys"] = KeyRing(
        settings.secret_key,
        load=signing_keys.sealed,
        keep_published=max(settings.access_token_lifetime, ID_TOKEN_LIFETIME) + 600,
    )
    observation.init_app(app)
    metrics.init_app(app)
    tracing.init_app(app)
    limiting.init_app(app)
    password_strength.init_app(app, settings.base_url, settings.mail_from)
    browser_session.init_app(app)
    languages.init_app(app)
    csrf.init_app(app)
    oauth.init_app(app)
    endpoints.init_app(app)
    assets.init_app(app)
    errors.init_app(app)
    headers.init_app(app)
    cors.init_app(app)
    command_line.init_app(app)

    turns.init_app(app)
    proxies.init_app(app, settings.trusted_proxies, settings.base_path)
    return app


def flask_settings(settings: Settings) -> dict[str, object]:
    """Flask's own configuration, from ours."""
    # The __Host- prefix demands Path=/ and Secure; without https the base path binds the cookie.
    return {
        "SECRET_KEY": settings.secret_key,
        "SESSION_COOKIE_NAME": "__Host-sso" if settings.is_https else "sso_browser",
        "SESSION_COOKIE_PATH": "/" if settings.is_https else settings.base_path or "/",
        "SESSION_COOKIE_SECURE": settings.is_https,
        "SESSION_COOKIE_HTTPONLY": True,
        "SESSION_COOKIE_SAMESITE": "Lax",
        "PERMANENT_SESSION_LIFETIME": settings.session_lifetime,
        # The cookie is signed anew when the session is prolonged (browser_session.touch).
        "SESSION_REFRESH_EACH_REQUEST": False,
        "MAX_CONTENT_LENGTH": turns.MAX_BODY,
        # A sign-in page left open overnight still works; the token lives as long as the cookie.
        "WTF_CSRF_TIME_LIMIT": None,
        # Pages send no Referer (see headers); the token alone proves the form is ours.
        "WTF_CSRF_SSL_STRICT": False,
        "SQLALCHEMY_TRACK_MODIFICATIONS": False,
    }
