"""Devices that people sign in (RFC 8628): codes that were typed wrong, and polls."""

from sso.audit.events import Event
from sso.config.client_fields import DEVICE_CODE
from sso.explain.case import Case, Explanation
from sso.flow.refusals import Cause, Reason
from sso.i18n.message import Message

_START_AGAIN = Message("Let the person start again on the device, which then shows another code.")


def user_code(case: Case) -> Explanation | None:
    """Explain why no device waited for a code that a person typed."""
    if case.refusal.name != Event.DEVICE_CODE_FAILED:
        return None
    if case.reason == Reason.EXPIRED:
        return Explanation(
            Message("The code of the device had expired: it is valid for 10 minutes."),
            _START_AGAIN,
        )
    if case.reason == Reason.USED_BEFORE:
        return Explanation(
            Message("The code of the device had been answered before: it was allowed or refused."),
            _START_AGAIN,
        )
    return Explanation(
        Message("No device waits for the code that was typed."),
        Message(
            "Let the person compare it with the device: it has eight letters, all consonants. If "
            "many codes are wrong, somebody may be guessing."
        ),
    )


def polling(case: Case) -> Explanation | None:
    """Explain the errors of a device that polls."""
    if case.cause == Cause.SLOW_DOWN:
        return Explanation(
            Message("The device asked for its tokens sooner than its interval allows."),
            Message(
                "Make it wait as many seconds as the member interval says, and 5 more after each "
                "slow_down."
            ),
        )
    if case.cause == Cause.DEVICE_CODE_EXPIRED:
        return Explanation(
            Message("Nobody had answered within 10 minutes, or the device asked too late."),
            Message("Make the device request a new code when it gets expired_token, and show it."),
        )
    return None


def not_registered(case: Case) -> Explanation | None:
    """Explain a client that asks for device codes and is not registered for them."""
    is_request = case.refusal.name == Event.DEVICE_AUTHORIZATION_REFUSED
    if case["error"] != "unauthorized_client" or not (
        is_request or case["grant_type"] == DEVICE_CODE
    ):
        return None
    client = case.client
    if client and DEVICE_CODE in client.client_metadata.get("grant_types", ()):
        return Explanation(
            Message("The client was not registered for devices. It is registered now."),
            Message("Try again."),
        )
    return Explanation(
        Message("The client is not registered for the device authorization grant."),
        Message("If people may sign in on devices with it:"),
        case.update("--device"),
    )
