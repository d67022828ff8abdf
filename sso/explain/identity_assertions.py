"""Identity assertions (ID-JAG): those that are not issued, and those that are not taken."""

from sso.config.client_fields import FIELDS, JWT_BEARER, TOKEN_EXCHANGE
from sso.crypto.client_jwt import JwtFault
from sso.explain.case import (
    EXPECTED,
    REGISTERED,
    Case,
    Explanation,
    command,
    compared,
    sentences,
)
from sso.flow import scopes
from sso.flow.refusals import Cause, SubjectFault
from sso.i18n.message import Message, Quote
from sso.models import Client, User
from sso.store import identities, users

_TRY_AGAIN = Message("Try again.")
_AT_THE_ISSUER = Message("The server that issues the assertions has to correct them.")
_GRANTS = {TOKEN_EXCHANGE: "--exchange", JWT_BEARER: "--assertions"}


def grant_not_registered(case: Case) -> Explanation | None:
    """Explain a client that may not exchange tokens, or present assertions."""
    option, client = _GRANTS.get(case["grant_type"]), case.client
    if option is None or client is None or case["error"] != "unauthorized_client":
        return None
    grant = case["grant_type"]
    if grant in client.client_metadata.get("grant_types", ()):
        cause = Message("The client was not registered for %(grant)s. It is now.", grant=grant)
        return Explanation(cause, _TRY_AGAIN)
    options = [option]
    fix = Message("If it may use this grant:")
    if grant == JWT_BEARER and not client.first_party:
        options.append("--first-party")
        fix = Message("If it may use this grant, for which nobody is asked for consent:")
    return Explanation(
        Message("The client is not registered for %(grant)s.", grant=grant),
        fix,
        case.update(*options),
    )


def not_issued(case: Case) -> Explanation | None:
    """Explain a refused request for an assertion."""
    match case.cause:
        case Cause.NO_ID_JAG_AUDIENCE:
            return _no_audience(case)
        case Cause.SUBJECT_NO_ID_TOKEN:
            return _no_id_token(case)
        case Cause.SCOPE_NOT_AT_AUDIENCE:
            return _scope_not_available(case)
        case Cause.UNREADABLE_RESOURCE:
            return Explanation(
                Message("The resource that the application names is not a URI."),
                Message("Make it name the API as the other server knows it, or none."),
            )
    return None


def _no_audience(case: Case) -> Explanation:
    audience = case["resource"]
    if case.client and audience in case.client.id_jag_audiences:
        return Explanation(
            Message("The client was not registered for this audience. It is registered now."),
            _TRY_AGAIN,
        )
    cause = Message(
        "The client asks for an identity assertion for %(audience)s, which is not among its "
        "audiences.",
        audience=audience,
    )
    if FIELDS["id_jag_audiences"].url_error(f"{audience} CLIENT_ID"):
        return Explanation(cause, Message("Make the application name the issuer of that server."))
    return Explanation(
        cause,
        Message("If it may have one, add the server, and the ID that the client has there:"),
        case.update("--add-id-jag-audience", f"{audience} CLIENT_ID"),
    )


def _no_id_token(case: Case) -> Explanation:
    sign_in_again = Message("Let the user sign in to the application again.")
    match case["fault"]:
        case SubjectFault.TYPE:
            return Explanation(
                Message("The subject token is declared as another type than an identity token."),
                Message(
                    "Make the application send its identity token, with the subject_token_type "
                    "urn:ietf:params:oauth:token-type:id_token."
                ),
            )
        case SubjectFault.INVALID:
            return Explanation(
                Message("The subject token is no identity token of this server."),
                Message("Make the application send the id_token that it got at the sign-in."),
            )
        case SubjectFault.ANOTHER_CLIENT:
            return Explanation(
                Message(
                    "The %(what)s was issued to %(client)s.",
                    what=Message("identity token"),
                    client=case.issued_to,
                ),
                Message("Make the application use the same client_id in all its requests."),
            )
        case SubjectFault.EXPIRED:
            return Explanation(Message("The identity token has expired."), sign_in_again)
        case SubjectFault.ENDED if case.client and case.user:
            return _ended(case.client, case.user) or Explanation(
                Message("The access that came with the identity token has ended."), sign_in_again
            )
    return Explanation(
        Message(
            "The subject token is no identity token of this client, it has expired, or the "
            "access that came with it has ended."
        ),
        sign_in_again,
    )


def _ended(client: Client, user: User) -> Explanation | None:
    """Explain which right is missing today, if one is."""
    if user.is_disabled:
        return _disabled(user)
    if client.admits(user.groups):
        return None
    return Explanation(
        Message(
            "%(email)s is in none of the groups that may use the client: %(groups)s.",
            email=user.email,
            groups=", ".join(client.groups),
        ),
        Message("If the person may use it, add them to one of these:")
        if client.groups[1:]
        else Message("If the person may use it, add them to it:"),
        command("user", "update", user.email, "--add-group", client.groups[0]),
    )


def _disabled(user: User) -> Explanation:
    return Explanation(
        Message("%(email)s is disabled.", email=user.email),
        Message("If the person may sign in again:"),
        command("user", "enable", user.email),
    )


def _scope_not_available(case: Case) -> Explanation:
    audience, requested = case["resource"], scopes.split(case["requested_scope"])
    client_id, available = (
        case.client.id_jag_audiences.get(audience, ("", ())) if case.client else ("", ())
    )
    if not available:  # any, or none by now
        return Explanation(
            Message("The application asks for more scopes than an assertion may have."),
            Message("Make it ask for those that it needs now."),
        )
    cause = Message(
        "The application asks for %(requested)s at %(audience)s; it may request %(available)s "
        "there.",
        requested=" ".join(requested)[:200],
        audience=audience,
        available=" ".join(available),
    )
    entry = " ".join((audience, client_id, *available))
    wider = " ".join((audience, client_id, *dict.fromkeys((*available, *requested))))
    return Explanation(
        cause,
        Message("If it may have them:"),
        case.update("--remove-id-jag-audience", entry, "--add-id-jag-audience", wider),
    )


def not_taken(case: Case) -> Explanation | None:
    """Explain a refused assertion of another server."""
    if case["grant_type"] != JWT_BEARER:
        return None
    match case.cause:
        case Cause.UNKNOWN_SUBJECT:
            return _unknown_subject(case)
        case Cause.ISSUER_UNREAD:
            return Explanation(
                Message(
                    "The keys of %(issuer)s could not be read: %(reason)s.",
                    issuer=case["iss"],
                    reason=Quote(case["fault"]),
                ),
                Message("Check that its metadata and its key set can be read from this server."),
            )
        case Cause.TOO_MANY_ASSERTIONS:
            return Explanation(
                Message("The client has presented too many assertions that have not expired yet."),
                Message("Make the application use its access token until that expires."),
            )
        case Cause.ONE_FACTOR:
            return Explanation(
                Message(
                    "The client requires two-step verification, and an assertion proves none to "
                    "this server."
                ),
                Message("If it may do without:"),
                case.update("--no-require-mfa"),
            )
        case Cause.RESOURCE_NOT_ASSERTED | Cause.SCOPE_NOT_ASSERTED | Cause.NO_SCOPE_OF_API:
            return _not_asserted(case)
        case Cause.ASSERTION_REFUSED:
            return _refused(case)
    return None


def _unknown_subject(case: Case) -> Explanation:
    identity = identities.find(case["iss"], case["sub"])
    user = users.find(identity.user_id) if identity else None
    if user is not None and user.is_disabled:
        return _disabled(user)
    return Explanation(
        Message(
            "No enabled user here has linked the account %(subject)s of %(issuer)s.",
            subject=case["sub"],
            issuer=case["iss"],
        ),
        Message("Let the user sign in here once with that provider, or link the account."),
    )


def _not_asserted(case: Case) -> Explanation:
    """Explain a request for more than the assertion, or the registration, has."""
    if case.cause == Cause.RESOURCE_NOT_ASSERTED:
        return Explanation(
            Message(
                "The assertion is not for the API %(identifier)s.", identifier=case["resource"]
            ),
            Message("Make the application name the same API here and where it gets the assertion."),
        )
    requested = case["requested_scope"]
    if case.cause == Cause.SCOPE_NOT_ASSERTED:
        return Explanation(
            Message(
                "The application asks for %(requested)s; the assertion has %(asserted)s.",
                requested=requested,
                asserted=case["granted_scope"],
            ),
            Message("Make it leave scope out, or get an assertion for these scopes."),
        )
    registered = (case.client.apis.get(case["resource"]) if case.client else None) or ()
    names = ",".join(dict.fromkeys([*registered, *scopes.split(requested)]))
    return Explanation(
        Message(
            "The application asks for %(requested)s at %(resource)s, and has none of it there.",
            requested=requested,
            resource=case["resource"],
        ),
        Message("If the API has these scopes, and the application may have them:"),
        case.update("--add-api", f"{case['resource']}={names}"),
    )


def _refused(case: Case) -> Explanation:
    issuer, client, jwt = case["iss"], case.client, case["jwt"]
    if jwt == JwtFault.ISSUER and issuer:
        return _issuer(case)
    if jwt == JwtFault.USED_BEFORE:
        return Explanation(
            Message("The assertion was used before."),
            Message("The application has to get a new one for each request."),
        )
    if jwt == JwtFault.OVERTAKEN:
        cause = Message("The client or its user was changed at that moment.")
        return Explanation(cause, _TRY_AGAIN)
    cause = Message("The assertion is refused: %(fault)s.", fault=Quote(case["fault"]))
    if not case["fault"]:
        cause = Message("The assertion of %(issuer)s is not valid here.", issuer=issuer)
    fix, comparison = _AT_THE_ISSUER, None
    if jwt == JwtFault.AUDIENCE:
        expected = case.issuer
        fix = Message(
            "At %(issuer)s, register this server as the audience %(expected)s.",
            issuer=issuer,
            expected=expected,
        )
        if case["aud"] not in ("", expected):
            comparison = compared("aud", case["aud"], EXPECTED, expected)
    elif jwt == JwtFault.CLIENT and client is not None:
        fix = Message(
            "At %(issuer)s, set the ID that the application has here to %(client_id)s.",
            issuer=issuer,
            client_id=client.client_id,
        )
        if case["sent"]:
            comparison = compared("client_id", case["sent"], REGISTERED, client.client_id)
    elif jwt == JwtFault.CLOCK:
        fix = Message(
            "Make the application get a new assertion for each request; set the clocks of both "
            "servers, for example by NTP."
        )
    elif jwt == JwtFault.SIGNATURE:
        if case["kid"]:
            cause = sentences(cause, Message("It names the key %(kid)s.", kid=case["kid"]))
        fix = Message(
            "See whether the key is in the key set that the metadata of %(issuer)s names.",
            issuer=issuer,
        )
    return Explanation(cause, fix, comparison=comparison)


def _issuer(case: Case) -> Explanation:
    """Explain an issuer that the client is not registered for."""
    issuer = case["iss"]
    if case.client and issuer in case.client.id_jag_issuers:
        return Explanation(
            Message("The client was not registered for this issuer. It is registered now."),
            _TRY_AGAIN,
        )
    cause = Message("The client is not registered for assertions of %(issuer)s.", issuer=issuer)
    if FIELDS["id_jag_issuers"].url_error(issuer):
        return Explanation(cause, _AT_THE_ISSUER)
    return Explanation(
        cause,
        Message("If it may present them, add the issuer:"),
        case.update("--add-id-jag-issuer", issuer),
    )
