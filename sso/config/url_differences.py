"""What two URLs that are compared exactly differ in, in words."""

import re
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from sso.config.urls import is_loopback
from sso.i18n.message import Message

# After RFC 3986 appendix B: it matches every text, and the groups joined make the text again.
_PARTS = re.compile(
    r"(?P<scheme>[^:/?#]+:)?"
    r"(?:(?P<slashes>//)(?P<user>[^/?#]*@)?"
    r"(?P<host>\[[^/?#\]]*\]|[^/?#:]*)(?P<port>:[^/?#]*)?)?"
    r"(?P<path>[^?#]*)(?P<query>\?[^#]*)?(?P<fragment>#.*)?",
    re.DOTALL,
)


class Kind(Enum):
    """What differs."""

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


# How far two URLs are from each other by each kind; what is not here is 1, a slip.
_WEIGHTS = {Kind.PATH: 4, Kind.HOST: 8, Kind.USER: 8} | dict.fromkeys(
    (Kind.SCHEME, Kind.LOOPBACK, Kind.PORT, Kind.QUERY, Kind.FRAGMENT), 2
)


class Difference(NamedTuple):
    kind: Kind
    words: Message


class Url(NamedTuple):
    """The parts of a URL, each with its delimiter; joined they are the text."""

    scheme: str
    slashes: str
    user: str
    host: str
    port: str
    path: str
    query: str
    fragment: str


def split(text: str) -> Url:
    """The parts of any text, as if it was a URL."""
    found = _PARTS.fullmatch(text)
    assert found is not None
    return Url(**found.groupdict(default=""))


def differences(received: str, registered: str) -> list[Difference]:
    """What the received URL differs in from the registered one."""
    inner, expected = received.strip(), registered.strip()
    found = [Difference(*one) for one in _differences(split(inner), split(expected))]
    if (received != registered) and (received, registered) != (inner, expected):
        found.append(Difference(Kind.SPACE, Message("it has spaces before or after it")))
    return found


def nearest(received: str, registered: Iterable[str]) -> str | None:
    """The registered URL that differs least."""

    def distance(one: str) -> tuple[int, int]:
        weight = sum(_WEIGHTS.get(found.kind, 1) for found in differences(received, one))
        return weight, -_common(received, one)

    return min(registered, key=distance, default=None)


def marks(received: str, registered: str) -> str:
    """A line of carets to stand below the received URL, where it differs."""
    line = [" "] * (len(received) + 1)
    start = 0
    for part, expected in zip(split(received), split(registered), strict=True):
        if part != expected:
            before = _common(part, expected)
            rest, rest_expected = part[before:], expected[before:]
            after = _common(rest[::-1], rest_expected[::-1])
            end = start + len(part) - after
            # Where nothing stands there, the place where something is missing.
            for place in range(start + before, max(end, start + before + 1)):
                line[place] = "^"
        start += len(part)
    return "".join(line).rstrip()


def _common(one: str, other: str) -> int:
    """How many characters are the same at the beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


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
            words = Message("it has // after the scheme, the other has none")
        else:
            words = Message("it has no // after the scheme, the other has it")
        yield Kind.SCHEME, words
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
        words = Message("it has a fragment (#…), which no redirect URI may have")
        yield Kind.FRAGMENT, words


def _host(received: str, registered: str) -> Iterator[tuple[Kind, Message]]:
    if received == registered:
        return
    if received.lower() == registered.lower():
        yield Kind.CASE, Message("the host differs in upper and lower case")
    elif is_loopback(received.strip("[]").lower()) and is_loopback(registered.strip("[]").lower()):
        words = Message(
            "it says %(received)s, not %(expected)s, and the texts are compared",
            received=received,
            expected=registered,
        )
        yield Kind.LOOPBACK, words
    else:
        words = Message(
            "the host is %(received)s, not %(expected)s",
            received=received or _MISSING,
            expected=registered or _EMPTY,
        )
        yield Kind.HOST, words


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
    """The slips, if without them both are the same; else simply another path."""
    slips: dict[Kind, Callable[[bytes], bytes]] = {
        Kind.TRAILING_SLASH: lambda path: path.rstrip(b"/"),
        Kind.CASE: bytes.lower,
        Kind.ENCODING: unquote_to_bytes,
    }

    def same_without(*undone: Kind) -> bool:
        one, other = (path.encode("utf-8", "surrogatepass") for path in (received, registered))
        for kind in (Kind.ENCODING, Kind.CASE, Kind.TRAILING_SLASH):
            if kind in undone:
                one, other = slips[kind](one), slips[kind](other)
        return one == other

    if not same_without(*slips):
        words = Message(
            "the path is %(received)s, not %(expected)s",
            received=received or _EMPTY,
            expected=registered or _EMPTY,
        )
        yield Kind.PATH, words
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
