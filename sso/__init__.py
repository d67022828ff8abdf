"""sso: a single sign-on server that people run themselves."""

import os
from collections.abc import Mapping
from pathlib import Path

from flask import Flask

from sso.process import program

# The functions import what they need, because every import of a part of this package runs this file
# first: commands must not wait until all pages are loaded.
__all__ = ["INSTANCE", "create_app", "create_core"]


def _instance() -> Path:
    """Return the folder of the embedded defaults (database, secret key)."""
    if folder := program.checkout():
        return folder / "instance"
    if state := os.environ.get("STATE_DIRECTORY"):  # systemd's StateDirectory=
        return Path(state.partition(":")[0])
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "sso"


INSTANCE = _instance()


def create_core(environ: Mapping[str, str] | None = None, instance: Path | None = None) -> Flask:
    """Build what every program of this package runs on: settings, log, database and audit trail.

    Commands need no more. Raises `SettingsError` with every error in the settings. `environ`
    defaults to the process's, `instance` to `INSTANCE`.
    """
    from sqlalchemy.pool import NullPool

    from sso import command_line, database
    from sso.audit import writer
    from sso.config.branding import BrandingSource
    from sso.config.settings import load_settings
    from sso.extensions import db
    from sso.observability import logs
    from sso.process.flask_app import Application

    instance = instance or INSTANCE
    settings = load_settings(os.environ if environ is None else environ, instance)
    # Static files: see `web.static_files`.
    app = Application("sso", instance_path=str(instance), static_folder=None)
    app.extensions["sso.settings"] = settings
    app.extensions["sso.branding"] = BrandingSource(
        program.late_function("sso.store.branding:read_again")
    )
    app.config.update(SECRET_KEY=settings.secret_key, SQLALCHEMY_TRACK_MODIFICATIONS=False)
    logs.configure(app)
    database.configure(app, settings.database_url)
    db.init_app(app)
    database.prepare(app)
    with app.app_context():
        writer.init_app(app, database.open_engine(db.engine.url, poolclass=NullPool))
    command_line.init_app(app)
    return app


def create_app(environ: Mapping[str, str] | None = None, instance: Path | None = None) -> Flask:
    """Build the web application: `create_core` and the pages."""
    from sso import clock, models, oauth
    from sso.config.settings import Settings, flask_config
    from sso.config.upstream import file as upstreams
    from sso.crypto.keys import ID_TOKEN_LIFETIME, KeyRing
    from sso.endpoints import browser_session, routes
    from sso.i18n import languages, times
    from sso.observability import tracing
    from sso.process import concurrency
    from sso.ratelimit import device_cookie, limiting, refusals
    from sso.store import keys, users
    from sso.store import refusals as stored_refusals
    from sso.web import access_log, cookies, errors, headers, proxies, routing, static_files
    from sso.web.routing import csrf

    models.load_all()
    app = create_core(environ, instance)
    settings: Settings = app.extensions["sso.settings"]
    app.config.update(flask_config(settings))
    app.extensions["sso.upstreams"] = upstreams.of_setting(settings.upstream_file)
    app.extensions["sso.keys"] = KeyRing(
        settings.secret_keys,
        load=keys.stored_signing_keys,
        keep_published=max(settings.access_token_lifetime, ID_TOKEN_LIFETIME) + 600,
    )
    refusals.init_app(app, stored_refusals.open_buffer(app).put)
    access_log.init_app(app)
    if settings.metrics_port is not None:
        from sso.metrics import exporter as metrics  # 0.8 MB

        metrics.init_app(app)
    tracing.init_app(app)
    limiting.init_app(app, settings.redis_url)
    device_cookie.init_app(app, users.find_device)
    browser_session.init_app(app)
    languages.init_app(app, browser_session.locale, cookies.language, settings.language)
    times.init_app(app, settings.time_zone, browser_session.zoneinfo, clock.now)
    csrf.init_app(app)
    oauth.init_app(app)
    routes.init_app(app)
    routing.init_templates(app)
    static_files.init_app(app)
    errors.init_app(app)
    headers.init_app(app)

    concurrency.init_app(app)
    proxies.init_app(app, settings.trusted_proxies, settings.base_path)
    return app
