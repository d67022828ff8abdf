"""Clients that are unknown or disabled, or do not prove who they are."""

from difflib import get_close_matches

from sso.audit import rows
from sso.audit.events import Event
from sso.config.auth_methods import PRIVATE_KEY_JWT
from sso.crypto.digests import CLIENT_SECRET
from sso.explain.case import Case, Explanation, compared, named
from sso.models import Client
from sso.process.program import COMMAND
from sso.store import clients

_LEFT = "There is nothing left to do."


def unknown(case: Case) -> Explanation | None:
    """The nearest client is named: to operators alone, who may list all of them."""
    claimed = case["client"]
    if case.client or not claimed or case.refusal.client_id:
        return None
    cause = "No client has this client_id"
    if claimed.startswith(CLIENT_SECRET):
        return Explanation(
            "The client_id is a client secret.",
            "At the application, client_id and client_secret are swapped, or both are the secret.",
        )
    every = clients.every()
    by_name = [one for one in every if one.name.casefold() == claimed.casefold()]
    if by_name:
        return Explanation(
            f"{cause}: it is the name of one.",
            f"Set the client_id of the application to {by_name[0].client_id}.",
        )
    if near := _nearest(claimed, [one.client_id for one in every]):
        client = next(one for one in every if one.client_id == near)
        return Explanation(
            f"{cause}. The nearest one is that of {named(client)}.",
            f"If that is the application, set its client_id to {near}.",
            comparison=compared("client_id", claimed, "registered now", near),
        )
    deleted = rows.newest(client_id=claimed, names=[Event.CLIENT_DELETED], limit=1)
    if deleted:
        return Explanation(
            f"{cause} any more: the client was deleted at {deleted[0].at:%Y-%m-%d %H:%M} UTC.",
            "Register the application again, and give it the new client_id and secret.",
        )
    return Explanation(
        f"{cause}.",
        f"Compare it with the output of: {COMMAND} client list. It may be of another server.",
    )


def known_by_now(case: Case) -> Explanation | None:
    if case.reason != "unknown client" or case.client is None:
        return None
    return Explanation("The client was unknown. It is registered now.", _LEFT)


def disabled(case: Case) -> Explanation | None:
    if case.reason not in ("disabled client", "client disabled") or case.client is None:
        return None
    if case.client.disabled_at is None:
        return Explanation("The client was disabled. It is enabled now.", _LEFT)
    return Explanation(
        f"The client has been disabled since {case.client.disabled_at:%Y-%m-%d %H:%M} UTC, "
        "and counts as unknown.",
        "If it may be used again, enable it:",
        case.command("client", "enable"),
    )


def wrong_secret(case: Case) -> Explanation | None:
    client = case.client
    if case.refusal.name != Event.CLIENT_AUTHENTICATION_FAILED or client is None:
        return None
    new = case.command("client", "rotate-secret", "--keep-old", "24")
    lost = "If it is lost, make a new one; the present one stays valid for 24 hours:"
    if case.reason == "client_id and client_secret are swapped":
        return Explanation(
            "The client_id was sent as the secret, and something else as the client_id.",
            "Swap client_id and client_secret in the settings of the application.",
        )
    if case.reason.startswith("the right secret,"):
        return Explanation(
            "The client secret is right, but it stands in quotes or between spaces.",
            "Remove them from the settings of the application.",
        )
    if case.reason.startswith("a previous secret"):
        ended = client.previous_secret_expires_at
        return Explanation(
            "The client secret is the one before the last rotation"
            + (f", and ended at {ended:%Y-%m-%d %H:%M} UTC." if ended else "."),
            f"Give the application the present secret. {lost}",
            new,
        )
    if case.reason == "wrong secret":
        rotated = rows.newest(
            client_id=client.client_id, names=[Event.CLIENT_SECRET_ROTATED], limit=1
        )
        hint = f"; it was last rotated at {rotated[0].at:%Y-%m-%d %H:%M} UTC" if rotated else ""
        return Explanation(
            f"The client secret is wrong{hint}.",
            f"Give the application the present secret. {lost}",
            new,
        )
    return None


def no_authentication(case: Case) -> Explanation | None:
    client = case.client
    if client is None or not case["description"].startswith("Client authentication is missing"):
        return None
    return Explanation(
        "The request has neither a client secret nor an assertion.",
        "Give the application its client secret."
        if client.has_secret
        else f"Set the application to {client.token_endpoint_auth_method}.",
    )


def wrong_method(case: Case) -> Explanation | None:
    client, method = case.client, case["method"]
    if not case.reason.startswith("wrong method") or client is None:
        return None
    if client.check_endpoint_auth_method(method, "token"):
        return Explanation(f"The client was not registered for {method}. It is now.", _LEFT)
    registered = client.token_endpoint_auth_method
    cause = f"The application authenticates by {method}; the client is registered for {registered}"
    if PRIVATE_KEY_JWT in (method, registered):  # needs a key, or a secret
        return Explanation(f"{cause}.", f"Set the application to {registered}.")
    return Explanation(
        f"{cause} alone.",
        f"Set the application to {registered}, or allow both:",
        case.update("--auth-method", "any"),
    )


def refused_assertion(case: Case) -> Explanation | None:
    client = case.client
    if client is None or not case.reason.startswith("assertion: "):
        return None
    fault = case.reason.removeprefix("assertion: ")
    cause = f"The client assertion was refused: {fault}."
    if "aud" in fault.split():
        expected = case.settings.issuer
        seen = compared("aud", case["aud"], "expected", expected) if case["aud"] else None
        return Explanation(
            cause, "Set its audience to the issuer, in the application.", comparison=seen
        )
    if "clock" in fault or "ahead" in fault:
        return Explanation(cause + _clock(case["ahead"]), "Set the clocks, for example by NTP.")
    if "used before" in fault:
        return Explanation(cause, "The application has to make a new one for each request.")
    if "not signed" in fault:
        kid = f" It names the key {case['kid']}." if case["kid"] else ""
        return Explanation(cause + kid, where_keys_belong(client))
    return Explanation(cause, "Change the assertion that the application makes (RFC 7523 §3).")


def where_keys_belong(client: Client) -> str:
    source = client.client_metadata.get("jwks_uri")
    if source:
        return f"Its public keys have to be at {source}, with a kid."
    return f"Register its public keys: {COMMAND} client update {client.client_id} --jwks FILE"


def unread_key_set(case: Case) -> Explanation | None:
    client = case.client
    if client is None or not case.reason.startswith("key set: "):
        return None
    url = client.client_metadata.get("jwks_uri")
    fault = case.reason.removeprefix("key set: ")
    return Explanation(
        f"The public keys of the client could not be read from {url}: {fault}.",
        "The URL has to give a JWK set over https, within 5 seconds, at a public address. For one "
        "in a private network, register the keys themselves: "
        f"{COMMAND} client update {client.client_id} --jwks FILE",
    )


def _clock(ahead: str) -> str:
    """What the time of an assertion tells of a clock."""
    seconds = int(ahead or 0)
    if abs(seconds) < 5:
        return ""
    return f" It was made {abs(seconds)} seconds {'in the future' if seconds > 0 else 'ago'}."


def _nearest(claimed: str, client_ids: list[str]) -> str | None:
    if len(claimed) >= 4:  # copied in part
        parts = [one for one in client_ids if claimed in one or one in claimed]
        if len(parts) == 1:
            return parts[0]
    same = [one for one in client_ids if one.casefold() == claimed.casefold()]
    return next(iter(same or get_close_matches(claimed, client_ids, n=1, cutoff=0.75)), None)
