"""Codes, verifiers, refresh tokens and access tokens."""

from sso.audit.events import Event
from sso.explain.case import Case, Explanation, command, named
from sso.flow import narrowing, scopes
from sso.store import clients

_PKCE = {
    "no challenge": (
        "A code_verifier was sent, but the authorization request had no code_challenge.",
        "Make the application send a code_challenge (S256) in the authorization request; somebody "
        "who removes it on the way would be noticed by this.",
    ),
    "no verifier": (
        "The code_verifier is missing, although the authorization request had a code_challenge.",
        "Make the application keep the verifier until the token request, and send it there.",
    ),
    "challenge as verifier": (
        "The code_challenge was sent as the code_verifier: the application does plain PKCE.",
        "Switch the application to S256: the challenge is the SHA-256 of the verifier.",
    ),
    "wrong verifier": (
        "The code_verifier does not belong to the code_challenge of the authorization request.",
        "Make the application keep one verifier for each sign-in. Look for a second tab, or "
        "several processes, that replace it before the code is exchanged.",
    ),
}


def pkce(case: Case) -> Explanation | None:
    found = _PKCE.get(case["pkce"])
    return Explanation(*found) if found else None


def presented(case: Case) -> Explanation | None:
    """A code or a token, by the reason that was found for it."""
    what = _what(case)
    if what is None:
        return None
    used, expires, at = case.moment("used_at"), case.moment("expires_at"), case.refusal.at
    if used and case.reason in ("", "used before"):
        return _used(case, what, f"{used:%Y-%m-%d %H:%M:%S}")
    if case.reason == "expired" and expires:
        late = f"The {what} had expired {_seconds((at - expires).total_seconds())} before."
        return Explanation(late, _LATE[what].format(s=case.settings))
    if case.reason == "issued to another client":
        owner = clients.find(case["issued_to"])
        return Explanation(
            f"The {what} was issued to {named(owner) if owner else case['issued_to']}.",
            "Make the application use the same client_id in all its requests.",
        )
    if case.reason == "session ended" and what == "refresh token":
        return _session_ended(case)
    if case.reason.startswith("its grant has ended: "):
        why = case.reason.partition(": ")[2]
        return Explanation(
            f"What the user approved has ended: {_ENDED.get(why, why.replace('_', ' '))}.",
            "Let the user sign in to the application again.",
        )
    if case.reason == "user disabled":
        return _user_disabled(case, what)
    if case.reason in _UNREADABLE:
        cause, fix = _UNREADABLE[case.reason]
        return Explanation(cause.format(what=what), fix)
    return None


def narrowed(case: Case) -> Explanation | None:
    """What the grant no longer gives (see `flow.narrowing`); groups are a cause of their own."""
    if case["description"] == narrowing.ONE_FACTOR:
        return Explanation(
            "The client requires two-step verification, and the user signed in without it, before "
            "that was required.",
            "Let the user sign in to the application again; the second factor is asked for then.",
        )
    if case["description"] == narrowing.SESSION_ENDED:
        return _session_ended(case)
    if case["description"] == narrowing.NOTHING_LEFT:
        return Explanation(
            "Nothing that was granted is allowed any more: the client's scopes, or the user's "
            "consent, have been narrowed since.",
            "Let the user sign in to the application again, and approve what it asks for.",
        )
    return None


_API_TOKENS = {
    "unknown": ("The API token is not one of this server.", None),
    "revoked": ("The API token was revoked.", ("api-token", "list")),
    "expired": ("The API token has expired.", ("api-token", "list")),
    "in the URL": (
        "The API token stands in the URL, and so in the logs of the program, of proxies and of "
        "browsers. Revoke it.",
        ("api-token", "list"),
    ),
}


def api(case: Case) -> Explanation | None:
    """An API token, of a program that administers the server."""
    if case.refusal.name != Event.API_TOKEN_REFUSED:
        return None
    cause, found = _API_TOKENS.get(case.reason, (case["description"], ("api-token", "list")))
    return Explanation(
        cause,
        "Create a token with the scopes that the program needs, and give it to the program.",
        command(*found) if found else None,
    )


def scope_of_userinfo(case: Case) -> Explanation | None:
    if case["error"] != "insufficient_scope":
        return None
    missing = " ".join(scopes.USERINFO_SCOPES)
    registered = scopes.split(case.client.scope) if case.client else ()
    command = None if "openid" in registered else case.update("--add-scope", "openid")
    return Explanation(
        f"The access token has the scope {case['granted_scope'] or 'of none'}; userinfo needs one "
        f"of {missing}.",
        "Make the application ask for openid"
        + (", with which the client has to be registered:" if command else "."),
        command,
    )


def no_token(case: Case) -> Explanation | None:
    if case.refusal.endpoint != "userinfo" or case.reason or case["error"] != "invalid_token":
        return None
    return Explanation(
        "The request has no access token.",
        "Send it in the header Authorization: Bearer. A token in the query is never taken. If the "
        "application sends it, look for a proxy that removes the header.",
    )


def not_its_own(case: Case) -> Explanation | None:
    """RFC 7662 §4, RFC 7009 §2.1: the answer does not say so."""
    if case.refusal.name != Event.TOKEN_REFUSED:
        return None
    return Explanation(
        "The token is not one of this client's: it is unknown, or was issued to another client.",
        "Make the application present the tokens that it got itself, with its own client_id.",
    )


def _what(case: Case) -> str | None:
    if case.refusal.name == Event.ACCESS_TOKEN_REFUSED:
        return "access token"
    kinds = {"authorization_code": "code", "refresh_token": "refresh token"}
    return kinds.get(case["grant_type"]) if case["error"] == "invalid_grant" else None


def _used(case: Case, what: str, at: str) -> Explanation:
    revoked = "" if case.reason else " Everything that it gave was revoked."
    if what == "code":
        fix = (
            "A code works once. Look in the application for a callback that is loaded twice: a "
            "double click, a reload, a prefetch, or a retry after a time-out."
        )
    else:
        fix = (
            "A refresh token works once and gives its successor. Make the application store each "
            "answer before it refreshes again, and refresh in one place at a time. Retries within "
            f"{case.settings.refresh_token_leeway} s (SSO_REFRESH_TOKEN_LEEWAY) are harmless. If "
            "only one place had the token, it may have been stolen."
        )
    return Explanation(f"The {what} was used before, at {at} UTC.{revoked}", fix)


def _session_ended(case: Case) -> Explanation:
    registered = scopes.split(case.client.scope) if case.client else ()
    command = None
    fix = "Let the user sign in again. To outlive the session, make the application ask for "
    if "offline_access" not in registered:
        command = case.update("--add-scope", "offline_access")
    return Explanation(
        "The browser session in which this was approved has ended, by sign-out or by its age.",
        f"{fix}offline_access{', with which the client has to be registered:' * bool(command)}"
        f"{'' if command else '.'}",
        command,
    )


def _user_disabled(case: Case, what: str) -> Explanation:
    user = case.user
    email = user.email if user else "(deleted)"
    if user and user.disabled_at is None:
        return Explanation(f"{email} was disabled, and is enabled now.", "Let them sign in again.")
    enable = command("user", "enable", email) if user else None
    return Explanation(
        f"The {what} is of {email}, who is disabled.", "If they may sign in again:", enable
    )


def _seconds(seconds: float) -> str:
    if seconds < 120:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 7200 else f"{round(seconds / 3600)} h"


_LATE = {
    "code": (
        "A code lives {s.authorization_code_lifetime} s (SSO_AUTHORIZATION_CODE_LIFETIME). Make "
        "the application exchange it as soon as it arrives."
    ),
    "refresh token": (
        "A refresh token lives {s.refresh_token_lifetime} s from its last use "
        "(SSO_REFRESH_TOKEN_LIFETIME). Let the user sign in to the application again."
    ),
    "access token": (
        "An access token lives {s.access_token_lifetime} s (SSO_ACCESS_TOKEN_LIFETIME). Make the "
        "application get a new one with its refresh token."
    ),
}
_UNREADABLE = {
    "unknown": (
        "No such {what} is stored here: it was never issued, or it expired long ago.",
        "Look in the application for a value that is cut or decoded twice, that is of another "
        "kind, or that comes from another server.",
    ),
    "altered": (
        "The {what} names one of this server's, but its text has been changed.",
        "Look in the application for a value that is cut, decoded or signed again.",
    ),
    "not a token of this server": (
        "This server did not issue the {what}.",
        "Make the application send the access_token of the token response, not the id_token, "
        "the refresh_token or a token of another server.",
    ),
    "revoked": ("The {what} was revoked.", "Make the application get a new one."),
}
_ENDED = {
    "sign_out": "the user signed out",
    "rp_initiated_logout": "the user signed out from an application",
    "ended_by_user": "the user ended the session on the account page",
    "operator": "an operator signed the user out",
    "revoked": "the application revoked the refresh token",
    "consent_withdrawn": "the user withdrew the consent",
    "group_lost": "the user has left the groups that may use the client",
    "user_disabled": "the user was disabled",
    "client_disabled": "the client was disabled",
    "code_reuse": "its code was used twice",
    "refresh_token_reuse": "a refresh token was used twice",
}
