"""The messages of LDAP: how they are encoded and read.

They use a subset of the Basic Encoding Rules (RFC 4511 §5.1). Every function that reads an answer
raises `ValueError` if it is malformed.
"""

from collections.abc import Iterator
from dataclasses import dataclass

BOOLEAN, INTEGER, OCTETS, ENUMERATED, SEQUENCE, SET = 0x01, 0x02, 0x04, 0x0A, 0x30, 0x31
_LONGEST_LENGTH = 4  # bytes; Active Directory always uses four


class Malformed(ValueError):
    """It is not what RFC 4511 describes."""


def encode(tag: int, *parts: bytes) -> bytes:
    """Encode an element, with the parts one after the other as its contents."""
    contents = b"".join(parts)
    size = len(contents)
    if size < 0x80:
        return bytes((tag, size)) + contents
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + contents


def integer(value: int, tag: int = INTEGER) -> bytes:
    """Encode a whole number, in two's complement."""
    return encode(tag, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def boolean(value: bool) -> bytes:
    """True or false."""
    return encode(BOOLEAN, b"\xff" if value else b"\0")


def text(value: str) -> bytes:
    """Encode a string, as UTF-8."""
    return encode(OCTETS, value.encode())


def to_int(contents: bytes) -> int:
    """Decode a whole number."""
    if not 0 < len(contents) <= 8:
        raise Malformed("a number has no digits, or too many")
    return int.from_bytes(contents, "big", signed=True)


def header(data: bytes, at: int = 0) -> tuple[int, int, int] | None:
    """Tag, start and end of the contents of the element at `at`; `None` if it is cut off."""
    if len(data) < at + 2:
        return None
    tag, first = data[at], data[at + 1]
    if tag & 0x1F == 0x1F:
        raise Malformed("a tag is too large")
    if first < 0x80:
        return tag, at + 2, at + 2 + first
    count = first & 0x7F
    if not 0 < count <= _LONGEST_LENGTH:
        raise Malformed("a length is indefinite or too large")
    start = at + 2 + count
    if len(data) < start:
        return None
    return tag, start, start + int.from_bytes(data[at + 2 : start], "big")


class Reader:
    """The elements of some contents, one after the other."""

    def __init__(self, contents: bytes) -> None:
        self._data, self._at = contents, 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def element(self) -> tuple[int, bytes]:
        """Read the next element: its tag and contents. Raises `Malformed`."""
        position = header(self._data, self._at)
        if position is None or position[2] > len(self._data):
            raise Malformed("an element is cut off")
        tag, start, self._at = position
        return tag, self._data[start : self._at]

    def take(self, expected: int) -> bytes:
        """Read the contents of the next element, which must have this tag. Raises `Malformed`."""
        tag, contents = self.element()
        if tag != expected:
            raise Malformed(f"tag {tag:#x} in place of {expected:#x}")
        return contents

    def rest(self) -> Iterator[tuple[int, bytes]]:
        """Read all remaining elements."""
        while self:
            yield self.element()


# draft-behera-ldap-password-policy: what OpenLDAP and 389 tell about an expired password.
POLICY_CONTROL = "1.3.6.1.4.1.42.2.27.8.5.1"
SUCCESS, SIZE_LIMIT, NO_SUCH_OBJECT, INVALID_CREDENTIALS = 0, 4, 32, 49

Attributes = dict[str, list[bytes]]


@dataclass(frozen=True)
class Entry:
    """An entry; names of attributes are in lower case."""

    dn: str
    attributes: Attributes

    def values(self, attribute: str) -> list[bytes]:
        """Return all values of an attribute."""
        return self.attributes.get(attribute.lower(), [])

    def text(self, attribute: str) -> str:
        """Return the first value of an attribute as text; empty without one."""
        return next((value.decode(errors="replace") for value in self.values(attribute)), "")


@dataclass(frozen=True)
class Result:
    """The result of an operation. `policy`: the error code of the password policy, if any."""

    code: int
    diagnostic: str = ""
    policy: int | None = None


def split(message: bytes) -> tuple[int, int, bytes, bytes]:
    """Parse a message into its number, tag, contents and controls."""
    fields = Reader(Reader(message).take(SEQUENCE))
    number = to_int(fields.take(INTEGER))
    tag, contents = fields.element()
    return number, tag, contents, b"".join(value for kind, value in fields.rest() if kind == 0xA0)


def result(contents: bytes) -> Result:
    """Parse the result of an operation."""
    fields = Reader(contents)
    code = to_int(fields.take(ENUMERATED))
    fields.take(OCTETS)
    return Result(code, fields.take(OCTETS).decode(errors="replace")[:200])


def entry(contents: bytes) -> Entry:
    """Parse an entry of a search."""
    fields = Reader(contents)
    dn = fields.take(OCTETS).decode()
    attributes: Attributes = {}
    for _, encoded in Reader(fields.take(SEQUENCE)).rest():
        attribute = Reader(encoded)
        name = attribute.take(OCTETS).decode(errors="replace").lower()
        values = Reader(attribute.take(SET)).rest()
        attributes.setdefault(name, []).extend(value for _, value in values)
    return Entry(dn, attributes)


def policy_error(controls: bytes) -> int | None:
    """Return the error code of the password policy, if there is one."""
    for _, encoded in Reader(controls).rest():
        control = Reader(encoded)
        if control.take(OCTETS) != POLICY_CONTROL.encode():
            continue
        for tag, value in control.rest():
            if tag == OCTETS and value:
                inner = Reader(Reader(value).take(SEQUENCE))
                return next((to_int(code) for kind, code in inner.rest() if kind == 0x81), None)
    return None
