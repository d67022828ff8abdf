"""The WSGI entry point: `gunicorn wsgi:app`, and where `flask` finds the application."""

import os
import sys

from sso import create_app
from sso.settings import SettingsError

# gunicorn starts a worker again and again unless it ends with this code (Arbiter.APP_LOAD_ERROR).
_EXIT = 4 if os.environ.get("SERVER_SOFTWARE", "").startswith("gunicorn") else 1

try:
    app = create_app()
except SettingsError as error:
    print(*error.faults, sep="\n", file=sys.stderr)
    raise SystemExit(_EXIT) from None
