"""Clients that are unknown or disabled, or do not prove who they are."""

from difflib import get_close_matches

from sso.audit import rows
from sso.audit.events import Event
from sso.config.auth_methods import PRIVATE_KEY_JWT
from sso.crypto.secrets import CLIENT_SECRET
from sso.explain.case import (
    REGISTERED,
    Case,
    Explanation,
    compared,
    moment,
    named,
)
from sso.i18n.message import Message
from sso.process.program import COMMAND
from sso.store import clients

_LEFT = Message("No action is needed.")


def unknown(case: Case) -> Explanation | None:
    """The nearest client is named: to operators alone, who may list all of them."""
    claimed = case["client"]
    if case.client or not claimed or case.refusal.client_id:
        return None
    if claimed.startswith(CLIENT_SECRET):
        return Explanation(
            Message("The client_id is a client secret."),
            Message(
                "At the application, client_id and client_secret are swapped, or both are the "
                "secret."
            ),
        )
    every = clients.every()
    by_name = [one for one in every if one.name.casefold() == claimed.casefold()]
    if by_name:
        return Explanation(
            Message("No client has this client_id: it is the name of one."),
            Message(
                "Set the client_id of the application to %(client_id)s.",
                client_id=by_name[0].client_id,
            ),
        )
    if near := _nearest(claimed, [one.client_id for one in every]):
        client = next(one for one in every if one.client_id == near)
        return Explanation(
            Message(
                "No client has this client_id. The nearest one is that of %(client)s.",
                client=named(client),
            ),
            Message(
                "If that is the application, set its client_id to %(client_id)s.", client_id=near
            ),
            comparison=compared("client_id", claimed, REGISTERED, near),
        )
    deleted = rows.newest(client_id=claimed, names=[Event.CLIENT_DELETED], limit=1)
    if deleted:
        return Explanation(
            Message(
                "No client has this client_id any more: the client was deleted at %(time)s.",
                time=moment(deleted[0].at),
            ),
            Message("Register the application again, and give it the new client_id and secret."),
        )
    return Explanation(
        Message("No client has this client_id."),
        Message(
            "Compare it with the output of: %(command)s. It may be of another server.",
            command=f"{COMMAND} client list",
        ),
    )


def known_by_now(case: Case) -> Explanation | None:
    if case.reason != "unknown client" or case.client is None:
        return None
    return Explanation(Message("The client was unknown. It is registered now."), _LEFT)


def disabled(case: Case) -> Explanation | None:
    if case.reason not in ("disabled client", "client disabled") or case.client is None:
        return None
    if case.client.disabled_at is None:
        return Explanation(Message("The client was disabled. It is enabled now."), _LEFT)
    return Explanation(
        Message(
            "The client has been disabled since %(time)s, and counts as unknown.",
            time=moment(case.client.disabled_at),
        ),
        Message("If it may be used again, enable it:"),
        case.command("client", "enable"),
    )


def wrong_secret(case: Case) -> Explanation | None:
    client = case.client
    if case.refusal.name != Event.CLIENT_AUTHENTICATION_FAILED or client is None:
        return None
    new = case.command("client", "rotate-secret", "--keep-old", "24")
    fix = Message(
        "Give the application the present secret. If it is lost, make a new one; the present one "
        "stays valid for 24 hours:"
    )
    if case.reason == "client_id and client_secret are swapped":
        return Explanation(
            Message("The client_id was sent as the secret, and something else as the client_id."),
            Message("Swap client_id and client_secret in the settings of the application."),
        )
    if case.reason.startswith("the right secret,"):
        return Explanation(
            Message("The client secret is right, but it stands in quotes or between spaces."),
            Message("Remove them from the settings of the application."),
        )
    if case.reason.startswith("a previous secret"):
        ended = client.previous_secret_expires_at
        cause = Message("The client secret is the one before the last rotation.")
        if ended:
            cause = Message(
                "The client secret is the one before the last rotation, and ended at %(time)s.",
                time=moment(ended),
            )
        return Explanation(cause, fix, new)
    if case.reason == "wrong secret":
        rotated = rows.newest(
            client_id=client.client_id, names=[Event.CLIENT_SECRET_ROTATED], limit=1
        )
        cause = Message("The client secret is wrong.")
        if rotated:
            cause = Message(
                "The client secret is wrong; it was last rotated at %(time)s.",
                time=moment(rotated[0].at),
            )
        return Explanation(cause, fix, new)
    return None


def no_authentication(case: Case) -> Explanation | None:
    client = case.client
    if client is None or not case["description"].startswith("Client authentication is missing"):
        return None
    return Explanation(
        Message("The request has neither a client secret nor an assertion."),
        Message("Give the application its client secret.")
        if client.has_secret
        else _set_to(client.token_endpoint_auth_method),
    )


def wrong_method(case: Case) -> Explanation | None:
    client, method = case.client, case["method"]
    if not case.reason.startswith("wrong method") or client is None:
        return None
    if client.check_endpoint_auth_method(method, "token"):
        cause = Message("The client was not registered for %(method)s. It is now.", method=method)
        return Explanation(cause, _LEFT)
    registered = client.token_endpoint_auth_method
    if PRIVATE_KEY_JWT in (method, registered):  # needs a key, or a secret
        cause = Message(
            "The application authenticates by %(method)s; the client is registered for "
            "%(registered)s.",
            method=method,
            registered=registered,
        )
        return Explanation(cause, _set_to(registered))
    return Explanation(
        Message(
            "The application authenticates by %(method)s; the client is registered for "
            "%(registered)s alone.",
            method=method,
            registered=registered,
        ),
        Message("Set the application to %(method)s, or allow both:", method=registered),
        case.update("--auth-method", "any"),
    )


def _set_to(method: str) -> Message:
    return Message("Set the application to %(method)s.", method=method)


def _nearest(claimed: str, client_ids: list[str]) -> str | None:
    if len(claimed) >= 4:  # copied in part
        parts = [one for one in client_ids if claimed in one or one in claimed]
        if len(parts) == 1:
            return parts[0]
    same = [one for one in client_ids if one.casefold() == claimed.casefold()]
    return next(iter(same or get_close_matches(claimed, client_ids, n=1, cutoff=0.75)), None)
