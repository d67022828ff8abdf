"""What service providers send: authentication and logout requests, and logout responses.

A message is read as far as this server understands it. What it does not support is named.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sso.saml.documents import (
    POST_BINDING,
    SAML,
    SAMLP,
    Element,
    Malformed,
    child,
    moment,
    tag,
    text_of,
    texts_of,
)

_LONGEST_ID = 256
# Authentication contexts, by the number of factors: what they mean here.
ONE_FACTOR_CONTEXTS = tuple(
    f"urn:oasis:names:tc:SAML:2.0:ac:classes:{name}"
    for name in ("PasswordProtectedTransport", "Password", "unspecified", "Unspecified")
)
MFA = "https://refeds.org/profile/mfa"
TWO_FACTOR_CONTEXTS = (
    MFA,
    "urn:oasis:names:tc:SAML:2.0:ac:classes:MobileTwoFactorContract",
    "urn:oasis:names:tc:SAML:2.0:ac:classes:MobileTwoFactorUnregistered",
    "urn:oasis:names:tc:SAML:2.0:ac:classes:TimeSyncToken",
    "http://schemas.microsoft.com/claims/multipleauthn",
)


@dataclass(frozen=True)
class Message:
    """The parts that all messages have."""

    id: str
    issuer: str
    issued_at: datetime | None
    destination: str | None


@dataclass(frozen=True)
class AuthnRequest(Message):
    """An authentication request (Core §3.4.1). `unsupported`: what cannot be answered."""

    acs_url: str | None = None
    acs_index: str | None = None
    binding: str | None = None
    name_id_format: str | None = None
    is_forced: bool = False
    is_passive: bool = False
    contexts: Sequence[str] = ()
    comparison: str = "exact"
    login_hint: str | None = None
    unsupported: str | None = None


@dataclass(frozen=True)
class LogoutRequest(Message):
    """A request to end a session (Core §3.7.1)."""

    name_id: str = ""
    session_indexes: Sequence[str] = ()
    expires_at: datetime | None = None


@dataclass(frozen=True)
class LogoutResponse(Message):
    """The answer of a service provider to our logout request (Core §3.7.2)."""

    in_response_to: str | None = None
    is_success: bool = False


def issuer_of(root: Element) -> str:
    """Return the entity ID that a message claims. Raises `Malformed`."""
    issuer = text_of(root, "saml:Issuer")
    if not issuer:
        raise Malformed("The message has no Issuer.")
    return issuer


def authn_request(root: Element) -> AuthnRequest:
    """Read an authentication request. Raises `Malformed`."""
    common = _common(root, tag(SAMLP, "AuthnRequest"))
    policy = child(root, "samlp:NameIDPolicy")
    context = child(root, "samlp:RequestedAuthnContext")
    contexts = () if context is None else tuple(texts_of(context, "saml:AuthnContextClassRef"))
    declared = () if context is None else tuple(texts_of(context, "saml:AuthnContextDeclRef"))
    subject = child(root, "saml:Subject")
    unsupported = None
    if declared:
        unsupported = "AuthnContextDeclRef"
    elif subject is not None and text_of(subject, "saml:NameID") is None:
        unsupported = "a Subject without a NameID"
    binding = root.get("ProtocolBinding")
    if binding not in (None, POST_BINDING):
        unsupported = f"the binding {str(binding)[:100]}"
    return AuthnRequest(
        **common,
        acs_url=root.get("AssertionConsumerServiceURL"),
        acs_index=root.get("AssertionConsumerServiceIndex"),
        binding=binding,
        name_id_format=None if policy is None else policy.get("Format"),
        is_forced=_boolean(root, "ForceAuthn"),
        is_passive=_boolean(root, "IsPassive"),
        contexts=contexts[:20],
        comparison="exact" if context is None else context.get("Comparison", "exact"),
        login_hint=None if subject is None else text_of(subject, "saml:NameID"),
        unsupported=unsupported,
    )


def logout_request(root: Element) -> LogoutRequest:
    """Read a logout request. Raises `Malformed`."""
    common = _common(root, tag(SAMLP, "LogoutRequest"))
    name_id = text_of(root, "saml:NameID")
    if name_id is None:
        raise Malformed("The LogoutRequest has no NameID; an encrypted one is not supported.")
    return LogoutRequest(
        **common,
        name_id=name_id,
        session_indexes=tuple(texts_of(root, "samlp:SessionIndex")),
        expires_at=moment(root.get("NotOnOrAfter")),
    )


def logout_response(root: Element) -> LogoutResponse:
    """Read a logout response. Raises `Malformed`."""
    common = _common(root, tag(SAMLP, "LogoutResponse"))
    code = child(root, "samlp:Status/samlp:StatusCode")
    value = "" if code is None else code.get("Value", "")
    return LogoutResponse(
        **common,
        in_response_to=root.get("InResponseTo"),
        is_success=value == "urn:oasis:names:tc:SAML:2.0:status:Success",
    )


def _common(root: Element, expected: str) -> dict[str, Any]:
    if root.tag != expected:
        raise Malformed(f"The message is no {expected.rpartition('}')[2]}.")
    if root.get("Version") != "2.0":
        raise Malformed("The message is not of SAML 2.0.")
    identifier = root.get("ID") or ""
    if not identifier or len(identifier) > _LONGEST_ID:
        raise Malformed("The message has no ID, or one that is too long.")
    issuer = child(root, f"{{{SAML}}}Issuer")
    if issuer is None:
        raise Malformed("The message has no Issuer.")
    return {
        "id": identifier,
        "issuer": issuer_of(root),
        "issued_at": moment(root.get("IssueInstant")),
        "destination": root.get("Destination"),
    }


def _boolean(root: Element, name: str) -> bool:
    return root.get(name, "").strip() in ("true", "1")
