"""Checks of clients and their tokens: unknown, disabled, not authenticated, missing scopes."""

from difflib import get_close_matches

from sso.audit import rows
from sso.audit.events import Event
from sso.config.auth_methods import PRIVATE_KEY_JWT
from sso.crypto.client_jwt import JwtFault
from sso.crypto.secrets import CLIENT_SECRET
from sso.explain.case import (
    EXPECTED,
    REGISTERED,
    Case,
    Explanation,
    command,
    compared,
    described,
    moment,
    named,
    sentences,
)
from sso.flow import scopes
from sso.flow.refusals import Cause, Reason
from sso.i18n.message import Message
from sso.models import Client
from sso.process.program import COMMAND
from sso.store import clients

_LEFT = Message("No action is needed.")
_DISABLED = (Reason.CLIENT_DISABLED, Reason.TOKEN_OF_DISABLED_CLIENT)


def unknown(case: Case) -> Explanation | None:
    """Explain an unknown client. Only operators see this: it names the nearest client."""
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
    by_name = [
        client
        for client in every
        if not client.is_agent and client.name.casefold() == claimed.casefold()
    ]
    if by_name:
        return Explanation(
            Message("No client has this client_id: it is the name of one."),
            Message(
                "Set the client_id of the application to %(client_id)s.",
                client_id=by_name[0].client_id,
            ),
        )
    if near := _nearest(claimed, [client.client_id for client in every]):
        client = next(candidate for candidate in every if candidate.client_id == near)
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
    if case.reason != Reason.UNKNOWN_CLIENT or case.client is None:
        return None
    return Explanation(Message("The client was unknown. It is registered now."), _LEFT)


def disabled(case: Case) -> Explanation | None:
    if case.reason not in _DISABLED or case.client is None:
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
    if case.reason == Reason.SWAPPED:
        return Explanation(
            Message("The client_id was sent as the secret, and something else as the client_id."),
            Message("Swap client_id and client_secret in the settings of the application."),
        )
    if case.reason == Reason.QUOTED_SECRET:
        return Explanation(
            Message("The client secret is right, but it stands in quotes or between spaces."),
            Message("Remove them from the settings of the application."),
        )
    if case.reason == Reason.ENDED_SECRET:
        ended = client.secret_expires_at
        cause = Message("The client secret was right, and had ended.")
        if ended:
            cause = Message(
                "The client secret was right, and ended at %(time)s.", time=moment(ended)
            )
        return Explanation(cause, fix, new)
    if case.reason == Reason.EXPIRED_SECRET:
        ended = client.previous_secret_expires_at
        cause = Message("The client secret is the one before the last rotation.")
        if ended:
            cause = Message(
                "The client secret is the one before the last rotation, and ended at %(time)s.",
                time=moment(ended),
            )
        return Explanation(cause, fix, new)
    if case.reason == Reason.WRONG_SECRET:
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
    if client is None or case.cause != Cause.MISSING_CLIENT_AUTHENTICATION:
        return None
    return Explanation(
        Message("The request has neither a client secret nor an assertion."),
        Message("Give the application its client secret.")
        if client.has_secret
        else _set_to(client.token_endpoint_auth_method),
    )


def public(case: Case) -> Explanation | None:
    """Explain a public client where clients have to prove who they are."""
    if case.cause != Cause.PUBLIC_CLIENT:
        return None
    return Explanation(
        Message("The client is public: anyone can name it, so it may not do this."),
        Message("Register another client, with a secret or a key, for the server that does this."),
    )


def wrong_method(case: Case) -> Explanation | None:
    client, method = case.client, case["method"]
    if case.reason != Reason.WRONG_METHOD or client is None:
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
        parts = [
            client_id for client_id in client_ids if claimed in client_id or client_id in claimed
        ]
        if len(parts) == 1:
            return parts[0]
    same = [client_id for client_id in client_ids if client_id.casefold() == claimed.casefold()]
    return next(iter(same or get_close_matches(claimed, client_ids, n=1, cutoff=0.75)), None)


def refused_assertion(case: Case) -> Explanation | None:
    client = case.client
    if client is None or case.reason != Reason.ASSERTION:
        return None
    cause = Message("The client assertion was refused: %(fault)s.", fault=case["fault"])
    fault = case["jwt"]
    if fault == JwtFault.AUDIENCE:
        expected = case.issuer
        comparison = compared("aud", case["aud"], EXPECTED, expected) if case["aud"] else None
        return Explanation(
            cause,
            Message("Set its audience to the issuer, in the application."),
            comparison=comparison,
        )
    if fault == JwtFault.CLOCK:
        return Explanation(
            _with_clock(cause, int(case["ahead"] or 0)),
            Message("Set the clocks, for example by NTP."),
        )
    if fault == JwtFault.USED_BEFORE:
        return Explanation(
            cause, Message("The application has to make a new one for each request.")
        )
    if fault == JwtFault.SIGNATURE:
        if case["kid"]:
            cause = sentences(cause, Message("It names the key %(kid)s.", kid=case["kid"]))
        return Explanation(cause, where_keys_belong(client))
    return Explanation(
        cause, Message("Change the assertion that the application makes (RFC 7523 §3).")
    )


def wrong_issuer(case: Case) -> Explanation | None:
    """Explain a request to an address of another issuer than the client's (SSO_ISSUER_ALIASES)."""
    if case.cause != Cause.WRONG_ISSUER:
        return None
    other = case["other"]
    return Explanation(
        Message(
            "The application uses the addresses of the issuer %(other)s; its client belongs to "
            "%(issuer)s.",
            other=other,
            issuer=case["name"],
        ),
        Message(
            "Set the issuer of the application to %(issuer)s. If it is to use the other one, move "
            "its client there:",
            issuer=case["name"],
        ),
        case.update("--issuer", "new" if other == case.settings.issuer else other),
    )


def moved(case: Case) -> Explanation | None:
    if case.cause != Cause.MOVED:
        return None
    return Explanation(
        Message("The access token is from before its client was moved to another issuer."),
        Message("No action is needed: the application gets a new one, by its refresh token or by "
                "a sign-in."),
    )  # fmt: skip


def where_keys_belong(client: Client) -> Message:
    source = client.client_metadata.get("jwks_uri")
    if source:
        return Message("Its public keys have to be at %(url)s, with a kid.", url=source)
    return Message("Register its public keys: %(command)s", command=_register_keys(client))


def _register_keys(client: Client) -> str:
    return f"{COMMAND} client update {client.client_id} --jwks FILE"


def unread_key_set(case: Case) -> Explanation | None:
    client = case.client
    if client is None or case.reason != Reason.KEY_SET:
        return None
    url = client.client_metadata.get("jwks_uri") or client.trust_issuer
    return Explanation(
        Message(
            "The public keys of the client could not be read from %(url)s: %(fault)s.",
            url=str(url),
            fault=case["fault"],
        ),
        Message(
            "The URL has to give a JWK set over https, within 5 seconds, at a public address. For "
            "one in a private network, register the keys themselves: %(command)s",
            command=_register_keys(client),
        ),
    )


def _with_clock(cause: Message, ahead: int) -> Message:
    """Add the offset of the client's clock, by the time of its assertion."""
    if abs(ahead) < 5:
        return cause
    if ahead > 0:
        clock = Message("It was made %(seconds)s seconds in the future.", seconds=ahead)
    else:
        clock = Message("It was made %(seconds)s seconds ago.", seconds=-ahead)
    return sentences(cause, clock)


_API_TOKENS: dict[Reason | None, tuple[Message, tuple[str, str] | None]] = {
    Reason.UNKNOWN: (Message("The API token is not one of this server."), None),
    Reason.REVOKED: (Message("The API token was revoked."), ("api-token", "list")),
    Reason.EXPIRED: (Message("The API token has expired."), ("api-token", "list")),
    Reason.NO_ADMINISTRATOR: (
        Message("The API token belongs to somebody who is no longer an administrator."),
        ("api-token", "list"),
    ),
    Reason.TOKEN_IN_URL: (
        Message(
            "The API token stands in the URL, and so in the logs of the program, of proxies and "
            "of browsers. Revoke it."
        ),
        ("api-token", "list"),
    ),
}


def api_token(case: Case) -> Explanation | None:
    """Explain a refused API token."""
    if case.refusal.name != Event.API_TOKEN_REFUSED:
        return None
    cause, listing = _API_TOKENS.get(case.reason, (described(case), ("api-token", "list")))
    return Explanation(
        cause,
        Message(
            "Create a token with the scopes that the program needs, and give it to the program."
        ),
        command(*listing) if listing else None,
    )


def scope_of_userinfo(case: Case) -> Explanation | None:
    if case["error"] != "insufficient_scope":
        return None
    missing = " ".join(scopes.USERINFO_SCOPES)
    registered = scopes.split(case.client.scope) if case.client else ()
    command = None if "openid" in registered else case.update("--add-scope", "openid")
    return Explanation(
        Message(
            "The access token has the scope %(granted)s; userinfo needs one of %(needed)s.",
            granted=case["granted_scope"] or Message("of none"),
            needed=missing,
        ),
        Message("Make the application ask for openid, with which the client has to be registered:")
        if command
        else Message("Make the application ask for openid."),
        command,
    )


def no_token(case: Case) -> Explanation | None:
    if case.refusal.endpoint != "userinfo" or case["reason"] or case["error"] != "invalid_token":
        return None
    return Explanation(
        Message("The request has no access token."),
        Message(
            "Send it in the header Authorization: Bearer. A token in the query is never taken. If "
            "the application sends it, look for a proxy that removes the header."
        ),
    )


def not_its_own(case: Case) -> Explanation | None:
    """Explain another client's token, which the response does not reveal (RFC 7662 §4)."""
    if case.refusal.name != Event.TOKEN_REFUSED:
        return None
    return Explanation(
        Message(
            "The token is not one of this client's: it is unknown, or was issued to another client."
        ),
        Message(
            "Make the application present the tokens that it got itself, with its own client_id."
        ),
    )
