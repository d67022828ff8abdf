"""What servers answer, as `ber` has split it up. All functions raise `ValueError`."""

from dataclasses import dataclass

from sso.ldap import ber

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
        """All values of an attribute."""
        return self.attributes.get(attribute.lower(), [])

    def text(self, attribute: str) -> str:
        """The first value of an attribute as text; empty without one."""
        return next((one.decode(errors="replace") for one in self.values(attribute)), "")


@dataclass(frozen=True)
class Result:
    """How an operation ended. `policy`: the code of the password policy, if it objects."""

    code: int
    diagnostic: str = ""
    policy: int | None = None


def split(message: bytes) -> tuple[int, int, bytes, bytes]:
    """Number, tag, contents and controls of a message."""
    fields = ber.Reader(ber.Reader(message).take(ber.SEQUENCE))
    number = ber.to_int(fields.take(ber.INTEGER))
    tag, contents = fields.element()
    return number, tag, contents, b"".join(value for kind, value in fields.rest() if kind == 0xA0)


def result(contents: bytes) -> Result:
    """How an operation ended."""
    fields = ber.Reader(contents)
    code = ber.to_int(fields.take(ber.ENUMERATED))
    fields.take(ber.OCTETS)
    return Result(code, fields.take(ber.OCTETS).decode(errors="replace")[:200])


def entry(contents: bytes) -> Entry:
    """An entry that a search found."""
    fields = ber.Reader(contents)
    dn = fields.take(ber.OCTETS).decode()
    attributes: Attributes = {}
    for _, one in ber.Reader(fields.take(ber.SEQUENCE)).rest():
        attribute = ber.Reader(one)
        name = attribute.take(ber.OCTETS).decode(errors="replace").lower()
        values = ber.Reader(attribute.take(ber.SET)).rest()
        attributes.setdefault(name, []).extend(value for _, value in values)
    return Entry(dn, attributes)


def policy_error(controls: bytes) -> int | None:
    """The code by which the password policy objects, if it does."""
    for _, one in ber.Reader(controls).rest():
        control = ber.Reader(one)
        if control.take(ber.OCTETS) != POLICY_CONTROL.encode():
            continue
        for tag, value in control.rest():
            if tag == ber.OCTETS and value:
                inner = ber.Reader(ber.Reader(value).take(ber.SEQUENCE))
                return next((ber.to_int(code) for kind, code in inner.rest() if kind == 0x81), None)
    return None
