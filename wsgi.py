"""In this folder, `gunicorn wsgi:app` runs the server, and `flask` finds its commands."""

from sso.wsgi import app

__all__ = ["app"]
