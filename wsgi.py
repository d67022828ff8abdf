"""The WSGI entry point: `gunicorn wsgi:app`, and where `flask` finds the application."""

from sso import create_app

app = create_app()
