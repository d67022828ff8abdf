"""Requests that a proxy asks about (forward auth): what they are, and which paths are public.

The proxy in front of an application sends the method and the URL of each request in
`X-Forwarded-Method`, `-Proto`, `-Host` and `-Uri`. A value that can be read in two ways is refused.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sso.i18n.message import Message

CALLBACK = "/.sso/callback"
SIGN_OUT = "/.sso/sign-out"
# On the application's own host, where the proxy passes them to this server.
OUR_PATHS = frozenset({CALLBACK, SIGN_OUT})

MAX_URI = 8000
MAX_RETURN = 2000  # what travels through the sign-in; a longer one returns without its query
_METHOD = re.compile(r"[A-Z]{1,20}")
_HOST = re.compile(r"(?:[a-z0-9_.-]{1,253}|\[[0-9a-f:.]{2,45}\])(?::[0-9]{1,5})?")
_URI = re.compile(r"/[!-~\u0080-\u00ff]*")  # servers read bytes beyond ASCII as Latin-1
_ASCII = re.compile(r"/[!-~]*")
# A WebSocket has the scheme of the page that opens it.
_PROTOCOLS = {"https": "https", "http": "http", "wss": "https", "ws": "http"}
_USUAL_PORTS = {"https": ":443", "http": ":80"}
_PUBLIC_PATH = re.compile(r"/[A-Za-z0-9._~!$&'()+,=:@/-]*")
_LONGEST_PATH = 200


class Malformed(ValueError):
    """The proxy does not say which request it asks about; `str()` says what is wrong."""


@dataclass(frozen=True)
class ForwardedRequest:
    """A request to an application. `origin`: scheme, host and port, as browsers write it.

    `uri`: path and query as they were sent.
    """

    method: str
    origin: str
    uri: str
    wants_page: bool

    @property
    def path(self) -> str:
        return self.uri.partition("?")[0]

    @property
    def query(self) -> str:
        return self.uri.partition("?")[2]

    def way_back(self, referrer: str | None) -> str:
        """Return the path to show after a sign-in.

        Nothing but GET is repeated: a person who sent a form returns to the page with the form.
        """
        if self.method in ("GET", "HEAD"):
            uri = self.uri
        elif referrer and referrer.startswith(f"{self.origin}/"):
            uri = referrer.removeprefix(self.origin).partition("#")[0]
        else:
            return "/"
        if len(uri) > MAX_RETURN:
            uri = uri.partition("?")[0]
        is_safe = len(uri) <= MAX_RETURN and _ASCII.fullmatch(uri)
        return uri if is_safe and uri.partition("?")[0] not in OUR_PATHS else "/"


def read(header: Callable[[str], str | None]) -> ForwardedRequest:
    """Return the request that these headers describe. Raises `Malformed`."""
    method = _one(header, "X-Forwarded-Method")
    scheme = _PROTOCOLS.get(_one(header, "X-Forwarded-Proto").lower())
    host = _one(header, "X-Forwarded-Host").lower()
    uri = header("X-Forwarded-Uri") or ""
    for name, is_valid in (
        ("X-Forwarded-Method", _METHOD.fullmatch(method)),
        ("X-Forwarded-Proto", scheme),
        ("X-Forwarded-Host", _HOST.fullmatch(host)),
        ("X-Forwarded-Uri", len(uri) <= MAX_URI and _URI.fullmatch(uri)),
    ):
        if not is_valid:
            raise Malformed(f"The header {name} is missing, repeated or invalid.")
    assert scheme is not None
    host = host.removesuffix(_USUAL_PORTS[scheme])
    return ForwardedRequest(method, f"{scheme}://{host}", uri, _wants_page(method, header))


def _one(header: Callable[[str], str | None], name: str) -> str:
    """Return a header's value; "" if there are several, of which a client may have sent one."""
    value = (header(name) or "").strip()
    return "" if "," in value else value


def _wants_page(method: str, header: Callable[[str], str | None]) -> bool:
    """Return whether a browser navigates, so that a person sees where a redirect leads."""
    if method not in ("GET", "HEAD", "POST") or header("Upgrade"):
        return False
    if mode := header("Sec-Fetch-Mode"):  # all browsers of today
        return mode == "navigate" and header("Sec-Fetch-Dest") in (None, "document")
    accepts_page = "text/html" in (header("Accept") or "").lower()
    return accepts_page and not header("X-Requested-With")


def public_path_error(text: str) -> Message | None:
    """Return why a text cannot be a public path, or `None`."""
    path = text.removesuffix("*")
    if text.endswith("*") and not path.endswith("/"):
        return Message("a star stands after a slash only, for all paths below")
    if path == "/":
        return Message("everything would be public")
    if len(text) > _LONGEST_PATH or not _is_plain(path) or path.startswith("/.sso/"):
        return Message(
            "it is not a path of letters, digits and simple signs, without //, . and .. segments"
        )
    return None


def is_public(path: str, public_paths: Iterable[str]) -> bool:
    """Return whether a path needs no sign-in.

    The application may read an encoded or a dotted path as another one: such a path is never
    public.
    """
    if not public_paths or not _is_plain(path):
        return False
    return any(
        path.startswith(public[:-1]) if public.endswith("*") else path == public
        for public in public_paths
    )


def _is_plain(path: str) -> bool:
    segments = path.split("/")[1:]
    return (
        _PUBLIC_PATH.fullmatch(path) is not None
        and "" not in segments[:-1]
        and not {".", ".."} & set(segments)
    )
