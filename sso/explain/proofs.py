"""Pushed and signed authorization requests (RFC 9126, RFC 9101), DPoP proofs (RFC 9449)."""

from sso.explain.case import Case, Explanation, compared
from sso.explain.registrations import where_keys_belong
from sso.flow.request import NOT_PUSHED, NOT_SIGNED
from sso.store import pushed_requests

_PUSHED = {
    "unknown": (
        "No such request was pushed here, or it was used or expired some time ago.",
        "Look in the application for a request_uri that is cut or reused, or of another server.",
    ),
    "used before": (
        "The user was already sent back to the application for this request_uri.",
        "Make the application push a new request for each sign-in. The user may also have used "
        "the back button.",
    ),
    "expired": (
        f"The request was pushed more than {round(pushed_requests.LIFETIME.total_seconds())} s "
        "before the browser came with it.",
        "Make the application redirect the browser as soon as it has pushed the request.",
    ),
    "waited too long": (
        "The user came back to the sign-in more than an hour after the application sent them.",
        "Let the user start again from the application.",
    ),
    "issued to another client": (
        "The request was pushed by another client.",
        "Make the application use the same client_id for pushing and in the redirect.",
    ),
}


def pushed(case: Case) -> Explanation | None:
    if case["description"] == NOT_PUSHED:
        return Explanation(
            "The client is registered with --require-par, and the request was not pushed.",
            "Turn on pushed authorization requests (PAR) at the application. If it has none:",
            case.update("--no-require-par"),
        )
    found = _PUSHED.get(case.reason) if case["error"] == "invalid_request_uri" else None
    return Explanation(*found) if found else None


def signed(case: Case) -> Explanation | None:
    """Requests that the client signs (RFC 9101)."""
    if case["description"] == NOT_SIGNED:
        return Explanation(
            "The client is registered with --request-object-alg, and the request is not signed.",
            "Turn on signed requests (JAR) at the application. If it has none:",
            case.update("--no-request-object-alg"),
        )
    if case.client and "not signed with" in case["description"]:
        return Explanation(case["description"], where_keys_belong(case.client))
    return None


_DPOP_AT_FAULT = "Update the application's library for DPoP, or report this to its makers."
_DPOP = {
    "missing": (
        "The request has no DPoP proof. The client is registered with --require-dpop, or its "
        "access token is bound to a key.",
        "Turn on DPoP at the application, for token requests and for userinfo.",
    ),
    "iat": (
        "The time in the DPoP proof is more than a minute off.",
        "Set the clock of the application's machine, or let it make a proof for each request.",
    ),
    "jti": (
        "The DPoP proof has no jti, or was used before.",
        "Make the application sign a new proof for each request, also when it repeats one.",
    ),
    "nonce": (
        "The DPoP proof has no nonce of this server, or an old one.",
        "Make the application repeat the request with the nonce of the header DPoP-Nonce; "
        "libraries do this by themselves.",
    ),
    "code": (
        "The authorization request or the pushed request named another key than the token request "
        "proves.",
        "Make the application keep one key from the beginning of a sign-in to its end. If it did, "
        "somebody else tried to use the code.",
    ),
    "as bearer": (
        "The access token is bound to a key by DPoP, and came as an ordinary bearer token.",
        "Make the application send it with Authorization: DPoP and a proof, or ask for tokens "
        "without a proof. If it does, look for a proxy that changes the header.",
    ),
    "not bound": (
        "The access token is an ordinary bearer token, and came with the scheme DPoP.",
        "Make the application send a proof with its token requests, too, or none with userinfo.",
    ),
    "unbound by now": (
        "The access token was issued before the client was registered with --require-dpop.",
        "Turn on DPoP at the application, and refresh the token.",
    ),
    "another key": (
        "The access token is bound to another key than that of the DPoP proof.",
        "Make the application keep its key as long as the token. If it did, somebody else tried "
        "to use the token.",
    ),
    "dpop_jkt": (
        "The dpop_jkt of the pushed request names another key than its DPoP proof.",
        "Make the application leave dpop_jkt out, or name the key that it proves.",
    ),
    "refresh token": (
        "The refresh token of a public client came without a proof of the key that it is bound to.",
        "Make the application keep its key as long as the refresh token. If it did, somebody else "
        "tried to use the token.",
    ),
}


def dpop(case: Case) -> Explanation | None:
    """What is wrong with the key of a request, or with its proof (RFC 9449)."""
    if not (fault := case["dpop"]):
        return None
    if received := case["htu_uri"]:
        expected = case["expected_uri"]
        return Explanation(
            "The DPoP proof was made for another URL.",
            f"Set the issuer of the application to {case.settings.issuer}, from which it finds "
            "all URLs. Behind a proxy, it has to sign the published URL.",
            comparison=compared("htu", received, "expected", expected),
        )
    found = _DPOP.get(fault)
    return Explanation(*found) if found else Explanation(case["description"], _DPOP_AT_FAULT)
