"""What belongs to the running application: its settings and its key ring."""

from collections.abc import Callable
from pkgutil import resolve_name
from typing import TYPE_CHECKING, cast

from flask import current_app

from sso.config.settings import Settings

if TYPE_CHECKING:  # commands do without
    from sso.config.upstream.file import Upstreams
    from sso.crypto.keys import KeyRing


def settings() -> Settings:
    return cast(Settings, current_app.extensions["sso.settings"])


def key_ring() -> "KeyRing":
    return cast("KeyRing", current_app.extensions["sso.keys"])


def upstreams() -> "Upstreams":
    """The identity providers that people may sign in through."""
    extensions = current_app.extensions
    if "sso.upstreams" not in extensions:  # a command: `create_app` reads them at the start
        read = resolve_name("sso.config.upstream.file:of_setting")
        extensions["sso.upstreams"] = read(settings().upstream_file)
    return cast("Upstreams", extensions["sso.upstreams"])


def forget_keys() -> None:
    """Read the keys again at the next use; a command has no key ring that could be out of date."""
    if "sso.keys" in current_app.extensions:
        key_ring().reload()


def language() -> str:
    """The tag of the language of the page that a request asks for; commands have none."""
    find: Callable[[], str] | None = current_app.extensions.get("sso.language")
    return find() if find else ""
