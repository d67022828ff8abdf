"""Client assertions (RFC 7523), and the public keys of clients."""

from sso.explain.case import EXPECTED, Case, Explanation, compared, sentences
from sso.i18n.message import Message
from sso.models import Client
from sso.process.program import COMMAND


def refused_assertion(case: Case) -> Explanation | None:
    client = case.client
    if client is None or not case.reason.startswith("assertion: "):
        return None
    fault = case.reason.removeprefix("assertion: ")
    cause = Message("The client assertion was refused: %(fault)s.", fault=fault)
    if "aud" in fault.split():
        expected = case.settings.issuer
        seen = compared("aud", case["aud"], EXPECTED, expected) if case["aud"] else None
        return Explanation(
            cause, Message("Set its audience to the issuer, in the application."), comparison=seen
        )
    if "clock" in fault or "ahead" in fault:
        return Explanation(
            _with_clock(cause, int(case["ahead"] or 0)),
            Message("Set the clocks, for example by NTP."),
        )
    if "used before" in fault:
        return Explanation(
            cause, Message("The application has to make a new one for each request.")
        )
    if "not signed" in fault:
        if case["kid"]:
            cause = sentences(cause, Message("It names the key %(kid)s.", kid=case["kid"]))
        return Explanation(cause, where_keys_belong(client))
    return Explanation(
        cause, Message("Change the assertion that the application makes (RFC 7523 §3).")
    )


def where_keys_belong(client: Client) -> Message:
    source = client.client_metadata.get("jwks_uri")
    if source:
        return Message("Its public keys have to be at %(url)s, with a kid.", url=source)
    return Message("Register its public keys: %(command)s", command=_register_keys(client))


def _register_keys(client: Client) -> str:
    return f"{COMMAND} client update {client.client_id} --jwks FILE"


def unread_key_set(case: Case) -> Explanation | None:
    client = case.client
    if client is None or not case.reason.startswith("key set: "):
        return None
    url = client.client_metadata.get("jwks_uri")
    fault = case.reason.removeprefix("key set: ")
    return Explanation(
        Message(
            "The public keys of the client could not be read from %(url)s: %(fault)s.",
            url=str(url),
            fault=fault,
        ),
        Message(
            "The URL has to give a JWK set over https, within 5 seconds, at a public address. For "
            "one in a private network, register the keys themselves: %(command)s",
            command=_register_keys(client),
        ),
    )


def _with_clock(cause: Message, ahead: int) -> Message:
    """And what the time of an assertion tells of a clock."""
    if abs(ahead) < 5:
        return cause
    if ahead > 0:
        clock = Message("It was made %(seconds)s seconds in the future.", seconds=ahead)
    else:
        clock = Message("It was made %(seconds)s seconds ago.", seconds=-ahead)
    return sentences(cause, clock)
