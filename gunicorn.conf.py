"""Read by `gunicorn wsgi:app` by itself."""

# An authorization request with `claims` and `id_token_hint` is longer than the default allows.
limit_request_line = 8190
worker_class = "gthread"
workers = 2
threads = 8
