"""Checks of redirect URIs."""

from urllib.parse import urlsplit

from sso import database
from sso.config import urls
from sso.config.urls import Kind, nearest_url, split_url, url_differences
from sso.explain.case import (
    REGISTERED,
    Case,
    Comparison,
    Explanation,
    compared,
    named,
    redacted_like,
    sentences,
)
from sso.i18n import N_
from sso.i18n.message import Message, joined
from sso.models import Client
from sso.observability.redaction import HIDDEN
from sso.process.program import COMMAND
from sso.store import clients
from sso.store.clients import RegisteredClient

_CHECKS = {
    "redirect_uri": RegisteredClient.check_redirect_uri,
    "post_logout_redirect_uri": RegisteredClient.check_post_logout_redirect_uri,
}
_DEFAULT_PORTS = {"https": 443, "http": 80}


def unregistered(case: Case) -> Explanation | None:
    """Explain an unregistered URI of an authorization request or a sign-out (RFC 9700 §4.1.3)."""
    logout = "post_logout_redirect_uri"
    name = logout if case[logout] else "redirect_uri"
    received, client = case[name], case.client
    if not received or client is None or case["authorized_redirect_uri"]:
        return None
    registered = [str(uri) for uri in client.client_metadata.get(f"{name}s") or ()]
    as_read = clients.registered(database.session_connection(), client.client_id)
    if as_read and _CHECKS[name](as_read, received):
        return Explanation(
            Message(
                "The %(name)s was not registered for the client. It is registered now.", name=name
            ),
            Message("No action is needed."),
        )
    cause = Message("The %(name)s is not registered for the client.", name=name)
    by_redacted = {redacted_like(uri, received): uri for uri in registered}
    closest = by_redacted.get(nearest_url(received, by_redacted) or "")
    comparison = compared(name, received, REGISTERED, closest) if closest else None
    if comparison:
        cause = Message(
            "The %(name)s is not registered for the client. Compared with the nearest one: "
            "%(differences)s.",
            name=name,
            differences=_words(comparison),
        )
    elif name == logout:
        cause = Message("The %(name)s is not registered for the client, which has none.", name=name)
    fix, command = _fix(case, client, name, received, closest)
    return Explanation(cause, fix, command, comparison)


def another_at_the_token_endpoint(case: Case) -> Explanation | None:
    received, expected = case["redirect_uri"], case["authorized_redirect_uri"]
    if not expected:
        return None
    label = Message("authorization request")
    comparison = compared("redirect_uri", received, label, expected)
    return Explanation(
        Message(
            "The redirect_uri of the token request is not the one of the authorization request: "
            "%(differences)s.",
            differences=_words(comparison),
        ),
        Message("Make the application send the same redirect_uri in both requests."),
        comparison=comparison,
    )


def _words(comparison: Comparison) -> Message:
    if not comparison.differences:
        return Message("a value in the query differs")
    return joined(N_("%(one)s; %(other)s"), comparison.differences)


def _fix(
    case: Case, client: Client, name: str, received: str, closest: str | None
) -> tuple[Message, str | None]:
    others = (owner for owner in clients.every() if case.sees(owner.client_id))
    other = next((owner for owner in others if received in _all_of(owner, name)), None)
    if other:
        return (
            Message(
                "It is registered for %(client)s. If that is the application, make it send that "
                "client_id.",
                client=named(other),
            ),
            None,
        )
    correct = Message("Correct the application.")
    if closest:
        correct = Message("Make the application send the registered %(name)s.", name=name)
    if split_url(received).query and HIDDEN in received:
        return (
            Message(
                "Make the application send the registered %(name)s, %(how)s: what differs from "
                "request to request belongs in the parameter state. (The values of the query are "
                "not kept here.)",
                name=name,
                how=Message("with that query")
                if closest and split_url(closest).query
                else Message("without a query"),
            ),
            None,
        )
    if HIDDEN in received:
        return sentences(correct, Message("A part of it is not kept here.")), None
    if problem := urls.registration_error(received, is_public=client.is_public):
        because = Message("What it sends cannot be registered: %(problem)s.", problem=problem)
        return sentences(correct, because), None
    option = f"--add-{name.replace('_', '-')}"
    if not any(_is_same_place(received, uri) for uri in _all_of(client)):
        host = urlsplit(received).netloc or urlsplit(received).scheme
        fix = Message(
            "If %(host)s belongs to the application, register its address with: %(command)s. "
            "Anyone can send such a request: if you do not know the host, leave it.",
            host=host,
            command=f"{COMMAND} client update {client.client_id} {option} URI",
        )
        return sentences(correct, fix) if closest else fix, None
    if closest and Kind.PATH not in {part.kind for part in url_differences(received, closest)}:
        fix = Message(
            "Make the application send the registered %(name)s, or register what it sends:",
            name=name,
        )
    elif closest:
        # The host is the same, but the page may be an open redirector, or another owner's.
        callback = Message(
            "Anyone can send such a request. If this path is the application's callback, register "
            "it:"
        )
        fix = sentences(correct, callback)
    else:
        fix = Message(
            "Anyone can send such a request. If the application answers there, register it:"
        )
    return fix, case.update(option, received)


def _all_of(client: Client, name: str | None = None) -> list[str]:
    fields = (f"{name}s",) if name else ("redirect_uris", "post_logout_redirect_uris")
    return [str(uri) for field in fields for uri in client.client_metadata.get(field) or ()]


def _is_same_place(received: str, registered: str) -> bool:
    """Return whether both URLs have the same owner: the same host by https, or loopback."""
    first, second = urlsplit(received), urlsplit(registered)
    if urls.is_loopback(first.hostname) and urls.is_loopback(second.hostname):
        return True
    if first.scheme != "https":
        return (first.scheme, first.netloc) == (second.scheme, second.netloc)
    ports = [parts.port or _DEFAULT_PORTS["https"] for parts in (first, second)]
    return first.hostname == second.hostname and second.scheme == "https" and ports[0] == ports[1]
