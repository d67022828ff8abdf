"""URLs that are not the registered ones."""

from urllib.parse import urlsplit

from sso import database
from sso.config import urls
from sso.config.url_differences import Kind, differences, nearest, split
from sso.explain.case import Case, Explanation, compared, kept_of, named
from sso.models import Client
from sso.observability.redaction import HIDDEN
from sso.process.program import COMMAND
from sso.store import clients
from sso.store.clients import RegisteredClient

_NOW = "registered now"
_CHECKS = {
    "redirect_uri": RegisteredClient.check_redirect_uri,
    "post_logout_redirect_uri": RegisteredClient.check_post_logout_redirect_uri,
}
_DEFAULT_PORTS = {"https": 443, "http": 80}


def unregistered(case: Case) -> Explanation | None:
    """At the authorization endpoint (RFC 9700 §4.1.3), or after sign-out."""
    logout = "post_logout_redirect_uri"
    name = logout if case[logout] else "redirect_uri"
    received, client = case[name], case.client
    if not received or client is None or case["authorized_redirect_uri"]:
        return None
    registered = [str(one) for one in client.client_metadata.get(f"{name}s") or ()]
    as_read = clients.registered(database.session_connection(), client.client_id)
    if as_read and _CHECKS[name](as_read, received):
        return Explanation(
            f"The {name} was not registered for the client. It is registered now.",
            "There is nothing left to do.",
        )
    cause = f"The {name} is not registered for the client"
    by_kept = {kept_of(one, received): one for one in registered}
    closest = by_kept.get(nearest(received, by_kept) or "")
    comparison = compared(name, received, _NOW, closest) if closest else None
    if comparison:
        differs = "; ".join(comparison.differences) or "a value in the query differs"
        cause += f". Compared with the nearest one: {differs}"
    elif name == logout:
        cause += ", which has none"
    fix, command = _fix(case, client, name, received, closest)
    return Explanation(f"{cause}.", fix, command, comparison)


def another_at_the_token_endpoint(case: Case) -> Explanation | None:
    received, expected = case["redirect_uri"], case["authorized_redirect_uri"]
    if not expected:
        return None
    comparison = compared("redirect_uri", received, "authorization request", expected)
    differs = "; ".join(comparison.differences) or "a value in the query differs"
    return Explanation(
        "The redirect_uri of the token request is not the one of the authorization request: "
        f"{differs}.",
        "Make the application send the same redirect_uri in both requests.",
        comparison=comparison,
    )


def _fix(
    case: Case, client: Client, name: str, received: str, closest: str | None
) -> tuple[str, str | None]:
    other = next((one for one in clients.every() if received in _all_of(one, name)), None)
    if other:
        return (
            f"It is registered for {named(other)}. If that is the application, make it send that "
            "client_id.",
            None,
        )
    correct = f"Make the application send the registered {name}" if closest else ""
    if split(received).query and HIDDEN in received:
        return (
            f"Make the application send the registered {name}, "
            f"{'with that query' if closest and split(closest).query else 'without a query'}: what "
            "differs from request to request belongs in the parameter state. (The values of the "
            "query are not kept here.)",
            None,
        )
    if HIDDEN in received:
        return f"{correct or 'Correct the application'}. A part of it is not kept here.", None
    if problem := urls.registration_error(received, is_public=client.is_public):
        return f"{correct or 'Correct the application'}. What it sends cannot be registered: "\
               f"{problem}.", None  # fmt: skip
    option = f"--add-{name.replace('_', '-')}"
    if not any(_is_same_place(received, one) for one in _all_of(client)):
        host = urlsplit(received).netloc or urlsplit(received).scheme
        return (
            f"{f'{correct}. ' if correct else ''}If {host} belongs to the application, register "
            f"its address with: {COMMAND} client update {client.client_id} {option} URI. Anyone "
            "can send such a request: if you do not know the host, leave it.",
            None,
        )
    if closest and all(one.kind is not Kind.PATH for one in differences(received, closest)):
        fix = f"{correct}, or register what it sends:"
    elif closest:
        # The same host, but perhaps a page of its that redirects anywhere, or somebody else's.
        fix = (
            f"{correct}. Anyone can send such a request. If this path is the application's "
            "callback, register it:"
        )
    else:
        fix = "Anyone can send such a request. If the application answers there, register it:"
    return fix, case.update(option, received)


def _all_of(client: Client, name: str | None = None) -> list[str]:
    fields = (f"{name}s",) if name else ("redirect_uris", "post_logout_redirect_uris")
    return [str(uri) for field in fields for uri in client.client_metadata.get(field) or ()]


def _is_same_place(received: str, registered: str) -> bool:
    """Whether who controls the one controls the other: the same host, by https or on loopback."""
    one, other = urlsplit(received), urlsplit(registered)
    if urls.is_loopback(one.hostname) and urls.is_loopback(other.hostname):
        return True
    if one.scheme != "https":
        return (one.scheme, one.netloc) == (other.scheme, other.netloc)
    ports = [part.port or _DEFAULT_PORTS["https"] for part in (one, other)]
    return one.hostname == other.hostname and other.scheme == "https" and ports[0] == ports[1]
