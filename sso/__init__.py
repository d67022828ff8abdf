"""sso: a single sign-on server that people run themselves."""

from collections.abc import Mapping
from pathlib import Path

from flask import Flask

__all__ = ["ROOT", "create_app"]

ROOT = Path(__file__).resolve().parent.parent


def create_app(environ: Mapping[str, str] | None = None, instance: Path | None = None) -> Flask:
    """Build the application from the environment. Raises `SettingsError` with every fault."""
    # Here, because anyone who imports a part of the package imports this file first: a command that
    # lists users is not to wait until every page is loaded.
    from sso import application

    return application.create_app(environ, instance or ROOT / "instance")
