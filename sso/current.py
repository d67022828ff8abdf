"""What belongs to the running application: its settings and its key ring."""

from typing import cast

from flask import current_app

from sso.keys import KeyRing
from sso.settings import Settings


def settings() -> Settings:
    return cast(Settings, current_app.extensions["sso.settings"])


def key_ring() -> KeyRing:
    return cast(KeyRing, current_app.extensions["sso.keys"])
