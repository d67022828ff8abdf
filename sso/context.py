"""What belongs to the running application: its settings, its branding and its key ring."""

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from flask import current_app

from sso.config.branding import Branding, BrandingSource
from sso.config.settings import Settings
from sso.process import program

if TYPE_CHECKING:
    from sso.config.upstream import file as upstream_file
    from sso.config.upstream.file import Upstreams
    from sso.crypto.keys import KeyRing
else:  # commands do without
    upstream_file = program.late_module("sso.config.upstream.file")


def settings() -> Settings:
    """Return the settings of the running application."""
    settings: Settings = current_app.extensions["sso.settings"]
    return settings


def branding() -> Branding:
    """Return the name, logo, color and links of the service, at most a few seconds old."""
    return _branding_source().current(settings())


def forget_branding() -> None:
    """Read the stored branding again at the next use."""
    _branding_source().forget()


def _branding_source() -> BrandingSource:
    source: BrandingSource = current_app.extensions["sso.branding"]
    return source


def key_ring() -> "KeyRing":
    """Return its signing keys."""
    key_ring: KeyRing = current_app.extensions["sso.keys"]
    return key_ring


def upstreams() -> "Upstreams":
    """Return the identity providers that people may sign in through."""
    extensions = current_app.extensions
    if "sso.upstreams" not in extensions:  # a command: `create_app` reads them at the start
        extensions["sso.upstreams"] = upstream_file.of_setting(settings().upstream_file)
    return cast("Upstreams", extensions["sso.upstreams"])


def forget_keys() -> None:
    """Read the keys again at the next use. Commands have no key ring."""
    if "sso.keys" in current_app.extensions:
        key_ring().reload()


def language() -> str:
    """Return the language tag of the requested page, or "" in a command."""
    find: Callable[[], str] | None = current_app.extensions.get("sso.language")
    return find() if find else ""
