"""What every server does, and when: its master before and after it loads, each worker at its start.

gunicorn and granian fork workers from a master that has loaded the application.
"""

import gc
import os
import resource
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from flask import Flask
from sqlalchemy.exc import SQLAlchemyError

from sso import context
from sso.config.settings import DEFAULT_BASE_URL, Settings
from sso.config.upstream.oidc import WebProvider
from sso.crypto import passwords
from sso.database import readiness
from sso.extensions import db
from sso.process import concurrency, program
from sso.server import fork_signals
from sso.store import factors

if TYPE_CHECKING:
    from sso.metrics import exporter as metrics
else:
    metrics = program.late_module("sso.metrics.exporter")  # 0.8 MB

# A few threads keep a worker busy while others wait for the database; the rest wait without a slot
# (see sso.process.concurrency). More processors need more workers.
THREADS = concurrency.MAX_CONCURRENT + passwords.AT_ONCE + passwords.KEPT + concurrency.MAX_DELAYED
# Seconds in which requests under way at a stop or reload may end: longer than the database's
# limits, and shorter than the 40 s that systemd waits.
GRACE = 30
# Seconds. Longer than a proxy keeps its connections to us (nginx: 60 s), so that none is closed
# under it.
KEEP_ALIVE = 75

# A connection takes a file descriptor, and a worker of gunicorn that can open no more ends. The
# usual limit of 1024 is close to the 1,000 connections of a worker.
_DESCRIPTORS = 4096


def workers() -> int:
    """Return the number of workers; WEB_CONCURRENCY sets it."""
    return int(os.environ.get("WEB_CONCURRENCY") or min(max(len(os.sched_getaffinity(0)), 2), 8))


def address() -> tuple[str, int] | None:
    """Return where to listen without a proxy: at the base URL's port, if it is on this machine."""
    base_url = urlsplit(os.environ.get("SSO_BASE_URL") or DEFAULT_BASE_URL)
    if base_url.scheme == "http" and base_url.hostname in ("127.0.0.1", "localhost"):
        return "127.0.0.1", base_url.port or 80
    return None


def prepare() -> None:
    """Prepare the master, before it loads the application."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    if any(os.environ.get(name) for name in ("SSO_METRICS_PORT", "SSO_METRICS_PORT_FILE")):
        metrics.prepare()
    fork_signals.prepare()


def loaded(app: Flask) -> None:
    """Finish the master with its application, before its first worker."""
    readiness.examine(app)  # log at once why the service could not answer
    _import_used(app)
    # The code that each request runs is then loaded, and shared: 1 MB with two workers.
    app.test_client().get("/healthz")
    # Hide the loaded objects from the garbage collector, so that they stay shared.
    gc.collect()
    gc.freeze()


def _import_used(app: Flask) -> None:
    """Import what would otherwise be imported in each worker, if this installation uses it."""
    with app.app_context():
        if any(isinstance(provider, WebProvider) for provider in context.upstreams()):
            import_module("sso.upstream.oidc")
        with suppress(SQLAlchemyError):  # `readiness` has logged it
            if factors.passkeys_exist():
                import_module("webauthn")
        db.session.remove()
        db.engine.dispose()


def begin(app: Flask) -> None:
    """Begin in a worker, once it is forked."""
    settings: Settings = app.extensions["sso.settings"]
    if settings.metrics_port is not None:
        metrics.serve(app)
