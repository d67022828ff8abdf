"""DPoP (RFC 9449): which key a request shows, and what its proof has to fulfil here.

Proofs come with token requests, pushed authorization requests and userinfo requests. Their `htu` is
compared with the address that the metadata of the client's issuer publishes, never with one that
headers make.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Protocol

from authlib.oauth2.rfc6749.errors import OAuth2Error
from flask import Response, after_this_request
from flask import request as flask_request
from sqlalchemy import Connection

from sso import clock, context
from sso.config import urls
from sso.crypto import dpop, secrets
from sso.crypto.dpop import Proof
from sso.flow.refusals import KeyFault
from sso.oauth.authlib_request import ProtocolRequest
from sso.ratelimit import limiting
from sso.store import redemption
from sso.store.clients import RegisteredClient
from sso.store.redemption import NewToken, SingleUse

ALGORITHMS = " ".join(dpop.ALGORITHMS)
MISSING = "The header DPoP is missing; this client's requests need a DPoP proof."
_NONCES = "DPoP nonces"
_SHARDS = 16


class RefusedProof(OAuth2Error):
    """RFC 9449 §5, §7.1; `facts` are for `flask explain`."""

    error = "invalid_dpop_proof"

    def __init__(self, description: str, fault: str, **facts: str) -> None:
        super().__init__(description)
        self.facts: dict[str, object] = {"dpop": fault, **facts}


class MissingProof(RefusedProof):
    """A token request without a proof (§5.2). The standard names no error; the OpenID Foundation's
    conformance suite accepts none of DPoP's own.
    """

    error = "invalid_request"

    def __init__(self) -> None:
        super().__init__(MISSING, KeyFault.MISSING)


class UseNonce(RefusedProof):
    """RFC 9449 §8: the answer has the nonce to use."""

    error = "use_dpop_nonce"

    def __init__(self) -> None:
        super().__init__("The DPoP proof needs the nonce of the header DPoP-Nonce.", KeyFault.NONCE)


def read(request: ProtocolRequest, endpoint: str, *, is_needed: bool) -> None:
    """Note the proof that an authenticated client sends, if any, for `use`.

    Raises `RefusedProof`, also if there is none and it `is_needed`.
    """
    text = flask_request.environ.get("HTTP_DPOP")
    if text is None:
        if is_needed:
            raise MissingProof
        return
    request.proof = verify(text, request.client, endpoint)


def verify(
    text: str | None, client: RegisteredClient, endpoint: str, access_token: str | None = None
) -> Proof:
    """Verify the proof of a client's request to an endpoint, or with an access token to userinfo.

    Raises `RefusedProof`.
    """
    url = context.settings().endpoint_of(client, endpoint)
    return verify_at(url, text, client, access_token)


def verify_at(
    url: str, text: str | None, client: RegisteredClient, access_token: str | None
) -> Proof:
    """Verify the proof of a client's request to this URL. Raises `RefusedProof`."""
    if text is None:
        raise RefusedProof(MISSING, KeyFault.MISSING)
    now = clock.now()
    try:
        proof = dpop.verify(text, method=flask_request.method, now=now, access_token=access_token)
    except dpop.InvalidProof as error:
        raise RefusedProof(str(error), error.fault) from None
    if urls.normalized(proof.htu) != urls.normalized(url):
        raise RefusedProof(
            f"The htu of the DPoP proof has to be {url}, the URL of the request.",
            "htu",
            htu_uri=proof.htu,
            expected_uri=url,
        )
    if not _has_nonce(proof, client):
        try:
            dpop.check_age(proof, now)
        except dpop.InvalidProof as error:
            raise RefusedProof(str(error), error.fault) from None
    return proof


def use(connection: Connection, proof: Proof | None, *, is_alone: bool = False) -> None:
    """Use a proof; it counts if the transaction is committed. `is_alone`: see `use_once`.

    Raises `RefusedProof` for one that was used before, on whichever node, and `TooManyAttempts`.
    """
    if proof is None:
        return
    with _refusals():
        use = _single_use(proof)
        if not redemption.use_once(connection, use, now=clock.now(), is_alone=is_alone):
            raise redemption.UsedBefore


class Redeem(Protocol):
    """A function that redeems what a client presents, and stores the token response."""

    def __call__(self, token: NewToken, *, use: SingleUse | None) -> bool: ...


def with_proof(proof: Proof | None, redeem: Redeem) -> Callable[[NewToken], bool]:
    """Return a function that redeems, and uses the proof together with it.

    If nothing was redeemed, the proof is used in the transaction anyway. Raises as `use` does.
    """
    if proof is None:
        return partial(redeem, use=None)

    def run(token: NewToken) -> bool:
        with _refusals():
            return redeem(token, use=_single_use(proof))

    return run


def _single_use(proof: Proof) -> SingleUse:
    # A backend has one key for all its users, and each insert counts the proofs of its holder.
    shard = sum(proof.jti.encode()) % _SHARDS
    expires_at = proof.issued_at + dpop.OLDEST + timedelta(seconds=1)
    if proof.nonce:
        expires_at = clock.now() + dpop.NONCE_LIFETIME
    return SingleUse("dpop proof", f"{proof.thumbprint}/{shard}", proof.jti, expires_at)


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except redemption.TooManyUsed:
        raise limiting.TooManyAttempts(int(dpop.OLDEST.total_seconds())) from None
    except redemption.UsedBefore:
        raise RefusedProof(
            "The DPoP proof was used before; make a new one each time.", "jti"
        ) from None


def _has_nonce(proof: Proof, client: RegisteredClient) -> bool:
    """Return whether a proof has a nonce of this server, which shows its age by our clock.

    Raises `UseNonce`.
    """
    is_needed = client.requires_dpop_nonce or context.settings().dpop_nonce == "required"
    if not is_needed and proof.nonce is None:
        return False
    keys = secrets.derive_keys(context.settings().secret_keys, _NONCES)
    newest = dpop.make_nonce(keys[0], clock.now())
    if proof.nonce != newest:
        after_this_request(_with_nonce(newest))
    if proof.nonce is None or not any(
        dpop.is_recent(proof.nonce, key, clock.now()) for key in keys
    ):
        raise UseNonce
    return True


def _with_nonce(nonce: str) -> Callable[[Response], Response]:
    def add(response: Response) -> Response:
        response.headers["DPoP-Nonce"] = nonce
        return response

    return add
