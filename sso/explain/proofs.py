"""PKCE, pushed and signed authorization requests (RFC 9126, RFC 9101), DPoP proofs (RFC 9449)."""

from sso.crypto.client_jwt import JwtFault
from sso.explain.case import EXPECTED, Case, Explanation, compared, described
from sso.explain.clients import where_keys_belong
from sso.flow.refusals import Cause, KeyFault, PkceFault, Reason
from sso.i18n.message import Message
from sso.store import redemption

_PUSHED: dict[Reason | None, tuple[Message, Message]] = {
    Reason.UNKNOWN: (
        Message("No such request was pushed here, or it was used or expired some time ago."),
        Message(
            "Look in the application for a request_uri that is cut or reused, or of another server."
        ),
    ),
    Reason.USED_BEFORE: (
        Message("The user was already sent back to the application for this request_uri."),
        Message(
            "Make the application push a new request for each sign-in. The user may also have "
            "used the back button."
        ),
    ),
    Reason.EXPIRED: (
        Message(
            "The request was pushed more than %(seconds)s s before the browser came with it.",
            seconds=round(redemption.PUSHED_LIFETIME.total_seconds()),
        ),
        Message("Make the application redirect the browser as soon as it has pushed the request."),
    ),
    Reason.WAITED_TOO_LONG: (
        Message(
            "The user came back to the sign-in more than an hour after the application sent them."
        ),
        Message("Ask the user to start again from the application."),
    ),
    Reason.ISSUED_TO_ANOTHER: (
        Message("The request was pushed by another client."),
        Message("Make the application use the same client_id for pushing and in the redirect."),
    ),
}


def pushed(case: Case) -> Explanation | None:
    if case.cause == Cause.NOT_PUSHED:
        return Explanation(
            Message(
                "The client is registered with %(option)s, and the request was not pushed.",
                option="--require-par",
            ),
            Message(
                "Turn on pushed authorization requests (PAR) at the application. If it has none:"
            ),
            case.update("--no-require-par"),
        )
    texts = _PUSHED.get(case.reason) if case["error"] == "invalid_request_uri" else None
    return Explanation(*texts) if texts else None


def signed(case: Case) -> Explanation | None:
    """Explain a signed request that is missing or invalid (RFC 9101)."""
    if case.cause == Cause.NOT_SIGNED:
        return Explanation(
            Message(
                "The client is registered with %(option)s, and the request is not signed.",
                option="--request-object-alg",
            ),
            Message("Turn on signed requests (JAR) at the application. If it has none:"),
            case.update("--no-request-object-alg"),
        )
    if case.client and case["jwt"] == JwtFault.SIGNATURE:
        return Explanation(case["description"], where_keys_belong(case.client))
    return None


_DPOP_AT_FAULT = Message(
    "Update the application's library for DPoP, or report this to its developers."
)
# Faults without an entry are explained by their description.
_DPOP: dict[str, tuple[Message, Message]] = {
    KeyFault.MISSING: (
        Message(
            "The request has no DPoP proof. The client is registered with %(option)s, or its "
            "access token is bound to a key.",
            option="--require-dpop",
        ),
        Message("Turn on DPoP at the application, for token requests and for userinfo."),
    ),
    "iat": (
        Message("The time in the DPoP proof is more than a minute off."),
        Message(
            "Set the clock of the application's machine, or let it make a proof for each request."
        ),
    ),
    "jti": (
        Message("The DPoP proof has no jti, or was used before."),
        Message(
            "Make the application sign a new proof for each request, also when it repeats one."
        ),
    ),
    KeyFault.NONCE: (
        Message("The DPoP proof has no nonce of this server, or an old one."),
        Message(
            "Make the application repeat the request with the nonce of the header DPoP-Nonce; "
            "libraries do this by themselves."
        ),
    ),
    KeyFault.BOUND_CODE: (
        Message(
            "The authorization request or the pushed request named another key than the token "
            "request proves."
        ),
        Message(
            "Make the application keep one key from the beginning of a sign-in to its end. If it "
            "did, somebody else tried to use the code."
        ),
    ),
    KeyFault.SENT_AS_BEARER: (
        Message(
            "The access token is bound to a key by DPoP, and came as an ordinary bearer token."
        ),
        Message(
            "Make the application send it with Authorization: DPoP and a proof, or ask for tokens "
            "without a proof. If it does, look for a proxy that changes the header."
        ),
    ),
    KeyFault.NOT_BOUND: (
        Message("The access token is an ordinary bearer token, and came with the scheme DPoP."),
        Message(
            "Make the application send a proof with its token requests, too, or none with userinfo."
        ),
    ),
    KeyFault.NO_LONGER_ENOUGH: (
        Message(
            "The access token was issued before the client was registered with %(option)s.",
            option="--require-dpop",
        ),
        Message("Turn on DPoP at the application, and refresh the token."),
    ),
    KeyFault.ANOTHER_KEY: (
        Message("The access token is bound to another key than that of the DPoP proof."),
        Message(
            "Make the application keep its key as long as the token. If it did, somebody else "
            "tried to use the token."
        ),
    ),
    KeyFault.DPOP_JKT: (
        Message("The dpop_jkt of the pushed request names another key than its DPoP proof."),
        Message("Make the application leave dpop_jkt out, or name the key that it proves."),
    ),
    KeyFault.BOUND_SUBJECT_TOKEN: (
        Message(
            "The subject token is bound to a key by DPoP, and the token request proves another "
            "key or none."
        ),
        Message(
            "Only the holder of the key can exchange the token. For an API that exchanges tokens, "
            "let the application request them without DPoP. If this is not the backend of that "
            "API, somebody else tried to use the token."
        ),
    ),
    KeyFault.BOUND_REFRESH_TOKEN: (
        Message(
            "The refresh token of a public client came without a proof of the key that it is "
            "bound to."
        ),
        Message(
            "Make the application keep its key as long as the refresh token. If it did, somebody "
            "else tried to use the token."
        ),
    ),
}


def dpop(case: Case) -> Explanation | None:
    """Explain a fault of a DPoP key or proof (RFC 9449)."""
    if not (fault := case["dpop"]):
        return None
    if received := case["htu_uri"]:
        expected = case["expected_uri"]
        return Explanation(
            Message("The DPoP proof was made for another URL."),
            Message(
                "Set the issuer of the application to %(issuer)s, from which it finds all URLs. "
                "Behind a proxy, it has to sign the published URL.",
                issuer=case.issuer,
            ),
            comparison=compared("htu", received, EXPECTED, expected),
        )
    texts = _DPOP.get(fault)
    return Explanation(*texts) if texts else Explanation(described(case), _DPOP_AT_FAULT)


_PKCE: dict[str, tuple[Message, Message]] = {
    PkceFault.NO_CHALLENGE: (
        Message("A code_verifier was sent, but the authorization request had no code_challenge."),
        Message(
            "Make the application send a code_challenge (S256) in the authorization request; "
            "somebody who removes it on the way would be noticed by this."
        ),
    ),
    PkceFault.NO_VERIFIER: (
        Message(
            "The code_verifier is missing, although the authorization request had a code_challenge."
        ),
        Message(
            "Make the application keep the verifier until the token request, and send it there."
        ),
    ),
    PkceFault.CHALLENGE_AS_VERIFIER: (
        Message(
            "The code_challenge was sent as the code_verifier: the application does plain PKCE."
        ),
        Message("Switch the application to S256: the challenge is the SHA-256 of the verifier."),
    ),
    PkceFault.WRONG_VERIFIER: (
        Message(
            "The code_verifier does not belong to the code_challenge of the authorization request."
        ),
        Message(
            "Make the application keep one verifier for each sign-in. Look for a second tab, or "
            "several processes, that replace it before the code is exchanged."
        ),
    ),
}


def pkce(case: Case) -> Explanation | None:
    texts = _PKCE.get(case["pkce"])
    return Explanation(*texts) if texts else None
