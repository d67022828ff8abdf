"""Why a message of a SAML service provider was refused."""

from collections.abc import Iterable

from sso.config.urls import nearest_url
from sso.explain.case import (
    EXPECTED,
    REGISTERED,
    Case,
    Comparison,
    Explanation,
    command,
    compared,
)
from sso.flow import refusals
from sso.flow.refusals import Cause, describe
from sso.i18n.message import Message
from sso.store import clients, saml

_EMAIL = "urn:oasis:names:tc:SAML:1.1:nameid-format:emailAddress"
_PERSISTENT = "urn:oasis:names:tc:SAML:2.0:nameid-format:persistent"
_NAME_IDS = {_EMAIL: "email", _PERSISTENT: "persistent"}
_VARIABLES = ("sent", "now", "fault", "expired", "name_id", "expected", "what")
_READ_AGAIN = Message(
    "If the service provider has a new certificate, read its metadata again, with the option "
    "--metadata of %(command)s.",
    command="client update",
)
_FIXES = {
    Cause.SAML_CLOCK: Message(
        "Synchronize the clocks of both servers, for example by NTP. If they agree, the page was "
        "open for long: begin again at the application."
    ),
    Cause.SAML_INVALID_SIGNATURE: _READ_AGAIN,
    Cause.SAML_METADATA_EXPIRED: _READ_AGAIN,
    Cause.SAML_MALFORMED: Message(
        "The fault is in the application, or in a program between it and this server."
    ),
    Cause.SAML_NOT_SIGNED: Message(
        "Let the application sign its requests, or do not require that they are signed."
    ),
    Cause.SAML_NO_AUTHN_CONTEXT: Message(
        "Let the application request no authentication context, PasswordProtectedTransport, or "
        "https://refeds.org/profile/mfa for two factors."
    ),
    Cause.SAML_UNSUPPORTED: Message("Change the settings of the application."),
    Cause.SAML_USED_BEFORE: Message("No action is needed: begin again at the application."),
    Cause.SAML_WEAK_ALGORITHM: Message(
        "Let the application sign with RSA or ECDSA and SHA-256 or longer."
    ),
}


def unknown_entity(case: Case) -> Explanation | None:
    """Explain an entity ID that no enabled client has: compare it with those that there are."""
    received = case["entity_id"]
    if case.cause is not Cause.SAML_UNKNOWN_ENTITY or not received:
        return None
    entities = saml.entity_ids()
    client = clients.find(entities[received]) if received in entities else None
    if client and client.disabled_at:
        return Explanation(
            Message("The service provider is disabled."),
            Message("Enable it, if it may be used."),
            command("client", "enable", client.client_id),
        )
    if client:
        return Explanation(
            Message("The entity ID was not registered. It is registered now."),
            Message("No action is needed."),
        )
    return Explanation(
        Message("No service provider with this entity ID is registered."),
        Message(
            "Register the application with its metadata, or correct the entity ID on one side: "
            "every character counts."
        ),
        comparison=_nearest("Issuer", received, entities),
    )


def unregistered_acs(case: Case) -> Explanation | None:
    """Explain an assertion consumer service that is not registered for the client."""
    received, client = case["redirect_uri"], case.client
    if case.cause is not Cause.SAML_UNREGISTERED_ACS or client is None:
        return None
    if received in client.acs_urls:
        return Explanation(
            Message("The assertion consumer service was not registered. It is registered now."),
            Message("No action is needed."),
        )
    return Explanation(
        Message("The AssertionConsumerServiceURL of the request is not registered."),
        Message("If the URL is one of the application, register it; it is compared exactly."),
        case.update("--add-acs-url", received),
        _nearest("AssertionConsumerServiceURL", received, client.acs_urls),
    )


def refused(case: Case) -> Explanation | None:
    """Explain every other refusal of a SAML message."""
    cause = case.cause
    if cause is None or not cause.startswith("saml_"):
        return None
    text = describe(cause, **_variables(case, cause))
    if cause is Cause.SAML_NAME_ID_MISSING:
        return Explanation(
            text,
            Message(
                "Give the user that value, or verify the email address; or choose another NameID "
                "for the application, which then takes everybody for new."
            ),
            case.update("--name-id", "persistent"),
        )
    if cause is Cause.SAML_NAME_ID_POLICY:
        name_id = _NAME_IDS.get(case["sent"])
        return Explanation(
            text,
            Message("Choose the same NameID on both sides."),
            case.update("--name-id", name_id) if name_id else None,
        )
    comparison: Comparison | None = None
    if cause is Cause.SAML_WRONG_DESTINATION:
        comparison = _nearest("Destination", case["sent"], [case["expected"]], EXPECTED)
        fix = Message("Correct the URL of this server in the settings of the application.")
    else:
        fix = _FIXES[cause]
    return Explanation(text, fix, comparison=comparison)


def _nearest(
    name: str, received: str, expected: Iterable[str], label: Message = REGISTERED
) -> Comparison | None:
    """Compare a value with the nearest of those that are expected; `None` if it is no URL."""
    try:
        closest = nearest_url(received, expected)
        return compared(name, received, label, closest) if closest else None
    except ValueError:
        return None


def _variables(case: Case, cause: Cause) -> dict[str, str]:
    return {name: case[name] for name in _VARIABLES if f"%({name})s" in refusals.SENTENCES[cause]}
