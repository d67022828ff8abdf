"""XML signatures: signing what this server says, and verifying what service providers sign.

`signxml` does both. A signed message is only read from the bytes that its signature covers.
"""

from collections.abc import Sequence

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.x509 import Certificate
from lxml import etree
from signxml import (
    CanonicalizationMethod,
    DigestAlgorithm,
    SignatureConfiguration,
    SignatureConstructionMethod,
    SignatureMethod,
    XMLSigner,
    XMLVerifier,
)
from signxml.exceptions import SignXMLException

from sso.saml.bindings import WeakAlgorithm, WrongSignature
from sso.saml.documents import DS, NAMESPACES, Element, Malformed, tag

_METHODS = frozenset({
    SignatureMethod.RSA_SHA256, SignatureMethod.RSA_SHA384, SignatureMethod.RSA_SHA512,
    SignatureMethod.ECDSA_SHA256, SignatureMethod.ECDSA_SHA384, SignatureMethod.ECDSA_SHA512,
})  # fmt: skip
_DIGESTS = frozenset({DigestAlgorithm.SHA256, DigestAlgorithm.SHA384, DigestAlgorithm.SHA512})
_C14N = CanonicalizationMethod.EXCLUSIVE_XML_CANONICALIZATION_1_0
_TRANSFORMS = frozenset({
    "http://www.w3.org/2000/09/xmldsig#enveloped-signature",
    "http://www.w3.org/2001/10/xml-exc-c14n#",
})  # fmt: skip


def sign(element: Element, key: RSAPrivateKey, certificate: str) -> Element:
    """Return a signed copy of an element (Core §5); the signature follows its Issuer.

    `certificate`: PEM, which goes along.
    """
    placeholder = etree.Element(tag(DS, "Signature"), Id="placeholder", nsmap={"ds": DS})
    element.insert(1, placeholder)
    signer = XMLSigner(
        method=SignatureConstructionMethod.enveloped,
        signature_algorithm=SignatureMethod.RSA_SHA256,
        digest_algorithm=DigestAlgorithm.SHA256,
        c14n_algorithm=_C14N,
    )
    return signer.sign(
        element, key=key, cert=certificate, reference_uri=f"#{element.get('ID')}", id_attribute="ID"
    )


def is_signed(root: Element) -> bool:
    """Return whether a document has a signature anywhere."""
    return root.find(f".//{tag(DS, 'Signature')}") is not None


def verify(root: Element, certificates: Sequence[Certificate]) -> Element:
    """Return the root as its signature covers it. Raises `Malformed` and its subclasses.

    The only signature is a child of the root, and its only reference is to the root (Core §5.4.2):
    nothing can be wrapped. Certificates only carry keys; their dates do not matter (Metadata
    Interoperability Profile §2.6.1).
    """
    signatures = root.findall(f".//{tag(DS, 'Signature')}")
    if len(signatures) != 1 or signatures[0].getparent() is not root:
        raise WrongSignature("The only signature has to be a child of the message.")
    references = signatures[0].findall("ds:SignedInfo/ds:Reference", NAMESPACES)
    if (
        len(references) != 1
        or not root.get("ID")
        or references[0].get("URI") != f"#{root.get('ID')}"
    ):
        raise WrongSignature("The signature does not cover the message, and nothing else.")
    _check_algorithms(signatures[0])
    for certificate in certificates:
        configuration = SignatureConfiguration(
            location="./",
            expect_references=1,
            signature_methods=_METHODS,
            digest_algorithms=_DIGESTS,
            ignore_ambiguous_key_info=True,
            verification_time=certificate.not_valid_before_utc,
        )
        try:
            result = XMLVerifier().verify(
                root, x509_cert=certificate, id_attribute="ID", expect_config=configuration
            )
        except (SignXMLException, ValueError, TypeError, etree.LxmlError):  # also an empty value
            continue
        signed = getattr(result, "signed_xml", None)
        if signed is not None and signed.tag == root.tag and signed.get("ID") == root.get("ID"):
            return signed
    raise WrongSignature("No registered certificate verifies the signature of the request.")


def _check_algorithms(signature: Element) -> None:
    """Refuse other algorithms than ours by name, before anything is computed."""
    values = {
        "ds:SignedInfo/ds:SignatureMethod": {method.value for method in _METHODS},
        "ds:SignedInfo/ds:Reference/ds:DigestMethod": {digest.value for digest in _DIGESTS},
        "ds:SignedInfo/ds:CanonicalizationMethod": {_C14N.value},
        "ds:SignedInfo/ds:Reference/ds:Transforms/ds:Transform": _TRANSFORMS,
    }
    for path, allowed in values.items():
        for element in signature.findall(path, NAMESPACES):
            if element.get("Algorithm") not in allowed:
                algorithm = str(element.get("Algorithm"))[:100]
                raise WeakAlgorithm(f"The signature algorithm {algorithm} is not accepted.")
    if len(signature.findall("ds:SignedInfo", NAMESPACES)) != 1:
        raise Malformed("The signature has more than one SignedInfo.")
