"""gunicorn's settings: `gunicorn -c python:sso.server.gunicorn_conf`, from any folder.

The command line takes precedence; WEB_CONCURRENCY is the number of workers. The lines of the logger
are clean, and those that are not written are not formatted.
"""

import os
from pathlib import Path
from typing import Any

from flask import Flask
from gunicorn import glogging

from sso.observability import logs
from sso.observability.logs import CleanFilter
from sso.server import common


class Logger(glogging.Logger):  # type: ignore[misc]  # gunicorn has no types
    """Skips the access line of each request, which gunicorn would format only to drop it.

    Lines are escaped because they quote requests, for example the decoded path.
    """

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        for log in (self.error_log, self.access_log):
            if not any(isinstance(filter_, CleanFilter) for filter_ in log.filters):
                log.addFilter(CleanFilter())

    @property
    def access_log_enabled(self) -> bool:
        """Whether gunicorn is told where to write it; `sso.access` has a line of ours."""
        to_syslog = self.cfg.syslog and not self.cfg.disable_redirect_access_to_syslog
        return bool(self.cfg.accesslog or to_syslog)


proc_name = "sso"
wsgi_app = "sso.wsgi:app"

if _here := common.address():  # else a proxy is in front, and -b says where
    bind = f"{_here[0]}:{_here[1]}"

# The application is loaded once, and its memory shared. A new version therefore needs a restart
# (or SIGUSR2); SIGHUP replaces the workers only. Connections are not shared: see sso.database.
preload_app = True
worker_class = "sso.server.gunicorn_worker.Worker"
threads = common.THREADS
workers = common.workers()

# An authorization request with `claims` and `id_token_hint` is longer than the default allows.
limit_request_line = 8190
timeout = 30  # seconds: a worker that shows no life is replaced
graceful_timeout = common.GRACE
keepalive = common.KEEP_ALIVE
# It would wait without end for a client that does not take a file.
sendfile = False
if Path("/dev/shm").is_dir():  # noqa: S108 (gunicorn makes a file of its own in it)
    worker_tmp_dir = "/dev/shm"  # noqa: S108 (signs of life that no busy disk delays)

# No proxy is trusted here: SSO_TRUSTED_PROXIES says which (see sso.web.proxies).
forwarded_allow_ips = ""
forwarder_headers = ""
secure_scheme_headers: dict[str, str] = {}

# If it is turned on: without queries and Referer, which hold codes and links.
access_log_format = '%(h)s %(t)s "%(m)s %(U)s %(H)s" %(s)s %(B)s %(L)s "%(a)s"'
logconfig_dict = logs.for_gunicorn(os.environ)
logger_class = Logger

# It would be in the home directory, which a service does not have; signals do the same.
control_socket_disable = True

common.prepare()


def when_ready(server: Any) -> None:
    common.loaded(server.app.wsgi())


def post_worker_init(worker: Any) -> None:
    if isinstance(worker.wsgi, Flask):  # one that could not be loaded has a stand-in
        common.begin(worker.wsgi)
        worker.trusted_proxies = worker.wsgi.extensions["sso.settings"].trusted_proxies
