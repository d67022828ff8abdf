"""Checks of resources: the APIs that access tokens are for (RFC 8707)."""

from sso.config.urls import nearest_url
from sso.explain.case import (
    REGISTERED,
    Case,
    Explanation,
    command,
    compared,
    described,
    named,
    redacted_like,
    sentences,
)
from sso.flow import resources, scopes
from sso.flow.refusals import Cause
from sso.i18n import N_
from sso.i18n.message import Message, joined
from sso.models import Api
from sso.process.program import COMMAND
from sso.store import apis

_TRY_AGAIN = Message("Try again.")
_SAME_SPELLING = Message("Make the application send the identifier as it is registered.")


def refused(case: Case) -> Explanation | None:
    """Explain why there is no access token for an API, or none that is accepted."""
    match case.cause:
        case Cause.UNKNOWN_RESOURCE if case.client is not None:
            return _unknown(case, _first_unknown(case))
        case Cause.RESOURCE_WITHDRAWN if case.client is not None:
            return _withdrawn(case)
        case Cause.NOT_A_MEMBER_OF_API:
            return _not_a_member(case, apis.find(resources.normalized(case["resource"])))
        case Cause.RESOURCE_NOT_APPROVED:
            return Explanation(
                described(case),
                Message(
                    "Make the application name the resource in the authorization request, too, and "
                    "let the user sign in to it again."
                ),
            )
        case Cause.TOO_MANY_RESOURCES:
            return Explanation(
                described(case),
                Message("Make the application name only the APIs that it needs now."),
            )
        case Cause.WRONG_AUDIENCE:
            return Explanation(
                Message("The access token is for an API; userinfo takes those for this server."),
                Message(
                    "Make the application use a token for this server here: it requests one with "
                    "resource=%(issuer)s.",
                    issuer=case.issuer,
                ),
            )
    return None


def _first_unknown(case: Case) -> str:
    """Return the first resource of the request that the client is not registered for."""
    names = scopes.split(case["resource"]) or [""]
    registered = case.client.apis if case.client else {}
    return next((name for name in names if resources.normalized(name) not in registered), names[0])


def _unknown(case: Case, received: str) -> Explanation:
    client, identifier = case.client, resources.normalized(received)
    if case.among is not None and client is not None and identifier not in client.apis:
        # Whether there is such an API, the reader may not know.
        return Explanation(
            Message("The application is not registered for an API with this identifier."),
            Message("Correct the application, or ask an administrator to register it for the API."),
        )
    api = apis.find(identifier)
    if client is None or api is None:
        return _nearest(case, received)
    if client.registration is not None:
        return _disabled(api) or _not_for_agents(api)
    if identifier not in client.apis:
        return Explanation(
            Message(
                "The API %(identifier)s is registered here, but not for %(client)s.",
                identifier=identifier,
                client=named(client),
            ),
            Message("If the application may use it:"),
            case.update("--add-api", identifier),
        )
    return _disabled(api) or Explanation(
        Message("The client was not registered for the API. It is registered now."), _TRY_AGAIN
    )


def _not_for_agents(api: Api) -> Explanation:
    """Explain what a client that nobody registered may not use."""
    if api.agents:
        return Explanation(
            Message("Agents could not use the API %(identifier)s. They may use it now.",
                    identifier=api.identifier),
            _TRY_AGAIN,
        )  # fmt: skip
    return Explanation(
        Message(
            "The client was registered by nobody, and such agents may not use the API "
            "%(identifier)s.",
            identifier=api.identifier,
        ),
        Message("If agents may use it:"),
        command("mcp", "add", api.identifier),
    )


def _disabled(api: Api) -> Explanation | None:
    if not api.disabled:
        return None
    return Explanation(
        Message("The API %(identifier)s is disabled.", identifier=api.identifier),
        Message("If applications may use it again:"),
        command("api", "enable", api.identifier),
    )


def _nearest(case: Case, received: str) -> Explanation:
    """Compare an unknown resource with the nearest registered identifier, first the client's."""
    of_client = case.client.apis if case.client else {}
    identifiers = {redacted_like(api.identifier, received): api.identifier for api in apis.every()}
    own = {kept: name for kept, name in identifiers.items() if name in of_client}
    nearest = identifiers.get(nearest_url(received, own or identifiers) or "")
    none = Message("There is no API with the identifier that the application names.")
    if nearest is None:
        return Explanation(none, _register(received))
    comparison = compared("resource", received, REGISTERED, nearest)
    cause = Message(
        "There is no API with the identifier that the application names. Compared with the nearest "
        "one: %(differences)s.",
        differences=joined(N_("%(one)s; %(other)s"), comparison.differences),
    )
    if nearest in of_client:
        fix, fixing = sentences(_SAME_SPELLING, _register(received)), None
    else:
        register = Message("If the application may use that one, register it:")
        fix, fixing = sentences(_SAME_SPELLING, register), case.update("--add-api", nearest)
    return Explanation(cause if comparison.differences else none, fix, fixing, comparison)


def _register(received: str) -> Message:
    if problem := resources.identifier_error(received):
        return Message("What it sends cannot identify an API: %(problem)s.", problem=problem)
    return Message(
        "Anyone can send such a request. If there is such an API, register it with: %(command)s.",
        command=f"{COMMAND} api create --identifier URI --name NAME",
    )


def _withdrawn(case: Case) -> Explanation:
    """Explain why an API that the user approved is no longer given."""
    client, identifier = case.client, resources.normalized(case["resource"])
    api = apis.find(identifier)
    if client is None or api is None:
        return Explanation(
            Message("The API %(identifier)s was deleted.", identifier=identifier),
            Message("Make the application name another API, or none."),
        )
    if client.registration is not None and not api.agents:
        return _not_for_agents(api)
    if client.registration is None and identifier not in client.apis:
        return Explanation(
            Message(
                "%(client)s is no longer registered for the API %(identifier)s.",
                client=named(client),
                identifier=identifier,
            ),
            Message("If the application may use it:"),
            case.update("--add-api", identifier),
        )
    if explanation := _disabled(api):
        return explanation
    if case.user is not None and api.groups and not set(api.groups) & set(case.user.groups):
        return _not_a_member(case, api)
    return Explanation(
        Message(
            "The user no longer allows the application what it requested at the API "
            "%(identifier)s, or its scopes are gone.",
            identifier=identifier,
        ),
        Message("Let the user sign in to the application again."),
    )


def _not_a_member(case: Case, api: Api | None) -> Explanation:
    user = case.user
    who = user.email if user else Message("The user")
    groups = api.groups if api else []
    if api is None or not groups or (user and set(groups) & set(user.groups)):
        return Explanation(
            Message(
                "%(who)s was in none of the groups that may use the API, and may use it now.",
                who=who,
            ),
            Message("Let them sign in again."),
        )
    return Explanation(
        Message(
            "%(who)s is in none of the groups that may use the API %(identifier)s: %(groups)s.",
            who=who,
            identifier=api.identifier,
            groups=", ".join(groups),
        ),
        Message("If the person may use it, add them to one of these:")
        if groups[1:]
        else Message("If the person may use it, add them to it:"),
        command("user", "update", user.email, "--add-group", groups[0]) if user else None,
    )
