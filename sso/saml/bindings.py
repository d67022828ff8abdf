"""The HTTP-Redirect and HTTP-POST bindings: how a message travels (Bindings §3.4, §3.5)."""

import base64
import binascii
import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote_plus, unquote_plus

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509 import Certificate

from sso.saml.documents import MAX_MESSAGE, Malformed

REQUEST, RESPONSE = "SAMLRequest", "SAMLResponse"
_SIGNED = ("RelayState", "SigAlg")
RSA_SHA256 = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256"
_MORE = "http://www.w3.org/2001/04/xmldsig-more#"
_HASHES: Mapping[str, type[hashes.HashAlgorithm]] = {
    "sha256": hashes.SHA256,
    "sha384": hashes.SHA384,
    "sha512": hashes.SHA512,
}
# RSA with PKCS #1 v1.5 and ECDSA, as for enveloped signatures. SHA-1 is not among them.
ALGORITHMS: Mapping[str, tuple[str, type[hashes.HashAlgorithm]]] = {
    f"{_MORE}{key}-{name}": (key, algorithm)
    for key in ("rsa", "ecdsa")
    for name, algorithm in _HASHES.items()
}


class WeakAlgorithm(Malformed):
    """A signature by an algorithm that is not accepted."""


class WrongSignature(Malformed):
    """A signature that no registered certificate verifies."""


class RedirectSignature(NamedTuple):
    """The signature in a query: over these bytes, by this algorithm."""

    content: bytes
    algorithm: str
    value: bytes


def from_post(text: str) -> bytes:
    """Return the message of a form field. Raises `Malformed`."""
    if len(text) > MAX_MESSAGE * 2:
        raise Malformed("The message is too long.")
    return _decoded(text)


def from_redirect(text: str) -> bytes:
    """Return the message of a query parameter, inflated up to `MAX_MESSAGE`. Raises `Malformed`."""
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        message = inflater.decompress(_decoded(text), MAX_MESSAGE + 1)
    except zlib.error:
        raise Malformed("The message is not compressed by DEFLATE.") from None
    if len(message) > MAX_MESSAGE or inflater.unconsumed_tail:
        raise Malformed(f"The message is longer than {MAX_MESSAGE} bytes.")
    if not inflater.eof:
        raise Malformed("The compressed message is cut off.")
    return message


def to_post(message: bytes) -> str:
    """Return a message as a form field."""
    return base64.b64encode(message).decode()


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise Malformed("The message is not base64.") from None


def redirect_signature(query: bytes, name: str) -> RedirectSignature | None:
    """Return the signature of a query string; `None` if it has none. Raises `Malformed`.

    It covers the parameters as they were sent, escaped by whatever rules (Bindings §3.4.4.1).
    """
    raw: dict[str, bytes] = {}
    for part in query.split(b"&"):
        key, _, value = part.partition(b"=")
        text = key.decode("ascii", "replace")
        if "%" in text or "+" in text:  # it would be read, but the signature would not cover it
            raise Malformed(f"The name of the parameter {text[:40]} is encoded.")
        if text in raw:
            raise Malformed(f"The parameter {text[:40]} is repeated.")
        raw[text] = value
    if "Signature" not in raw and "SigAlg" not in raw:
        return None
    if "Signature" not in raw or "SigAlg" not in raw:
        raise Malformed("Of Signature and SigAlg, one is missing.")
    names = [name, *(other for other in _SIGNED if other in raw)]
    content = b"&".join(other.encode() + b"=" + raw[other] for other in names)
    algorithm = unquote_plus(raw["SigAlg"].decode("ascii", "replace"))
    return RedirectSignature(
        content, algorithm, _decoded(unquote_plus(raw["Signature"].decode("ascii", "replace")))
    )


def verify_redirect(signature: RedirectSignature, certificates: Sequence[Certificate]) -> None:
    """Verify the signature of a query. Raises `WeakAlgorithm` and `WrongSignature`."""
    if signature.algorithm not in ALGORITHMS:
        raise WeakAlgorithm(f"The signature algorithm {signature.algorithm[:100]} is not accepted.")
    if not any(_verifies(signature, certificate) for certificate in certificates):
        raise WrongSignature("No registered certificate verifies the signature of the request.")


def _verifies(signature: RedirectSignature, certificate: Certificate) -> bool:
    kind, algorithm = ALGORITHMS[signature.algorithm]
    try:
        key = certificate.public_key()
        if kind == "rsa" and isinstance(key, rsa.RSAPublicKey):
            key.verify(signature.value, signature.content, padding.PKCS1v15(), algorithm())
            return True
        if kind == "ecdsa" and isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signature.value, signature.content, ec.ECDSA(algorithm()))
            return True
    except (InvalidSignature, UnsupportedAlgorithm, ValueError):
        return False
    return False


def redirect_query(
    name: str, message: bytes, relay_state: str | None, key: rsa.RSAPrivateKey
) -> str:
    """Return the query string that carries a message, signed with RSA-SHA256."""
    deflater = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    compressed = deflater.compress(message) + deflater.flush()
    parameters = [(name, base64.b64encode(compressed).decode())]
    if relay_state is not None:
        parameters.append(("RelayState", relay_state))
    parameters.append(("SigAlg", RSA_SHA256))
    content = "&".join(f"{key_}={quote_plus(value)}" for key_, value in parameters)
    value = key.sign(content.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{content}&Signature={quote_plus(base64.b64encode(value).decode())}"
