"""Read by `gunicorn wsgi:app` by itself."""

import gc
import os

from sso import logs
from sso.metrics import gunicorn as metrics

logconfig_dict = logs.for_gunicorn(os.environ)
metrics.prepare()
post_worker_init = metrics.post_worker_init
child_exit = metrics.child_exit

# An authorization request with `claims` and `id_token_hint` is longer than the default allows.
limit_request_line = 8190

worker_class = "gthread"
workers = 2
# Python runs one of a process's threads at a time: more of them make nothing faster, but the
# slowest answers slower. A few keep a worker busy while others wait for the database, or for
# the check of a password (sso.passwords.AT_ONCE).
threads = 6

# Longer than a proxy keeps its connections to us (nginx: 60 s), so that none is closed under it.
keepalive = 75

# The application is loaded once, and the workers share its memory.
preload_app = True


def when_ready(_server: object) -> None:
    """Take what was loaded out of the collector's sight, so that it stays shared."""
    gc.collect()
    gc.freeze()
