"""What gunicorn's configuration calls so that all of its workers count together."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from flask import Flask
from prometheus_client.multiprocess import mark_process_dead

from sso.metrics import server
from sso.observability import counters

_PREFIX = "sso-metrics-"


def prepare() -> None:
    """Make the folder that the workers share; the master calls it before it loads the application.

    Each master has its own: one that replaces another (USR2) begins again.
    """
    if not any(os.environ.get(name) for name in ("SSO_METRICS_PORT", "SSO_METRICS_PORT_FILE")):
        return
    master = os.getpid()
    known = Path(os.environ.get(counters.FOLDER, "")).name
    if known.startswith(f"{_PREFIX}{master}-"):
        return  # the configuration is read again at each reload
    folder = tempfile.mkdtemp(prefix=f"{_PREFIX}{master}-")
    os.environ[counters.FOLDER] = folder

    def clean_up() -> None:
        if os.getpid() == master:  # workers are forked with this, too
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(clean_up)


def post_worker_init(worker: Any) -> None:
    """A worker is ready; one whose application could not be loaded has a stand-in for it."""
    if isinstance(worker.wsgi, Flask):
        server.serve(worker.wsgi)


def child_exit(_: Any, worker: Any) -> None:
    """A worker is gone, and with it what it had open."""
    if os.environ.get(counters.FOLDER):
        mark_process_dead(worker.pid)
