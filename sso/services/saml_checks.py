"""Validation of service providers: clients that speak SAML instead of OpenID Connect.

A client is one as soon as it has an entity ID. It then has no grants and no client authentication.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from cryptography.x509 import load_pem_x509_certificates

from sso.config.auth_methods import NO_AUTH_METHOD
from sso.config.client_fields import FIELDS
from sso.flow.scopes import ALL_CLAIMS
from sso.i18n.message import Message

ENTITY_ID = "saml_entity_id"
MAX_CERTIFICATES = 10
MAX_ATTRIBUTES = 100
_OTHERS = tuple(name for name in FIELDS if name.startswith("saml_") and name != ENTITY_ID)


def is_provider(metadata: Mapping[str, Any]) -> bool:
    """Return whether a client with this metadata is a service provider."""
    return ENTITY_ID in metadata


def as_saml(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a client that speaks SAML has instead of what belongs to tokens."""
    if not is_provider(metadata):
        return {}
    return {"token_endpoint_auth_method": NO_AUTH_METHOD, "grant_types": []}


def attribute_errors(
    entries: Sequence[str],
    own: Collection[str],
    text_error: Callable[[Message, str], Message | None],
) -> Iterable[Message | None]:
    """Yield why these are not attributes of an assertion, each as NAME=CLAIM.

    `own`: the names of the application's own claims.
    """
    if len(entries) > MAX_ATTRIBUTES:
        yield Message("there are more than %(most)d attributes", most=MAX_ATTRIBUTES)
    for entry in entries:
        name, _, claim = entry.rpartition("=")
        if not name or claim not in (*ALL_CLAIMS, *own):
            yield Message(
                "the attribute %(entry)s is not NAME=CLAIM with one of the claims %(claims)s",
                entry=repr(entry[:200]),
                claims=", ".join((*ALL_CLAIMS, *own)),
            )
        else:
            yield text_error(Message("the SAML attribute"), name)


def errors(metadata: Mapping[str, Any]) -> Iterable[Message]:
    """Yield why a client cannot be a service provider, or cannot have what belongs to one."""
    if not is_provider(metadata):
        if any(metadata.get(name) for name in _OTHERS):
            yield Message(
                "what belongs to SAML needs an entity ID",
                for_commands=f"what belongs to SAML needs {FIELDS[ENTITY_ID].usage}",
            )
        return
    if not metadata.get("saml_acs_urls"):
        yield Message(
            "an application that speaks SAML needs an assertion consumer service",
            for_commands=f"an application that speaks SAML needs {FIELDS['saml_acs_urls'].usage}",
        )
    if metadata.get("saml_signed_requests") and not metadata.get("saml_certificates"):
        yield Message(
            "only with a certificate can signed requests be required",
            for_commands=f"{FIELDS['saml_signed_requests'].flag} needs "
            f"{FIELDS['saml_certificates'].usage}",
        )


def certificate_error(pem: str) -> Message | None:
    """Return why a text is not one or several X.509 certificates as PEM, or `None`."""
    try:
        if 0 < len(load_pem_x509_certificates(pem.encode())) <= MAX_CERTIFICATES:
            return None
    except ValueError:
        pass
    return Message("the certificates are not PEM, or too many")
