"""URLs: which may be registered, how parameters are added, and how two of them differ."""

import re
import string
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import lru_cache
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes, urlsplit

from sso.i18n.message import Message
from sso.process import addresses

MAX_LENGTH = 2000
# Of the user with whom `flask doctor` signs in. Reserved (RFC 2606 §2): nothing reaches anyone.
DOCTOR_DOMAIN = "sso-doctor.example"
# Where applications find them, relative to the base URL.
ENDPOINTS = {
    "authorization": "/oauth2/authorize",
    "pushed_authorization_request": "/oauth2/par",
    "device_authorization": "/oauth2/device_authorization",
    "token": "/oauth2/token",
    "userinfo": "/oauth2/userinfo",
    "jwks": "/oauth2/jwks",
    "revocation": "/oauth2/revoke",
    "introspection": "/oauth2/introspect",
    "end_session": "/oauth2/end-session",
}
DISCOVERY = "/.well-known/openid-configuration"
SAML_METADATA = "/saml/metadata"  # which is our entity ID, too
SAML_SIGN_ON = "/saml/sso"
SAML_LOGOUT = "/saml/slo"
FORWARD_AUTH = "/forward-auth"  # then a slash and the client ID
REGISTRATION = "/oauth2/register"  # in the metadata only if it is open to everybody
# RFC 3986 §2: reserved, unreserved and the percent sign; nothing else stands in a URI.
_URI_CHARACTERS = frozenset(
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~:/?#[]@!$&'()*+,;=%"
)
_DANGEROUS_SCHEMES = frozenset(
    {"javascript", "data", "vbscript", "file", "about", "blob", "view-source", "filesystem", "ws"}
)
# RFC 8252 §7.3 asks for the two IP addresses; RFC 9700 §2.1 speaks of localhost, which real
# applications use.
_NO_DOMAINS = _DANGEROUS_SCHEMES | {"http", "https"}
_ANY_PORT = re.compile(
    r"(http://(?:127\.0\.0\.1|\[::1\]|localhost))(?::([1-9][0-9]{0,4}))?(?=[/?]|\Z)"
)
_UNRESERVED = frozenset(f"{string.ascii_letters}{string.digits}-._~")  # RFC 3986 §2.3
_ESCAPE = re.compile("%([0-9A-Fa-f]{2})")
_DOTS = re.compile(r"(\.|%2e){1,2}", re.IGNORECASE)  # also encoded (WHATWG URL §4.1)
_PRIVATE_USE = re.compile(r"[a-z][a-z0-9-]*(\.[a-z0-9-]+)+:/", re.IGNORECASE)


def discovery(issuer: str) -> str:
    """Return the URL of the metadata of an issuer (OIDC Discovery §4)."""
    return issuer.removesuffix("/") + DISCOVERY


def is_loopback(host: str | None) -> bool:
    """Return whether a host name or IP address is this machine (RFC 8252 §8.3)."""
    if host == "localhost":
        return True
    try:
        return ip_address(host or "").is_loopback
    except ValueError:
        return False


def without_loopback_port(url: str) -> str:
    """Remove the port that a native application picks each time (RFC 8252 §7.3).

    Return any other URL unchanged.
    """
    match = _ANY_PORT.match(url)
    if match is None or int(match[2] or 1) > 65535:
        return url
    return match[1] + url[match.end() :]


def is_native(redirect_uri: str) -> bool:
    """Return whether other programs on the device could receive the response (RFC 8252 §8.6).

    They could with loopback and private-use schemes.
    """
    return not redirect_uri.lower().startswith("https:")


def origin(url: str) -> str | None:
    """Return the web origin of an http or https URL, as browsers write it (RFC 6454 §6.2)."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    is_usual = parts.port in (None, 443 if parts.scheme == "https" else 80)
    return f"{parts.scheme}://{host}" + ("" if is_usual else f":{parts.port}")


@lru_cache(maxsize=128)
def normalized(url: str) -> str | None:
    """Normalize an http or https URL by RFC 3986 §6.2.2 and §6.2.3, without query and fragment.

    Return `None` for any other text.
    """
    if strict_url_error(url) or (base := origin(url)) is None:
        return None
    path = _ESCAPE.sub(_unescaped, urlsplit(url).path)
    segments: list[str] = []
    for segment in path.split("/")[1:]:
        if segment == "..":
            del segments[-1:]
        elif segment != ".":
            segments.append(segment)
    if path.endswith(("/.", "/..")):
        segments.append("")
    return f"{base}/{'/'.join(segments)}"


def _unescaped(match: re.Match[str]) -> str:
    character = chr(int(match[1], 16))
    return character if character in _UNRESERVED else match[0].upper()


def refused(label: Message, url: str, reason: str, code: str | None = None) -> Message:
    """Return the message that a URL is refused, with the reason."""
    return Message(
        "%(label)s %(url)s is refused: %(reason)s",
        label=label,
        url=repr(url[:200]),
        reason=reason,
        code=code,
    )


def strict_url_error(text: str) -> Message | None:
    """Return why a text is not an absolute URL with a host, or `None`."""
    if len(text) > MAX_LENGTH:
        return Message("it is longer than %(most)d characters", most=MAX_LENGTH)
    if not set(text) <= _URI_CHARACTERS:
        return Message("it has characters that a URL may not have; percent-encode them")
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return Message("it is not a valid URL")
    if not parts.scheme:
        return Message("it is not absolute; begin with https://")
    if "@" in parts.netloc:
        return Message("it carries a user name, which can disguise the host")
    if parts.scheme in ("http", "https") and not parts.hostname:
        return Message("it has no host")
    return None


def call_error(url: str, *, only_public: bool = False) -> Message | None:
    """Return why this server does not call the IP address in a URL, or `None`.

    `only_public`: private addresses are refused, too. A host name is checked when it is called.
    """
    literal = addresses.literal(urlsplit(url).hostname or "")
    reason = addresses.forbidden(literal, only_public) if literal else None
    if reason == "private":
        return Message("its host is a private address")
    if reason:
        return Message(
            "its host is an address that is never called: link-local, multicast, reserved, or the "
            "metadata service of a cloud"
        )
    return None


def registration_error(text: str, *, is_public: bool = False) -> Message | None:
    """Return why a URL may not be registered as a redirect URI, or `None`.

    RFC 6749 §3.1.2 (absolute, no fragment), RFC 9700 §2.1 and §4.1 (exact, no wildcard, https
    except for loopback), RFC 8252 §7.1 (a public client may have a private-use scheme, which is a
    reversed domain name).
    """
    if error := strict_url_error(text):
        return error
    parts = urlsplit(text)
    scheme = parts.scheme.lower()
    checks = (
        ("#" in text, Message("it has a fragment (RFC 6749 §3.1.2)")),
        ("*" in text, Message("it has a wildcard; URLs are compared exactly (RFC 9700 §4.1)")),
        (
            scheme in _DANGEROUS_SCHEMES,
            Message("the scheme %(scheme)s runs or reads in the browser", scheme=f"{scheme}:"),
        ),
        (
            scheme == "http" and not is_loopback(parts.hostname),
            Message(
                "it is plain http, which only localhost, 127.0.0.1 and [::1] may use; "
                "use https (RFC 9700 §2.6)"
            ),
        ),
        (
            is_public and scheme in ("http", "https") and parts.netloc != parts.netloc.lower(),
            Message("its host has capital letters; browsers write it in lower case"),
        ),
        (
            scheme not in ("http", "https") and not is_public,
            Message("it is not https; only public clients may have another scheme (RFC 8252 §7.1)"),
        ),
        (
            scheme not in ("http", "https")
            and (not _PRIVATE_USE.match(text) or scheme.split(".")[0] in _NO_DOMAINS),
            Message(
                "a private-use URI has a reversed domain name and a slash, like com.example.app:/ "
                "(RFC 8252 §7.1)"
            ),
        ),
        (
            any(_DOTS.fullmatch(part) for part in parts.path.split("/")),
            Message("its path has . or .. segments, which browsers rewrite"),
        ),
    )
    return next((reason for is_wrong, reason in checks if is_wrong), None)


def home_url_error(text: str) -> Message | None:
    """Return why a URL cannot be the home page of an application, or `None`."""
    if error := strict_url_error(text):
        return error
    parts = urlsplit(text)
    if parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname)):
        return None
    return Message("it is not https")


def client_logo(base: str, digest: str) -> str:
    """Return the URL of an application's logo."""
    return f"{base}/client-logo?v={digest}"


# With 192 random bits, so that nobody finds pictures, or people, by trying URLs.
_PICTURE_FILE = re.compile(r"(?P<name>[A-Za-z0-9_-]{32})\.jpg")
_PICTURE = re.compile(rf"https?://[^?#]*/picture/{_PICTURE_FILE.pattern}")


def picture(base: str, name: str) -> str:
    """Return the URL of an uploaded picture of a person."""
    return f"{base}/picture/{name}.jpg"


def picture_name(url: object) -> str | None:
    """Return the name in the URL of an uploaded picture; `None` if it is another value.

    The base URL may be a former one.
    """
    match = _PICTURE.fullmatch(url) if isinstance(url, str) else None
    return match["name"] if match else None


def name_of_picture_file(file: str) -> str | None:
    """Return the name in the last segment of such a URL; `None` if it is another text."""
    match = _PICTURE_FILE.fullmatch(file)
    return match["name"] if match else None


def add_parameters(url: str, parameters: list[tuple[str, str]]) -> str:
    """Add parameters to the query; keep the existing ones byte for byte (RFC 6749 §3.1.2)."""
    # Authlib's add_params_to_uri re-encodes the registered query, so it is not used here.
    # surrogateescape carries bytes that are not UTF-8 through, as `parameters` read them.
    encoded = "&".join(
        f"{quote(name, safe='')}={quote(value, safe='', errors='surrogateescape')}"
        for name, value in parameters
    )
    if "?" not in url:
        return f"{url}?{encoded}"
    separator = "" if url.endswith(("?", "&")) else "&"
    return f"{url}{separator}{encoded}"


# After RFC 3986 appendix B: it matches every text, and the groups joined make the text again.
_PARTS = re.compile(
    r"(?P<scheme>[^:/?#]+:)?"
    r"(?:(?P<slashes>//)(?P<user>[^/?#]*@)?"
    r"(?P<host>\[[^/?#\]]*\]|[^/?#:]*)(?P<port>:[^/?#]*)?)?"
    r"(?P<path>[^?#]*)(?P<query>\?[^#]*)?(?P<fragment>#.*)?",
    re.DOTALL,
)


class Kind(Enum):
    """The kinds of differences between two URLs."""

    SPACE = "space"
    SCHEME = "scheme"
    USER = "user name"
    LOOPBACK = "name of the loopback host"
    HOST = "host"
    PORT = "port"
    TRAILING_SLASH = "trailing slash"
    CASE = "upper and lower case"
    ENCODING = "percent-encoding"
    PATH = "path"
    QUERY = "query"
    FRAGMENT = "fragment"


# How much each kind counts in the distance of two URLs. All others are slips, and count as 1.
_WEIGHTS = {Kind.PATH: 4, Kind.HOST: 8, Kind.USER: 8} | dict.fromkeys(
    (Kind.SCHEME, Kind.LOOPBACK, Kind.PORT, Kind.QUERY, Kind.FRAGMENT), 2
)


class Difference(NamedTuple):
    kind: Kind
    message: Message


class Url(NamedTuple):
    """The parts of a URL, each with its delimiter. Joined, they are the URL."""

    scheme: str
    slashes: str
    user: str
    host: str
    port: str
    path: str
    query: str
    fragment: str


def split_url(text: str) -> Url:
    """Split any text as if it was a URL."""
    match = _PARTS.fullmatch(text)
    assert match is not None
    return Url(**match.groupdict(default=""))


def url_differences(received: str, registered: str) -> list[Difference]:
    """Compare a received URL with a registered one."""
    inner, expected = received.strip(), registered.strip()
    pairs = _differences(split_url(inner), split_url(expected))
    differences = [Difference(kind, message) for kind, message in pairs]
    if (received != registered) and (received, registered) != (inner, expected):
        differences.append(Difference(Kind.SPACE, Message("it has spaces before or after it")))
    return differences


def nearest_url(received: str, registered: Iterable[str]) -> str | None:
    """Return the registered URL that differs least."""

    def distance(url: str) -> tuple[int, int]:
        differences = url_differences(received, url)
        weight = sum(_WEIGHTS.get(difference.kind, 1) for difference in differences)
        return weight, -_common(received, url)

    return min(registered, key=distance, default=None)


def marks(received: str, registered: str) -> str:
    """Return a line of carets that mark below the received URL where it differs."""
    line = [" "] * (len(received) + 1)
    start = 0
    for part, expected in zip(split_url(received), split_url(registered), strict=True):
        if part != expected:
            before = _common(part, expected)
            rest, rest_expected = part[before:], expected[before:]
            after = _common(rest[::-1], rest_expected[::-1])
            end = start + len(part) - after
            # At least one caret, where something is missing.
            for place in range(start + before, max(end, start + before + 1)):
                line[place] = "^"
        start += len(part)
    return "".join(line).rstrip()


def _common(first: str, second: str) -> int:
    """Count the characters that two texts have in common at the beginning."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(first), len(second)))


_MISSING, _EMPTY = Message("missing"), Message("empty")


def _differences(received: Url, registered: Url) -> Iterator[tuple[Kind, Message]]:
    scheme, expected = received.scheme.rstrip(":"), registered.scheme.rstrip(":")
    if scheme.lower() != expected.lower():
        yield (
            Kind.SCHEME,
            Message(
                "the scheme is %(received)s, not %(expected)s",
                received=scheme or _MISSING,
                expected=expected or _EMPTY,
            ),
        )
    elif scheme != expected:
        yield Kind.CASE, Message("the scheme differs in upper and lower case")
    elif received.slashes != registered.slashes:
        if received.slashes:
            message = Message("it has // after the scheme, the other has none")
        else:
            message = Message("it has no // after the scheme, the other has it")
        yield Kind.SCHEME, message
    if received.user != registered.user:
        yield Kind.USER, Message("it has a user name before the host")
    yield from _host(received.host, registered.host)
    if received.port != registered.port:
        yield Kind.PORT, _port(received, registered)
    if received.path != registered.path:
        yield from _path(received.path, registered.path)
    if received.query != registered.query:
        yield Kind.QUERY, _query(received.query, registered.query)
    if received.fragment != registered.fragment:
        message = Message("it has a fragment (#…), which no redirect URI may have")
        yield Kind.FRAGMENT, message


def _host(received: str, registered: str) -> Iterator[tuple[Kind, Message]]:
    if received == registered:
        return
    if received.lower() == registered.lower():
        yield Kind.CASE, Message("the host differs in upper and lower case")
    elif is_loopback(received.strip("[]").lower()) and is_loopback(registered.strip("[]").lower()):
        message = Message(
            "it says %(received)s, not %(expected)s, and the texts are compared",
            received=received,
            expected=registered,
        )
        yield Kind.LOOPBACK, message
    else:
        message = Message(
            "the host is %(received)s, not %(expected)s",
            received=received or _MISSING,
            expected=registered or _EMPTY,
        )
        yield Kind.HOST, message


def _port(received: Url, registered: Url) -> Message:
    number, expected = received.port[1:], registered.port[1:]
    if not received.port:
        return Message("the port %(port)s is missing", port=expected)
    default = {"https:": "443", "http:": "80"}.get(received.scheme.lower())
    if not registered.port:
        if number != default:
            return Message("it has the port %(port)s, the other has none", port=number)
        return Message(
            "it has the port %(port)s, the other has none, although it is the default", port=number
        )
    return Message(
        "the port is %(received)s, not %(expected)s", received=number or _EMPTY, expected=expected
    )


def _path(received: str, registered: str) -> Iterator[tuple[Kind, Message]]:
    """Yield the slips, if the paths are the same without them; else one difference."""
    slips: dict[Kind, Callable[[bytes], bytes]] = {
        Kind.TRAILING_SLASH: lambda path: path.rstrip(b"/"),
        Kind.CASE: bytes.lower,
        Kind.ENCODING: unquote_to_bytes,
    }

    def same_without(*undone: Kind) -> bool:
        first, second = (path.encode("utf-8", "surrogatepass") for path in (received, registered))
        for kind in (Kind.ENCODING, Kind.CASE, Kind.TRAILING_SLASH):
            if kind in undone:
                first, second = slips[kind](first), slips[kind](second)
        return first == second

    if not same_without(*slips):
        message = Message(
            "the path is %(received)s, not %(expected)s",
            received=received or _EMPTY,
            expected=registered or _EMPTY,
        )
        yield Kind.PATH, message
        return
    needed = [kind for kind in slips if not same_without(*(slips.keys() - {kind}))]
    for kind in needed or [Kind.ENCODING]:
        if kind is Kind.CASE:
            yield kind, Message("the path differs in upper and lower case")
        elif kind is Kind.ENCODING:
            yield kind, Message("the path differs in percent-encoding")
        elif received.endswith("/"):
            yield kind, Message("it has a trailing slash, the other has none")
        else:
            yield kind, Message("it has no trailing slash, the other has one")


def _query(received: str, registered: str) -> Message:
    if not registered:
        return Message("it has a query (%(query)s), the other has none", query=received)
    if not received:
        return Message("the query %(query)s is missing", query=registered)
    return Message("the query differs")
