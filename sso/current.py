"""What belongs to the running application: its settings and its key ring."""

from typing import Any, cast

import flask
from flask import Request, current_app

from sso.keys import KeyRing
from sso.settings import Settings


def request() -> Request:
    """The request itself: for where Flask's proxy would look it up again and again."""
    return cast(Request, cast(Any, flask.request)._get_current_object())


def settings() -> Settings:
    return cast(Settings, current_app.extensions["sso.settings"])


def key_ring() -> KeyRing:
    return cast(KeyRing, current_app.extensions["sso.keys"])
