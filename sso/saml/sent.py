"""What this server sends to service providers: assertions, errors and logout messages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from lxml import etree

from sso.saml import xml_signatures
from sso.saml.documents import (
    SAML,
    SAMLP,
    XS,
    XSI,
    Element,
    new_id,
    serialized,
    tag,
    timestamp,
)

STATUS = "urn:oasis:names:tc:SAML:2.0:status:"
SUCCESS, RESPONDER, REQUESTER = "Success", "Responder", "Requester"
SKEW = timedelta(minutes=2)  # clocks of service providers
LIFETIME = timedelta(minutes=5)  # to deliver an assertion
_NAMES = {"saml": SAML, "samlp": SAMLP, "xs": XS, "xsi": XSI}
_BASIC = "urn:oasis:names:tc:SAML:2.0:attrname-format:basic"
_URI = "urn:oasis:names:tc:SAML:2.0:attrname-format:uri"


@dataclass(frozen=True)
class SigningKey:
    """The key that signs, and its certificate as PEM."""

    private: RSAPrivateKey
    certificate: str


@dataclass(frozen=True)
class NameId:
    """The name of a person at a service provider, with its format (Core §8.3)."""

    value: str
    format: str


@dataclass(frozen=True)
class Statement:
    """What an assertion says."""

    name_id: NameId
    audience: str
    acs_url: str
    in_response_to: str | None
    session_index: str
    authenticated_at: datetime
    context: str
    attributes: Mapping[str, Sequence[str]]
    session_ends_at: datetime | None = None


def response(statement: Statement, issuer: str, key: SigningKey, now: datetime) -> bytes:
    """Return a response with an assertion (Profiles §4.1.4.2); both are signed."""
    root = _response(issuer, statement.acs_url, statement.in_response_to, now)
    _status(root, SUCCESS)
    root.append(xml_signatures.sign(_assertion(statement, issuer, now), key.private,
                                    key.certificate))  # fmt: skip
    return serialized(xml_signatures.sign(root, key.private, key.certificate))


def refusal(
    acs_url: str,
    in_response_to: str | None,
    codes: Sequence[str],
    text: str,
    issuer: str,
    key: SigningKey,
    now: datetime,
) -> bytes:
    """Return a signed response without an assertion (Core §3.2.2). `codes`: first and second."""
    root = _response(issuer, acs_url, in_response_to, now)
    first, *rest = codes
    _status(root, first, rest[0] if rest else None, text=text)
    return serialized(xml_signatures.sign(root, key.private, key.certificate))


def logout_request(
    name_id: NameId, session_index: str, destination: str, issuer: str, now: datetime
) -> tuple[str, bytes]:
    """Return a logout request and its ID (Core §3.7.1); its query is signed."""
    root = _message("LogoutRequest", issuer, destination, now)
    root.set("NotOnOrAfter", timestamp(now + LIFETIME))
    _name_id(root, name_id)
    _add(root, SAMLP, "SessionIndex", session_index)
    return root.get("ID"), serialized(root)


def logout_response(
    destination: str, in_response_to: str, is_partial: bool, issuer: str, now: datetime
) -> bytes:
    """Return a logout response (Core §3.7.2); its query is signed."""
    root = _message("LogoutResponse", issuer, destination, now)
    root.set("InResponseTo", in_response_to)
    _status(root, SUCCESS, "PartialLogout" if is_partial else None)
    return serialized(root)


def _message(name: str, issuer: str, destination: str, now: datetime) -> Element:
    root = etree.Element(tag(SAMLP, name), nsmap=_NAMES)
    root.set("ID", new_id())
    root.set("Version", "2.0")
    root.set("IssueInstant", timestamp(now))
    root.set("Destination", destination)
    _add(root, SAML, "Issuer", issuer)
    return root


def _response(issuer: str, acs_url: str, in_response_to: str | None, now: datetime) -> Element:
    root = _message("Response", issuer, acs_url, now)
    if in_response_to:
        root.set("InResponseTo", in_response_to)
    return root


def _status(root: Element, first: str, second: str | None = None, *, text: str = "") -> None:
    status = etree.SubElement(root, tag(SAMLP, "Status"))
    code = etree.SubElement(status, tag(SAMLP, "StatusCode"), Value=STATUS + first)
    if second:
        etree.SubElement(code, tag(SAMLP, "StatusCode"), Value=STATUS + second)
    if text:
        _add(status, SAMLP, "StatusMessage", text)


def _assertion(statement: Statement, issuer: str, now: datetime) -> Element:
    root = etree.Element(tag(SAML, "Assertion"), nsmap=_NAMES)
    root.set("ID", new_id())
    root.set("Version", "2.0")
    root.set("IssueInstant", timestamp(now))
    _add(root, SAML, "Issuer", issuer)
    subject = etree.SubElement(root, tag(SAML, "Subject"))
    _name_id(subject, statement.name_id)
    confirmation = etree.SubElement(
        subject, tag(SAML, "SubjectConfirmation"), Method="urn:oasis:names:tc:SAML:2.0:cm:bearer"
    )
    data = etree.SubElement(confirmation, tag(SAML, "SubjectConfirmationData"))
    if statement.in_response_to:
        data.set("InResponseTo", statement.in_response_to)
    data.set("NotOnOrAfter", timestamp(now + LIFETIME))
    data.set("Recipient", statement.acs_url)
    conditions = etree.SubElement(root, tag(SAML, "Conditions"))
    conditions.set("NotBefore", timestamp(now - SKEW))
    conditions.set("NotOnOrAfter", timestamp(now + LIFETIME))
    audiences = etree.SubElement(conditions, tag(SAML, "AudienceRestriction"))
    _add(audiences, SAML, "Audience", statement.audience)
    authentication = etree.SubElement(root, tag(SAML, "AuthnStatement"))
    authentication.set("AuthnInstant", timestamp(statement.authenticated_at))
    authentication.set("SessionIndex", statement.session_index)
    if statement.session_ends_at:
        authentication.set("SessionNotOnOrAfter", timestamp(statement.session_ends_at))
    context = etree.SubElement(authentication, tag(SAML, "AuthnContext"))
    _add(context, SAML, "AuthnContextClassRef", statement.context)
    if statement.attributes:
        _attributes(root, statement.attributes)
    return root


def _attributes(root: Element, attributes: Mapping[str, Sequence[str]]) -> None:
    statement = etree.SubElement(root, tag(SAML, "AttributeStatement"))
    for name, values in attributes.items():
        attribute = etree.SubElement(statement, tag(SAML, "Attribute"), Name=name)
        attribute.set("NameFormat", _URI if ":" in name else _BASIC)
        for value in values:
            element = _add(attribute, SAML, "AttributeValue", value)
            element.set(tag(XSI, "type"), "xs:string")


def _name_id(parent: Element, name_id: NameId) -> None:
    _add(parent, SAML, "NameID", name_id.value).set("Format", name_id.format)


def _add(parent: Element, namespace: str, name: str, text: str) -> Element:
    element = etree.SubElement(parent, tag(namespace, name))
    element.text = text
    return element
