"""gunicorn's settings: `gunicorn -c python:sso.server.gunicorn_conf`, from any folder.

The command line takes precedence; WEB_CONCURRENCY is the number of workers.
"""

import gc
import os
import resource
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sso.config.settings import DEFAULT_BASE_URL
from sso.crypto import passwords
from sso.database import readiness
from sso.metrics import server as metrics
from sso.observability import logs
from sso.process import concurrency
from sso.server import gunicorn_signals
from sso.server.gunicorn_logger import Logger

proc_name = "sso"
wsgi_app = "sso.wsgi:app"

_base_url = urlsplit(os.environ.get("SSO_BASE_URL") or DEFAULT_BASE_URL)
# Else a proxy is in front, and -b says where.
if _base_url.scheme == "http" and _base_url.hostname in ("127.0.0.1", "localhost"):
    bind = f"127.0.0.1:{_base_url.port or 80}"

# The application is loaded once, and its memory shared. A new version therefore needs a restart
# (or SIGUSR2); SIGHUP replaces the workers only. Connections are not shared: see sso.database.
preload_app = True
# A few threads keep a worker busy while others wait for the database; the rest wait without a slot
# (see sso.process.concurrency). More processors need more workers.
worker_class = "sso.server.gunicorn_worker.Worker"
threads = concurrency.MAX_CONCURRENT + passwords.AT_ONCE + passwords.KEPT + concurrency.MAX_DELAYED
workers = int(os.environ.get("WEB_CONCURRENCY") or min(max(len(os.sched_getaffinity(0)), 2), 8))

# An authorization request with `claims` and `id_token_hint` is longer than the default allows.
limit_request_line = 8190
# Seconds: a worker that shows no life is replaced; requests under way at a stop or reload may end.
# Both are longer than the database's limits and shorter than the 90 s that systemd waits.
timeout = 30
graceful_timeout = 30
# Longer than a proxy keeps its connections to us (nginx: 60 s), so that none is closed under it.
keepalive = 75
# It would wait without end for a client that does not take a file.
sendfile = False
if Path("/dev/shm").is_dir():  # noqa: S108 (gunicorn makes a file of its own in it)
    worker_tmp_dir = "/dev/shm"  # noqa: S108 (signs of life that no busy disk delays)

# A connection takes a file descriptor, and a thread that waits for what it sends another one. With
# the usual limit of 1024, 800 that are silent would end the worker: it could not accept the next.
DESCRIPTORS = 4096
_soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
_wanted = DESCRIPTORS if _hard == resource.RLIM_INFINITY else min(_hard, DESCRIPTORS)
if _soft != resource.RLIM_INFINITY and _soft < _wanted:
    resource.setrlimit(resource.RLIMIT_NOFILE, (_wanted, _hard))

# No proxy is trusted here: SSO_TRUSTED_PROXIES says which (see sso.web.proxies).
forwarded_allow_ips = ""
forwarder_headers = ""
secure_scheme_headers: dict[str, str] = {}

# If it is turned on: without queries and Referer, which hold codes and links.
access_log_format = '%(h)s %(t)s "%(m)s %(U)s %(H)s" %(s)s %(B)s %(L)s "%(a)s"'
logconfig_dict = logs.for_gunicorn(os.environ)
logger_class = Logger
metrics.prepare()
gunicorn_signals.prepare()
post_worker_init = metrics.post_worker_init
child_exit = metrics.child_exit

# It would be in the home directory, which a service does not have; signals do the same.
control_socket_disable = True


def when_ready(server: Any) -> None:
    """Say at once what would keep the service from answering."""
    readiness.examine(server.app.wsgi())
    # Take what was loaded out of the collector's sight, so that it stays shared.
    gc.collect()
    gc.freeze()
