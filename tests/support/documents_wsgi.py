"""The server in a process in which `tests.support.documents` has a public address."""

import socket
from typing import Any

from sso.process import addresses
from sso.wsgi import app
from tests.support.documents import DOMAIN

__all__ = ["app"]
HERE = "127.0.0.1"
_resolve, _forbidden = socket.getaddrinfo, addresses.forbidden


def getaddrinfo(host: Any, *arguments: Any, **options: Any) -> Any:
    return _resolve(HERE if host == DOMAIN else host, *arguments, **options)


def forbidden(ip: Any, only_public: bool) -> str | None:
    return None if ip == HERE else _forbidden(ip, only_public)


socket.getaddrinfo = getaddrinfo
addresses.forbidden = forbidden
