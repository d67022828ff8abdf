"""Metadata: ours as an identity provider, and that of service providers (Metadata §2.4)."""

import json
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography.x509 import Certificate, load_pem_x509_certificate, load_pem_x509_certificates
from lxml import etree

from sso.saml.documents import (
    DS,
    EMAIL,
    MAX_METADATA,
    MD,
    NAMESPACES,
    PERSISTENT,
    POST_BINDING,
    REDIRECT_BINDING,
    SAMLP,
    UNSPECIFIED,
    Element,
    Malformed,
    duration,
    moment,
    parse,
    serialized,
    tag,
)

CACHE = timedelta(days=1)  # for which service providers may keep our metadata
MOST_CERTIFICATES = 10
_PEM = re.compile(r"-----(?:BEGIN|END) CERTIFICATE-----")


@dataclass(frozen=True)
class ServiceProvider:
    """What the metadata of a service provider says, as far as this server uses it."""

    entity_id: str
    acs_urls: Sequence[str]
    logout_url: str | None
    certificates: str  # PEM
    name_id_formats: Sequence[str]
    signs_requests: bool
    expires_at: datetime | None
    notes: Sequence[str] = ()


def certificates(pem: str) -> list[Certificate]:
    """Return the certificates of a text in PEM. Raises `ValueError`."""
    return load_pem_x509_certificates(pem.encode()) if pem.strip() else []


def normalized_certificates(text: str) -> str:
    """Return certificates as PEM, from PEM or from base64 alone. Raises `ValueError`."""
    if "-----BEGIN" in text:
        loaded = certificates(text)
        if not 0 < len(loaded) <= MOST_CERTIFICATES:
            raise ValueError("too many certificates")
        blocks = [block for block in _PEM.split(text) if block.strip()]
        return "".join(_pem(block) for block in blocks if len(block.strip()) > 40)
    pem = _pem(text)
    load_pem_x509_certificate(pem.encode())
    return pem


def _pem(text: str) -> str:
    lines = "\n".join(textwrap.wrap("".join(text.split()), 64))
    return f"-----BEGIN CERTIFICATE-----\n{lines}\n-----END CERTIFICATE-----\n"


def identity_provider(
    entity_id: str, sign_on_url: str, logout_url: str | None, certificates_der: Sequence[str]
) -> bytes:
    """Return our metadata. `certificates_der`: base64, the next key's among them."""
    root = etree.Element(tag(MD, "EntityDescriptor"), nsmap={"md": MD, "ds": DS})
    root.set("entityID", entity_id)
    root.set("cacheDuration", duration(CACHE))
    role = etree.SubElement(root, tag(MD, "IDPSSODescriptor"))
    role.set("protocolSupportEnumeration", SAMLP)
    role.set("WantAuthnRequestsSigned", "false")
    for certificate in certificates_der:
        descriptor = etree.SubElement(role, tag(MD, "KeyDescriptor"), use="signing")
        data = etree.SubElement(etree.SubElement(descriptor, tag(DS, "KeyInfo")),
                                tag(DS, "X509Data"))  # fmt: skip
        etree.SubElement(data, tag(DS, "X509Certificate")).text = certificate
    if logout_url:
        etree.SubElement(role, tag(MD, "SingleLogoutService"), Binding=REDIRECT_BINDING,
                     Location=logout_url)  # fmt: skip
    for name_id_format in (PERSISTENT, EMAIL, UNSPECIFIED):
        etree.SubElement(role, tag(MD, "NameIDFormat")).text = name_id_format
    for binding in (REDIRECT_BINDING, POST_BINDING):
        etree.SubElement(role, tag(MD, "SingleSignOnService"), Binding=binding,
                         Location=sign_on_url)  # fmt: skip
    return b'<?xml version="1.0" encoding="UTF-8"?>\n' + serialized(root)


def service_provider(text: bytes, now: datetime) -> ServiceProvider:
    """Read the metadata of one service provider. Raises `Malformed`."""
    root = parse(text, MAX_METADATA, allows_comments=True)
    entity = _entity(root)
    role = entity.find("md:SPSSODescriptor", NAMESPACES)
    entity_id = entity.get("entityID")
    if role is None or not entity_id:
        raise Malformed("It is no metadata of a service provider: SPSSODescriptor is missing.")
    moments = [at for element in (root, entity, role) if (at := moment(element.get("validUntil")))]
    expires_at = min(moments, default=None)
    if expires_at and expires_at <= now:
        raise Malformed(
            f"The metadata has expired ({expires_at:%Y-%m-%d %H:%M} UTC); fetch it again."
        )
    services = role.findall("md:AssertionConsumerService", NAMESPACES)
    posted = [service for service in services if service.get("Binding") == POST_BINDING]
    posted.sort(key=lambda service: service.get("isDefault") != "true")
    if not posted:
        raise Malformed("The service provider takes no answers by HTTP-POST.")
    notes = []
    if other := len(services) - len(posted):
        notes.append(f"{other} assertion consumer services of other bindings are left out.")
    logouts = role.findall("md:SingleLogoutService", NAMESPACES)
    logout_url = next(
        (service.get("Location") for service in logouts
         if service.get("Binding") == REDIRECT_BINDING), None
    )  # fmt: skip
    if logouts and not logout_url:
        notes.append("It has no single logout by HTTP-Redirect, so sign-out does not reach it.")
    if role.get("WantAssertionsEncrypted") == "true":
        notes.append("It wants encrypted assertions, which this server does not send.")
    return ServiceProvider(
        entity_id,
        [service.get("Location") or "" for service in posted],
        logout_url,
        _signing_certificates(role),
        [(element.text or "").strip() for element in role.findall("md:NameIDFormat", NAMESPACES)],
        role.get("AuthnRequestsSigned") in ("true", "1"),
        expires_at,
        notes,
    )


def _entity(root: Element) -> Element:
    if root.tag == tag(MD, "EntityDescriptor"):
        return root
    entities = root.findall(".//md:EntityDescriptor", NAMESPACES)
    providers = [entity for entity in entities if entity.find("md:SPSSODescriptor", NAMESPACES)
                 is not None]  # fmt: skip
    if len(providers) != 1:
        raise Malformed(f"The metadata describes {len(providers)} service providers, not one.")
    return providers[0]


def _signing_certificates(role: Element) -> str:
    pems = []
    for descriptor in role.findall("md:KeyDescriptor", NAMESPACES):
        if descriptor.get("use") not in (None, "signing"):
            continue
        for element in descriptor.iterfind(".//ds:X509Certificate", NAMESPACES):
            try:
                pem = normalized_certificates(element.text or "")
            except ValueError:
                raise Malformed("The metadata has a certificate that cannot be read.") from None
            if pem not in pems:
                pems.append(pem)
    return "".join(pems[:MOST_CERTIFICATES])


def base64_der(pem: str) -> str:
    """Return a certificate in PEM as metadata has it."""
    return "".join(line for line in pem.splitlines() if not line.startswith("-----"))


def of_public_key(public_jwk: str) -> str:
    """Return the certificate of a public key of ours as PEM (RFC 7517 §4.7)."""
    return _pem(json.loads(public_jwk)["x5c"][0])
