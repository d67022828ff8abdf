"""XML documents of SAML: parsed without DTD, entities and network, bounded in size and depth."""

import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from lxml import etree

Element = Any  # lxml has no types

MAX_MESSAGE = 64 * 1024  # bytes, inflated
MAX_METADATA = 1024 * 1024
MAX_DEPTH = 40
MAX_NODES = 20_000

SAML = "urn:oasis:names:tc:SAML:2.0:assertion"
SAMLP = "urn:oasis:names:tc:SAML:2.0:protocol"
MD = "urn:oasis:names:tc:SAML:2.0:metadata"
DS = "http://www.w3.org/2000/09/xmldsig#"
XS = "http://www.w3.org/2001/XMLSchema"
XSI = "http://www.w3.org/2001/XMLSchema-instance"
NAMESPACES = {"saml": SAML, "samlp": SAMLP, "md": MD, "ds": DS}

POST_BINDING = "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST"
REDIRECT_BINDING = "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Redirect"
PERSISTENT = "urn:oasis:names:tc:SAML:2.0:nameid-format:persistent"
EMAIL = "urn:oasis:names:tc:SAML:1.1:nameid-format:emailAddress"
UNSPECIFIED = "urn:oasis:names:tc:SAML:1.1:nameid-format:unspecified"


class Malformed(ValueError):
    """The document cannot be accepted; `str()` says why, for developers."""


def parse(text: bytes, most: int = MAX_MESSAGE, *, allows_comments: bool = False) -> Element:
    """Return the root of a document. Raises `Malformed`.

    Comments are refused, because programs disagree about the text around them; with
    `allows_comments` they are dropped. UTF-8 is the only encoding: another one could hide a DTD.
    """
    if len(text) > most:
        raise Malformed(f"The XML is longer than {most} bytes.")
    try:
        clear = text.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Malformed("The XML is not UTF-8.") from None
    if "<!DOCTYPE" in clear or "<!ENTITY" in clear or "\0" in clear:
        raise Malformed("The XML has a document type declaration.")
    parser = etree.XMLParser(
        encoding="utf-8",
        resolve_entities=False,
        load_dtd=False,
        dtd_validation=False,
        no_network=True,
        huge_tree=False,
        recover=False,
        remove_comments=allows_comments,
        remove_pis=allows_comments,
    )
    try:
        root = etree.fromstring(clear.encode(), parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise Malformed(f"It is no well-formed XML: {str(error)[:200]}") from None
    if root.getroottree().docinfo.doctype:
        raise Malformed("The XML has a document type declaration.")
    _check_nodes(root)
    return root


def _check_nodes(root: Element) -> None:
    """Check size, depth, kinds of nodes and identifiers. Raises `Malformed`."""
    identifiers: set[str] = set()
    count, depth = 0, 0
    for event, node in etree.iterwalk(root, events=("start", "end", "comment", "pi")):
        if event == "end":
            depth -= 1
            continue
        if event != "start" or not isinstance(node.tag, str):
            raise Malformed("The XML has a comment or a processing instruction.")
        count, depth = count + 1, depth + 1
        if depth > MAX_DEPTH or count > MAX_NODES:
            raise Malformed("The XML has too many elements, or nests them too deep.")
        for name in node.attrib:
            if etree.QName(name).localname.lower() == "id":
                if node.attrib[name] in identifiers:
                    raise Malformed("Two elements of the XML have the same ID.")
                identifiers.add(node.attrib[name])
    siblings = (*root.itersiblings(), *root.itersiblings(preceding=True))
    if any(not isinstance(node.tag, str) for node in siblings):
        raise Malformed("The XML has a comment or a processing instruction.")


def tag(namespace: str, name: str) -> str:
    """Return a qualified name, as lxml writes it."""
    return f"{{{namespace}}}{name}"


def child(parent: Element, path: str) -> Element | None:
    """Return the only element at a path of direct children, such as `saml:Issuer`.

    Raises `Malformed` if there are several.
    """
    elements = parent.findall(path, NAMESPACES)
    if len(elements) > 1:
        raise Malformed(f"The XML has more than one {path}.")
    return elements[0] if elements else None


def text_of(parent: Element, path: str) -> str | None:
    """Return the text of the only element at a path. Raises `Malformed`."""
    element = child(parent, path)
    if element is None:
        return None
    if len(element):
        raise Malformed(f"The element {path} contains elements.")
    return (element.text or "").strip() or None


def texts_of(parent: Element, path: str) -> Iterator[str]:
    """Yield the texts of all elements at a path."""
    for element in parent.findall(path, NAMESPACES):
        if text := (element.text or "").strip():
            yield text


def new_id() -> str:
    """Return an identifier for a message or an assertion (Core §1.3.4)."""
    return f"_{secrets.token_hex(20)}"


def timestamp(moment: datetime) -> str:
    """Return a moment as Core §1.3.3 wants it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(text: str | None) -> datetime | None:
    """Read a time in UTC; `None` if there is none. Raises `Malformed`."""
    if text is None:
        return None
    try:
        value = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    except (ValueError, OverflowError):  # the first and the last day, in another time zone
        raise Malformed(f"{text[:40]!r} is no time.") from None


def duration(length: timedelta) -> str:
    """Return a duration in seconds, as XML Schema writes it."""
    return f"PT{int(length.total_seconds())}S"


def serialized(root: Element) -> bytes:
    """Return a document as UTF-8, without an XML declaration."""
    return bytes(etree.tostring(root))
