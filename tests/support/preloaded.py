"""Imports what servers and commands need, for `tests.support.programs`."""

import gc
import importlib
import pkgutil

import sso

# These read the settings of their process as they are imported.
OWN = ("sso.wsgi", "sso.server.gunicorn_conf", "sso.server.granian")
LIBRARIES = (
    "alembic.command",
    "flask.cli",
    "granian.server.mp",
    "gunicorn.app.wsgiapp",
    "gunicorn.workers.gthread",
    "psycopg",
    "redis",
    "sqlalchemy.dialects.postgresql.psycopg",
)

for name in LIBRARIES:
    importlib.import_module(name)
for module in pkgutil.walk_packages(sso.__path__, "sso."):
    if module.name not in OWN and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
gc.freeze()
