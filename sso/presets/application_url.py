"""The URL of an application, in the form that browsers and the application send."""

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

import idna

from sso.config.urls import MAX_LENGTH, registration_error
from sso.i18n.message import Message

# A URL of these characters needs no quoting in any file format or shell.
_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*")
_HOST = re.compile(
    r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*"
)
_DEFAULT_PORTS = {"https": 443, "http": 80}


@dataclass(frozen=True)
class ApplicationUrl:
    """The parts that templates name; `url` has no slash at its end."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def hostname_port(self) -> str:
        default = self.port == _DEFAULT_PORTS[self.scheme]
        return self.host if default else f"{self.host}:{self.port}"

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.hostname_port}"

    @property
    def url(self) -> str:
        return self.origin + self.path


def parse(text: str) -> ApplicationUrl:
    """Normalise a URL as browsers do. Raises `ValueError` with the remedy."""
    url = _split(text)
    if error := registration_error(url.url):
        raise ValueError(error)
    return url


def origin(text: str) -> str:
    """Return a scheme, a host and a port, normalised. Raises `ValueError` with the remedy.

    Unlike the URL of an application, it may be plain http: proxies use it within a network.
    """
    url = _split(text)
    if url.path:
        raise ValueError(Message("it has a path; leave it off"))
    return url.origin


def _split(text: str) -> ApplicationUrl:
    text = text.strip(" \t\r\n")
    if not text:
        raise ValueError("it is empty")
    if len(text) > MAX_LENGTH:
        raise ValueError(Message("it is longer than %(most)d characters", most=MAX_LENGTH))
    scheme, separator, rest = text.partition("://")
    if not separator:
        raise ValueError(Message("it has no scheme; begin with https://"))
    scheme = scheme.lower()
    if scheme not in _DEFAULT_PORTS:
        raise ValueError(Message("it is neither https nor http"))
    authority, slash, path = rest.partition("/")
    if "?" in rest:
        raise ValueError(Message("it has a query; leave off everything from ?"))
    if "#" in rest:
        raise ValueError(Message("it has a fragment; leave off everything from #"))
    if "@" in authority:
        raise ValueError(Message("it has a user name; leave it off"))
    path = (slash + path).rstrip("/")
    if not _PATH.fullmatch(path):
        raise ValueError(
            Message(
                "its path may have letters, digits and %(signs)s between single slashes",
                signs=". _ ~ -",
            )
        )
    host, port = _host_and_port(authority)
    return ApplicationUrl(scheme, host, port or _DEFAULT_PORTS[scheme], path)


def _host_and_port(authority: str) -> tuple[str, int | None]:
    if authority.startswith("["):
        match = re.fullmatch(r"\[([0-9A-Fa-f:.]+)\](?::(.*))?", authority)
        try:
            host = f"[{IPv6Address(match[1] if match else '').compressed}]"
        except ValueError:
            raise ValueError(Message("its IPv6 address is not valid")) from None
        port = match[2] if match else None
    else:
        name, _, port = authority.partition(":")
        host = _host(name)
    if port and not (port.isascii() and port.isdigit() and 0 < int(port[:6]) <= 65535):
        raise ValueError(Message("its port is not a number from 1 to 65535"))
    return host, int(port) if port else None


def _host(name: str) -> str:
    """Convert a name to A-labels (UTS #46, not transitional), as browsers do."""
    if not name:
        raise ValueError(Message("it has no host"))
    try:
        host = name.lower() if name.isascii() else idna.encode(name, uts46=True).decode()
    except ValueError:  # UnicodeError is one
        raise ValueError(
            Message(
                "its host is not a valid internationalised name; give it in its ASCII form, xn--…"
            )
        ) from None
    if not _HOST.fullmatch(host):
        raise ValueError(Message("its host is not a valid name"))
    if re.fullmatch(r"[0-9]+|0x[0-9a-f]*", host.rpartition(".")[2]):
        # Browsers take such a name for an IPv4 address, which has other spellings.
        try:
            return str(IPv4Address(host))
        except ValueError:
            raise ValueError(Message("its host is not a valid IPv4 address")) from None
    return host
