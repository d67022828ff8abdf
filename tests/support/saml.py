"""A service provider: it makes requests, and reads answers after verifying their signatures."""

import base64
import zlib
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from urllib.parse import quote_plus, urlencode

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from flask import Flask
from lxml import etree
from signxml import SignatureConfiguration, XMLSigner, XMLVerifier

from sso import clock
from sso.saml.documents import NAMESPACES, new_id, timestamp
from tests.support.actors import BASE, ORIGIN, Browser, Page
from tests.support.factories import make_client

ENTITY_ID = "https://wiki.example/saml"
ACS_URL = "https://wiki.example/saml/acs"
SSO_URL, SLO_URL = f"{ORIGIN}{BASE}/saml/sso", f"{ORIGIN}{BASE}/saml/slo"
RSA_SHA256 = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256"


@dataclass(frozen=True)
class Pair:
    """A key and its certificate."""

    key: rsa.RSAPrivateKey
    certificate: str


@cache
def pair(name: str = "sp") -> Pair:
    """A key with a self-signed certificate, which expired long ago: only the key matters."""
    key = rsa.generate_private_key(65537, 2048)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    since = datetime(2020, 1, 1, tzinfo=UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(since)
        .not_valid_after(since + timedelta(days=365))
        .sign(key, hashes.SHA256())
    )
    return Pair(key, certificate.public_bytes(Encoding.PEM).decode())


def authn_request(
    issuer: str = ENTITY_ID, inside: str = "", identifier: str | None = None, **attributes: str
) -> str:
    """An authentication request; an empty attribute is left out."""
    values = {
        "ID": identifier or new_id(),
        "Version": "2.0",
        "IssueInstant": timestamp(clock.now()),
        "Destination": SSO_URL,
        "AssertionConsumerServiceURL": ACS_URL,
        **attributes,
    }
    text = " ".join(f'{name}="{value}"' for name, value in values.items() if value)
    return (
        f'<samlp:AuthnRequest xmlns:samlp="{NAMESPACES["samlp"]}" '
        f'xmlns:saml="{NAMESPACES["saml"]}" {text}><saml:Issuer>{issuer}</saml:Issuer>{inside}'
        "</samlp:AuthnRequest>"
    )


def deflated(xml: str | bytes) -> str:
    data = xml.encode() if isinstance(xml, str) else xml
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    return base64.b64encode(compressor.compress(data) + compressor.flush()).decode()


def query(
    xml: str,
    relay_state: str | None = None,
    signed_by: Pair | None = None,
    name: str = "SAMLRequest",
    algorithm: str = RSA_SHA256,
) -> str:
    """The query of the redirect binding."""
    parts = [f"{name}={quote_plus(deflated(xml))}"]
    if relay_state is not None:
        parts.append(f"RelayState={quote_plus(relay_state)}")
    if signed_by:
        parts.append(f"SigAlg={quote_plus(algorithm)}")
        signature = signed_by.key.sign(
            "&".join(parts).encode(), padding.PKCS1v15(), hashes.SHA256()
        )
        parts.append(f"Signature={quote_plus(base64.b64encode(signature).decode())}")
    return "&".join(parts)


def signed_xml(xml: str, by: Pair, **more: Any) -> bytes:
    """A message with an enveloped signature, after its Issuer."""
    root = etree.fromstring(xml.encode())
    root.insert(1, etree.Element(f"{{{NAMESPACES['ds']}}}Signature", Id="placeholder"))
    signer = XMLSigner(c14n_algorithm="http://www.w3.org/2001/10/xml-exc-c14n#", **more)
    signed = signer.sign(
        root, key=by.key, cert=by.certificate, reference_uri=f"#{root.get('ID')}",
        id_attribute="ID",
    )  # fmt: skip
    return bytes(etree.tostring(signed))


@dataclass
class Answer:
    """A response, verified."""

    root: Any
    action: str
    relay_state: str | None
    assertion: Any = None

    def text(self, path: str) -> str | None:
        element = self.root.find(path, NAMESPACES)
        return None if element is None else element.text

    @property
    def name_id(self) -> str | None:
        return self.text(".//saml:NameID")

    @property
    def status(self) -> str:
        """The last code of the status, without its beginning."""
        codes = self.root.findall(".//samlp:StatusCode", NAMESPACES)
        return str(codes[-1].get("Value")).rpartition(":")[2]

    @property
    def attributes(self) -> dict[str, list[str]]:
        return {
            attribute.get("Name"): [value.text or "" for value in attribute]
            for attribute in self.root.iterfind(".//saml:Attribute", NAMESPACES)
        }


@dataclass
class ServiceProvider:
    """A registered application that speaks SAML."""

    app: Flask
    client_id: str
    entity_id: str = ENTITY_ID
    acs_url: str = ACS_URL
    answers: list[Answer] = field(default_factory=list)

    def start(self, browser: Browser, xml: str | None = None, **more: Any) -> Page:
        """Send a browser to single sign-on."""
        request = xml or authn_request(self.entity_id, AssertionConsumerServiceURL=self.acs_url)
        return browser.open(f"{SSO_URL}?{query(request, **more)}")

    def sign_on(self, browser: Browser, xml: str | None = None, **more: Any) -> Answer:
        """The whole way: request, sign-in and consent, as far as each is asked for."""
        page = self.start(browser, xml, **more)
        if "password" in page.fields:
            page = browser.sign_in()
        if ("decision", "allow") in page.buttons:
            page = browser.allow()
        return self.read(page)

    def read(self, page: Page) -> Answer:
        """Verify what the page posts to this service provider, with our metadata."""
        assert page.status == 200, page.html
        message = base64.b64decode(page.fields["SAMLResponse"])
        configuration = SignatureConfiguration(location="./", expect_references=1)
        root = None
        for certificate in certificates(self.app):
            try:
                verified = XMLVerifier().verify(
                    message, x509_cert=certificate, id_attribute="ID",
                    expect_config=configuration,
                )  # fmt: skip
            except Exception as error:
                last = error
                continue
            root = getattr(verified, "signed_xml", None)
            break
        assert root is not None, last
        answer = Answer(root, str(page.action), page.fields.get("RelayState"))
        self.answers.append(answer)
        return answer


def certificates(app: Flask) -> list[str]:
    """The certificates of our metadata, as PEM."""
    response = app.test_client().get(f"{BASE}/saml/metadata", base_url=ORIGIN)
    root = etree.fromstring(response.get_data())
    return [
        f"-----BEGIN CERTIFICATE-----\n{element.text}\n-----END CERTIFICATE-----\n"
        for element in root.iterfind(".//ds:X509Certificate", NAMESPACES)
    ]


def make_service_provider(app: Flask, **more: Any) -> ServiceProvider:
    """Register a service provider, committed."""
    fields = {
        "name": "Wiki", "redirect_uris": [], "saml_entity_id": ENTITY_ID,
        "saml_acs_urls": [ACS_URL], **more,
    }  # fmt: skip
    client = make_client(app, **fields)
    return ServiceProvider(
        app, client.client_id, fields["saml_entity_id"], fields["saml_acs_urls"][0]
    )


def post_form(message: str | bytes, **more: str) -> str:
    """The body of the POST binding."""
    data = message.encode() if isinstance(message, str) else message
    return urlencode({"SAMLRequest": base64.b64encode(data).decode(), **more})
