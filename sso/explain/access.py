"""Access tokens and API tokens: missing, of others, or of too few scopes."""

from sso.audit.events import Event
from sso.explain.case import Case, Explanation, command
from sso.explain.descriptions import described
from sso.flow import scopes
from sso.i18n.message import Message

_API_TOKENS = {
    "unknown": (Message("The API token is not one of this server."), None),
    "revoked": (Message("The API token was revoked."), ("api-token", "list")),
    "expired": (Message("The API token has expired."), ("api-token", "list")),
    "owner": (
        Message("The API token belongs to somebody who is no longer an administrator."),
        ("api-token", "list"),
    ),
    "in the URL": (
        Message(
            "The API token stands in the URL, and so in the logs of the program, of proxies and "
            "of browsers. Revoke it."
        ),
        ("api-token", "list"),
    ),
}


def api(case: Case) -> Explanation | None:
    """An API token, of a program that administers the server."""
    if case.refusal.name != Event.API_TOKEN_REFUSED:
        return None
    cause, found = _API_TOKENS.get(case.reason, (described(case), ("api-token", "list")))
    return Explanation(
        cause,
        Message(
            "Create a token with the scopes that the program needs, and give it to the program."
        ),
        command(*found) if found else None,
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
    if case.refusal.endpoint != "userinfo" or case.reason or case["error"] != "invalid_token":
        return None
    return Explanation(
        Message("The request has no access token."),
        Message(
            "Send it in the header Authorization: Bearer. A token in the query is never taken. If "
            "the application sends it, look for a proxy that removes the header."
        ),
    )


def not_its_own(case: Case) -> Explanation | None:
    """RFC 7662 §4, RFC 7009 §2.1: the answer does not say so."""
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
