"""Identity assertions (ID-JAG): those that are not issued, and those that are not taken."""

from sso.crypto.client_jwt import JwtFault
from sso.explain.case import Case, Explanation
from sso.flow.refusals import Cause
from sso.i18n.message import Message


def not_issued(case: Case) -> Explanation | None:
    """Explain a refused request for an assertion."""
    if case.cause == Cause.NO_ID_JAG_AUDIENCE:
        return Explanation(
            Message(
                "The client asks for an identity assertion for %(audience)s, which is not among "
                "its audiences.",
                audience=case["resource"],
            ),
            Message("If it may have one, add the server, and the ID that the client has there:"),
            case.update("--add-id-jag-audience", f"{case['resource']} CLIENT_ID"),
        )
    if case.cause == Cause.SUBJECT_NO_ID_TOKEN:
        return Explanation(
            Message(
                "The subject token is no identity token of this client, it has expired, or the "
                "access that came with it has ended."
            ),
            Message("Let the user sign in to the application again."),
        )
    return None


def not_taken(case: Case) -> Explanation | None:
    """Explain a refused assertion of another server."""
    if case.cause == Cause.UNKNOWN_SUBJECT:
        return Explanation(
            Message(
                "No enabled user here has linked the account %(subject)s of %(issuer)s.",
                subject=case["sub"],
                issuer=case["iss"],
            ),
            Message("Let the user sign in here once with that provider, or link the account."),
        )
    if case.cause == Cause.ISSUER_UNREAD:
        return Explanation(
            Message("The keys of %(issuer)s could not be read.", issuer=case["iss"]),
            Message("Check that its metadata and its key set can be read from this server."),
        )
    if case.cause != Cause.ASSERTION_REFUSED:
        return None
    if case["jwt"] == JwtFault.ISSUER:
        return Explanation(
            Message(
                "The client is not registered for assertions of %(issuer)s.", issuer=case["iss"]
            ),
            Message("If it may present them, add the issuer:"),
            case.update("--add-id-jag-issuer", case["iss"]),
        )
    return Explanation(
        Message("The assertion of %(issuer)s is not valid here.", issuer=case["iss"]),
        Message(
            "Make the application get a new assertion for each request, with this server as its "
            "audience and its own client ID here."
        ),
    )
