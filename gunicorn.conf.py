"""Read by `gunicorn wsgi:app` by itself."""

from sso.server.gunicorn_conf import *  # noqa: F403 (the names are gunicorn's settings)
