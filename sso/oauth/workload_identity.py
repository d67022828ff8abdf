"""Workload identity: a JWT of an issuer that a client trusts authenticates it (RFC 7523 §3).

A platform gives each workload such a JWT: Kubernetes to a service account, GitHub Actions and
GitLab CI to a job. So the workload keeps no secret. The JWT names the platform and the workload;
the request names the client.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sso import clock, context
from sso.crypto import client_jwt, secrets
from sso.crypto.client_jwt import ClientJwt, InvalidJwt, JwtFault
from sso.oauth.key_sets import Keys
from sso.store.clients import RegisteredClient
from sso.store.redemption import SingleUse

# Platforms issue JWTs with longer lifetimes than clients do: for a job, as long as it may run; on
# Amazon's Kubernetes, a day. None works twice.
LONGEST_LIFETIME = 24 * 3600  # seconds
_TYPES = ("jwt", None)
_WILDCARD = "*"
_MARK = 24  # characters of a digest, which tell the issuers of a client apart


# One text for each: a stranger must not learn whom the client trusts.
_PUBLIC = "it is not one of an issuer and a workload that the client trusts"


def verify(
    client: RegisteredClient, jwt: ClientJwt, keys: Callable[[], Keys]
) -> tuple[SingleUse, str]:
    """Verify a JWT of the issuer that a client trusts; return the identifier to be used up, and the
    fault if it was used before.

    `keys` reads the keys of the issuer. The signature is verified before any claim is compared.
    Raises `InvalidJwt`, and what `keys` raises.
    """
    claims, now = jwt.claims, clock.now().timestamp()
    _check_origin(client, jwt, keys())
    _check_audience(claims.get("aud"), client)
    return _single_use(client, jwt, client_jwt.expiry(claims, now, LONGEST_LIFETIME))


def _check_origin(client: RegisteredClient, jwt: ClientJwt, keys: Keys) -> None:
    """Check the signature, the issuer and the subject; all have the same public fault."""
    why: str = ""
    fault: JwtFault | None = None
    try:
        client_jwt.verify(jwt, keys, client_jwt.ALGORITHMS, _TYPES, "the trusted issuer")
    except InvalidJwt as error:
        if error.fault != JwtFault.SIGNATURE:
            raise
        why, fault = str(error), error.fault
    # Whatever the platform, its keys sign for strangers, too.
    subject = jwt.claims.get("sub")
    if jwt.claims.get("iss") != client.trust_issuer:
        why, fault = "its iss is not the issuer that the client trusts", JwtFault.ISSUER
    elif not isinstance(subject, str) or not matches(client.trust_subject, subject):
        why, fault = why or "its sub is not one that the client trusts", fault or JwtFault.SUBJECT
    if why:
        raise InvalidJwt(why, fault, public=_PUBLIC)


def _single_use(client: RegisteredClient, jwt: ClientJwt, expires: float) -> tuple[SingleUse, str]:
    """Return the `jti`, or the digest of the signed part: a signature has several spellings.

    It works once, at whichever client: several may trust the same workload.
    """
    namespace = secrets.digest(client.trust_issuer or "")[-_MARK:]
    holder = f"{client.client_id}/{namespace}"
    until = datetime.fromtimestamp(expires, UTC)
    fault = "it was used before; get a new one for each request"
    identifier = jwt.claims.get("jti")
    if "jti" not in jwt.claims:
        signed = secrets.digest(jwt.text.rpartition(".")[0])
        return SingleUse("workload", holder, signed, until, namespace), fault
    if not isinstance(identifier, str) or not 0 < len(identifier) <= client_jwt.MAX_ID:
        raise InvalidJwt(f"its jti is not a text of at most {client_jwt.MAX_ID} characters")
    return SingleUse("workload jti", holder, identifier, until, namespace), fault


def _check_audience(audience: Any, client: RegisteredClient) -> None:
    """Raise `InvalidJwt` unless this is the only audience: a second one could use the JWT here.

    An audience of the operator's is not named: a description has few characters (RFC 6749 §5.2).
    """
    trusted, issuer = client.trust_audience, context.settings().issuer_of(client)
    if audience in (trusted or issuer, [trusted or issuer]):
        return
    expected = "the audience that the client trusts," if trusted else issuer
    raise InvalidJwt(f"its aud has to be {expected} alone", JwtFault.AUDIENCE)


def matches(pattern: str, text: str) -> bool:
    """Return whether a text matches a pattern, in which `*` stands for any characters.

    Its time is linear in the text for each part of the pattern.
    """
    first, *parts = pattern.split(_WILDCARD)
    if not parts:
        return text == pattern
    if not text.startswith(first):
        return False
    *middle, last = parts
    position = len(first)
    for part in middle:
        start = text.find(part, position)
        if start < 0:
            return False
        position = start + len(part)
    return len(text) - len(last) >= position and text.endswith(last)
