"""Services, the APIs that they may use, and the credentials of APIs."""

from sso.audit.events import Event
from sso.crypto.client_jwt import JwtFault
from sso.explain.case import EXPECTED, Case, Explanation, command, compared, described
from sso.flow import scopes
from sso.flow.refusals import Cause, Reason
from sso.i18n.message import Message


def without_api(case: Case) -> Explanation | None:
    """Explain a token request of a service that names no API that it may use."""
    client = case.client
    if client is None or case.cause != Cause.NO_API_OF_SERVICE:
        return None
    if not client.apis:
        return Explanation(
            Message("The client is registered for no API, and userinfo is about people."),
            Message("Register it for the API, by its identifier:"),
            case.update("--add-api", "URI"),
        )
    return Explanation(
        Message("The request names no API, and the client has no default API."),
        Message("Make the application send one of these as resource, or make one the default: "
                "%(apis)s.", apis=", ".join(client.apis)),
        case.update("--default-api", next(iter(client.apis))),
    )  # fmt: skip


def without_scope(case: Case) -> Explanation | None:
    """Explain a token request of a service for scopes that it is not registered for."""
    if case.cause != Cause.NO_SCOPE_OF_API or case.client is None:
        return None
    resource, requested = case["resource"], scopes.split(case["requested_scope"])
    registered = case.client.apis.get(resource) or ()  # an entry takes the place of the earlier one
    names = ",".join(dict.fromkeys([*registered, *requested]))
    return Explanation(
        Message("The service asks for %(requested)s at %(resource)s, and has none of it there.",
                requested=" ".join(requested), resource=resource),
        Message("If the API has these scopes, and the service may have them:"),
        case.update("--add-api", f"{resource}={names}"),
    )  # fmt: skip


def at_userinfo(case: Case) -> Explanation | None:
    """Explain a token of a service at userinfo."""
    if case.reason != Reason.OF_SERVICE:
        return None
    return Explanation(
        Message("The access token was issued to a service, and userinfo is about people."),
        Message("Make the application show the token to the API that is its audience."),
    )


def credentials_of_api(case: Case) -> Explanation | None:
    """Explain refused credentials of an API."""
    if case.reason == Reason.API_ELSEWHERE:
        return Explanation(
            Message("The credentials are right, but they are those of an API, and only good for "
                    "introspection."),
            Message("To get tokens, register the API as a client, too, with its own credentials."),
        )  # fmt: skip
    if case.reason == Reason.API_DISABLED:
        return Explanation(
            Message("The API is disabled, and may not introspect."),
            Message("If it may be used again, enable it:"),
            command("api", "enable", case["client"]),
        )
    if case.reason == Reason.WRONG_SECRET_OF_API:
        return Explanation(
            Message("The secret of the API is wrong, or it was replaced or taken away."),
            Message("Give the API the present secret. If it is lost, make a new one:"),
            command("api", "rotate-secret", case["client"]),
        )
    return None


def of_another_api(case: Case) -> Explanation | None:
    """Explain an introspection by an API of a token that is not for it."""
    if case.refusal.name != Event.TOKEN_REFUSED or not case["api"]:
        return None
    return Explanation(
        Message("The token is not for the API %(api)s: it is unknown, or has another audience.",
                api=case["api"]),
        Message("Make the application ask for a token with this API as resource."),
    )  # fmt: skip


def distrusted(case: Case) -> Explanation | None:
    """Explain a JWT of a platform that does not fit what the client trusts.

    No command: anyone can send such a JWT, and hope that an operator trusts it.
    """
    client = case.client
    if client is None or case.reason != Reason.ASSERTION or not client.trust_issuer:
        return None
    cause = Message("The client assertion was refused: %(fault)s.", fault=case["fault"])
    fault = case["jwt"]
    if fault == JwtFault.ISSUER:
        expected, name = client.trust_issuer, "iss"
        fix = Message("If that is your platform, change the issuer that the client trusts.")
    elif fault == JwtFault.SUBJECT:
        expected, name = client.trust_subject, "sub"
        fix = Message("If that is the workload, change the subject that the client trusts.")
    elif fault == JwtFault.AUDIENCE:
        expected, name = client.trust_audience or case.issuer, "aud"
        fix = Message("Let the platform make the JWT for this audience alone.")
    elif fault == JwtFault.USED_BEFORE:
        return Explanation(
            cause,
            Message("Let the workload get a new JWT for each token, and keep the token until it "
                    "expires."),
        )  # fmt: skip
    elif fault == JwtFault.SIGNATURE:
        fix = Message("Compare the kid %(kid)s with the key set of %(issuer)s.",
                      kid=case["kid"], issuer=client.trust_issuer)  # fmt: skip
        return Explanation(cause, fix)
    else:
        return None
    comparison = compared(name, case[name], EXPECTED, expected) if case[name] else None
    return Explanation(cause, fix, comparison=comparison)


def at_own_api(case: Case) -> Explanation | None:
    """Explain a refused request of a service to an API of this server itself."""
    if case.refusal.name != Event.API_TOKEN_REFUSED or case.client is None:
        return None
    return Explanation(
        described(case),
        Message("Look at what the service is registered for, and how it asks for its token:"),
        case.command("client", "show"),
    )
