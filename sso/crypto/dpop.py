"""DPoP proofs (RFC 9449 §4): a JWT by which a client shows that it has a key."""

from base64 import urlsafe_b64encode
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from typing import Any

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import Key

from sso.crypto import client_jwt, secrets

# Ed25519 is what new libraries call EdDSA (RFC 9864).
ALGORITHMS = (*client_jwt.FAPI_ALGORITHMS, "Ed25519")
MAX_LENGTH = 4096
MAX_JTI = 200
OLDEST = timedelta(seconds=60)
AHEAD = timedelta(seconds=60)  # the client's clock may be wrong
_NONCE_STEP = 60  # seconds
NONCE_LIFETIME = timedelta(seconds=4 * _NONCE_STEP)  # the longest; see `is_recent`


class InvalidProof(ValueError):
    """The proof is refused; `str()` is the description for the client, without any part of it.

    `fault` names the wrong part.
    """

    def __init__(self, fault: str, description: str) -> None:
        super().__init__(description)
        self.fault = fault


@dataclass(frozen=True)
class Proof:
    """A proof whose signature fits its key. The rest is checked in `oauth.dpop`."""

    thumbprint: str  # of the key (RFC 7638)
    htu: str
    jti: str
    issued_at: datetime
    nonce: str | None


def verify(text: str, *, method: str, now: datetime, access_token: str | None = None) -> Proof:
    """Check a proof by itself (§4.3): everything except `htu`, `jti`, `iat` and `nonce`.

    Raises `InvalidProof`.
    """
    if len(text) > MAX_LENGTH:
        raise InvalidProof("jwt", f"The DPoP proof is longer than {MAX_LENGTH} characters.")
    if "," in text:
        raise InvalidProof("jwt", "There is more than one DPoP header.")
    segments = text.split(".")
    if not text.isascii() or len(segments) != 3:
        raise InvalidProof("jwt", "The DPoP proof is not a signed JWT.")
    alg, key, thumbprint = _header(segments[0])
    try:
        jws.deserialize_compact(text, key, registry=client_jwt.registry(alg))
    except (JoseError, ValueError, TypeError):
        raise InvalidProof(
            "signature", "The signature of the DPoP proof does not fit its jwk."
        ) from None
    claims = _object(segments[1], "claims")
    jti, htu, nonce = (_text(claims, name) for name in ("jti", "htu", "nonce"))
    if jti is None or len(jti) > MAX_JTI:
        raise InvalidProof("jti", f"The DPoP proof has no jti of at most {MAX_JTI} characters.")
    if _text(claims, "htm") != method:
        raise InvalidProof("htm", "The htm of the DPoP proof is not the method of the request.")
    if htu is None:
        raise InvalidProof("htu", "The DPoP proof has no htu.")
    issued_at = _times(claims, now)
    if access_token is not None:
        ath = urlsafe_b64encode(sha256(access_token.encode()).digest()).rstrip(b"=").decode()
        if not secrets.is_equal(_text(claims, "ath") or "", ath):
            raise InvalidProof("ath", "The ath of the DPoP proof is not that of the access token.")
    return Proof(thumbprint, htu, jti, issued_at, nonce)


def check_age(proof: Proof, now: datetime) -> None:
    """Check `iat`, by the clock of the client. Raises `InvalidProof`."""
    if not now - OLDEST <= proof.issued_at <= now + AHEAD:
        fault = "old" if proof.issued_at < now else "far ahead"
        raise InvalidProof(
            "iat", f"The iat of the DPoP proof is too {fault}; check the clock of the client."
        )


def make_nonce(key: bytes, now: datetime, steps: int = 0) -> str:
    """Return the nonce for proofs of this moment (§8). Every node makes the same one."""
    step = int(now.timestamp()) // _NONCE_STEP + steps
    return secrets.derive_secret("", f"{step}", key)


def is_recent(nonce: str, key: bytes, now: datetime) -> bool:
    """Return whether a nonce was made recently, or by a node whose clock is slightly ahead."""
    return any(secrets.is_equal(nonce, make_nonce(key, now, steps)) for steps in (0, -1, -2, 1))


@lru_cache(maxsize=256)  # most proofs of a client begin alike
def _header(segment: str) -> tuple[str, Key, str]:
    """Return the algorithm, the key and its thumbprint. Raises `InvalidProof`."""
    header = _object(segment, "header")
    if header.get("typ") != "dpop+jwt":
        raise InvalidProof("typ", "The typ of the DPoP proof is not dpop+jwt.")
    if "crit" in header or "b64" in header:
        raise InvalidProof("crit", "The DPoP proof has a crit that is not supported.")
    alg = header.get("alg")
    if not isinstance(alg, str) or alg not in ALGORITHMS:
        raise InvalidProof(
            "alg", f"The alg of the DPoP proof is not one of {', '.join(ALGORITHMS)}."
        )
    try:
        client_key = client_jwt.parse_key(header.get("jwk"))
    except client_jwt.UnusableKey as error:
        raise InvalidProof("jwk", f"The jwk of the DPoP proof is refused: {error}.") from None
    keys = client_jwt.fitting_keys([client_key], None, alg)
    if not keys:
        raise InvalidProof("alg", "The alg of the DPoP proof does not fit its jwk.")
    return alg, keys[0], keys[0].thumbprint()


def _object(segment: str, name: str) -> dict[str, Any]:
    try:
        return client_jwt.read_object(segment)
    except (ValueError, RecursionError):
        raise InvalidProof("jwt", f"The {name} of the DPoP proof can't be read.") from None


def _text(claims: dict[str, Any], name: str) -> str | None:
    value = claims.get(name)
    if value is not None and not (isinstance(value, str) and value.isascii()):
        raise InvalidProof(name, f"The {name} of the DPoP proof is not a text in ASCII.")
    return value or None


def _times(claims: dict[str, Any], now: datetime) -> datetime:
    issued_at, expires_at, not_before = (_moment(claims, name) for name in ("iat", "exp", "nbf"))
    if issued_at is None:
        raise InvalidProof("iat", "The DPoP proof has no iat.")
    if expires_at and expires_at <= now:
        raise InvalidProof("exp", "The DPoP proof has expired.")
    if not_before and not_before > now + AHEAD:
        raise InvalidProof("nbf", "The nbf of the DPoP proof is too far ahead.")
    return issued_at


def _moment(claims: dict[str, Any], name: str) -> datetime | None:
    try:
        value = client_jwt.moment(claims, name)
    except client_jwt.InvalidJwt:
        fault = f"The {name} of the DPoP proof is not a number of seconds."
        raise InvalidProof(name, fault) from None
    return None if value is None else datetime.fromtimestamp(value, UTC)
