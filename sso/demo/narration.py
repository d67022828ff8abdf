"""The story of a sign-in, step by step, from what was recorded on the way."""

from collections.abc import Iterable, Mapping
from typing import Any

from .recording import exchanges_with
from .steps import (
    Part,
    Step,
    access_token_claims,
    authorization_request,
    exchange_parts,
    fields,
    identity_token_claims,
)

Metadata = Mapping[str, Any]


def of_sign_in(
    asked: str,
    answered: Iterable[tuple[str, str]],
    token: Mapping[str, Any],
    identity: Mapping[str, Any],
    metadata: Metadata,
) -> tuple[Step, ...]:
    """The five steps of the authorization code flow."""
    return (
        Step(
            "The authorization request",
            "The browser was sent to the server, with the hash of a secret that only this "
            "application knows (PKCE) and two random values to recognise the answer by.",
            (authorization_request(asked),),
        ),
        Step(
            "The answer at the callback",
            "The server sent the browser back with a code. The state is the one that was sent, "
            "and iss names the server that was asked.",
            (Part("Answer, through the browser", rows=fields(answered)),),
        ),
        Step(
            "The token request",
            "The application traded the code for tokens, without the browser. The code_verifier "
            "is the secret whose hash was in step 1.",
            _recorded(metadata["token_endpoint"]),
        ),
        Step(
            "What the tokens say",
            "The identity token is for this application: its signature, issuer, audience, expiry "
            "and nonce were checked. The access token is for the API that is called with it.",
            _claims(token, identity),
        ),
        Step(
            "The profile",
            "The application asked who signed in, with the access token.",
            _recorded(metadata["userinfo_endpoint"]),
        ),
    )


def of_refresh(
    token: Mapping[str, Any], identity: Mapping[str, Any] | None, metadata: Metadata
) -> tuple[Step, ...]:
    """The two steps of a refresh."""
    return (
        Step(
            "The refresh request",
            "The application traded its refresh token for new tokens, and nobody had to sign in.",
            _recorded(metadata["token_endpoint"]),
        ),
        Step(
            "What the new tokens say",
            "The same person, with a later expiry.",
            _claims(token, identity),
        ),
    )


def of_failure(metadata: Metadata) -> tuple[Part, ...]:
    """The last exchange before a failure, if there was one with the server's endpoints."""
    addresses = (metadata.get("token_endpoint"), metadata.get("userinfo_endpoint"))
    recorded = [found for address in addresses if address for found in _recorded(address)]
    return tuple(recorded[-2:])


def _recorded(address: str) -> tuple[Part, ...]:
    return tuple(part for exchange in exchanges_with(address) for part in exchange_parts(exchange))


def _claims(token: Mapping[str, Any], identity: Mapping[str, Any] | None) -> tuple[Part, ...]:
    access = access_token_claims(token["access_token"])
    return (access, identity_token_claims(token["id_token"], identity)) if identity else (access,)
