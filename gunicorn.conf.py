"""Read by `gunicorn wsgi:app` by itself."""

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
threads = 8
