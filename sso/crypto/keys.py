"""The key ring: signing keys, imported once per process and again when they change.

Importing an RSA private key costs as much as a hundred signatures, so no request does it.
"""

import json
import secrets
import threading
import warnings
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from joserfc import jwt
from joserfc.errors import JoseError, SecurityWarning
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey, import_key
from joserfc.util import urlsafe_b64decode

from sso import clock
from sso.crypto import secrets as crypto_secrets
from sso.crypto.secrets import SecretKeys
from sso.errors import OperatorError
from sso.i18n.message import Message
from sso.process.program import COMMAND

# OIDC applications know the name EdDSA; RFC 9864 renames it to Ed25519.
warnings.filterwarnings("ignore", message=".*EdDSA.*", category=SecurityWarning)

# Each has its own key: one RSA key should not serve two schemes (RFC 8017 §6, RFC 8725 §3.1).
ALGORITHMS = ("RS256", "ES256", "EdDSA", "PS256")
SAML = "saml"  # RSA with SHA-256 and a certificate; made for the first SAML client, in no key set
ACCESS_TOKEN_ALGORITHM = "ES256"  # noqa: S105 (an algorithm's name)
ID_TOKEN_LIFETIME = 3600
JWKS_MAX_AGE = 300
CERTIFICATE_LIFETIME = timedelta(days=3650)
RELOAD_AFTER = timedelta(seconds=10)
_PURPOSE = "signing keys"


class StoredKey(Protocol):
    """The part of a row of signing_keys that the ring reads."""

    @property
    def kid(self) -> str: ...
    @property
    def alg(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def public_jwk(self) -> str: ...
    @property
    def sealed_private_jwk(self) -> str: ...
    @property
    def retired_at(self) -> datetime | None: ...


NO_ACTIVE_KEY = f"there is no active signing key; run: {COMMAND} db upgrade"
WRONG_SECRET_KEY = Message(
    "SSO_SECRET_KEY does not open the signing keys of this database; this has to be corrected on "
    "the server",
    for_commands="SSO_SECRET_KEY does not open the signing keys of this database; set it to the "
    "one that the database was used with or, to replace that one, give it as "
    f"SSO_SECRET_KEY_PREVIOUS and run: {COMMAND} key reencrypt",
)


class KeyUnavailable(OperatorError, RuntimeError):
    """No key can sign with an algorithm; `str()` says why, with the remedy."""


@dataclass(frozen=True)
class NewKey:
    """A new key, ready to be stored."""

    kid: str
    alg: str
    public_jwk: str
    sealed_private_jwk: str


def generate(alg: str, secret_keys: SecretKeys) -> NewKey:
    """Make a key pair; its `kid` is its thumbprint (RFC 7638)."""
    key: Key
    if alg in ("RS256", "PS256", SAML):
        key = RSAKey.generate_key(2048)
    elif alg == "ES256":
        key = ECKey.generate_key("P-256")
    else:
        key = OKPKey.generate_key("Ed25519")
    kid = key.thumbprint()
    public = {**key.as_dict(private=False), "kid": kid, "use": "sig", "alg": alg}
    if alg == SAML and isinstance(key, RSAKey):
        public |= {"alg": "RS256", "x5c": [_certificate(key)]}
    private = json.dumps(key.as_dict(private=True)).encode()
    return NewKey(
        kid, alg, json.dumps(public), crypto_secrets.encrypt(secret_keys, _PURPOSE, private)
    )


def _certificate(key: RSAKey) -> str:
    """Return a self-signed certificate, in base64 (RFC 7517 §4.7).

    In SAML it only carries the key, which `key rotate --saml` replaces.
    """
    private = key.private_key
    assert isinstance(private, RSAPrivateKey)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "SAML identity provider")])
    now = clock.now()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + CERTIFICATE_LIFETIME)
        .sign(private, hashes.SHA256())
    )
    return b64encode(certificate.public_bytes(Encoding.DER)).decode()


def private_key(secret_keys: SecretKeys, row: StoredKey) -> RSAPrivateKey:
    """Return the private key of a row for SAML. Raises `KeyUnavailable`."""
    try:
        clear = crypto_secrets.decrypt(secret_keys, _PURPOSE, row.sealed_private_jwk)
    except crypto_secrets.InvalidToken:
        raise KeyUnavailable(WRONG_SECRET_KEY) from None
    private = RSAKey.import_key(json.loads(clear)).private_key
    assert isinstance(private, RSAPrivateKey)
    return private


def can_decrypt(secret_keys: SecretKeys, row: StoredKey) -> bool:
    """Return whether one of these secret keys decrypts the row's private key."""
    try:
        crypto_secrets.decrypt(secret_keys, _PURPOSE, row.sealed_private_jwk)
    except crypto_secrets.InvalidToken:
        return False
    return True


def reencrypt(secret_keys: SecretKeys, row: StoredKey) -> str | None:
    """Return the row's private key, encrypted with the first secret key; `None` if it already is.

    Raises `secrets.InvalidToken` if none of the keys decrypts it.
    """
    return crypto_secrets.reencrypt(secret_keys, _PURPOSE, row.sealed_private_jwk)


@dataclass(frozen=True)
class _Loaded:
    """One consistent view of the keys; it is replaced, never changed."""

    stamp: frozenset[tuple[str, str]]
    undecrypted: frozenset[str]
    active: Mapping[str, Key]
    public: Mapping[str, tuple[str, Key]]
    jwks: bytes


class KeyRing:
    """Signs and verifies with the keys that `load` returns."""

    def __init__(
        self, secret_keys: SecretKeys, load: Callable[[], Iterable[StoredKey]], keep_published: int
    ) -> None:
        self._secret_keys = secret_keys
        self._load = load
        self._keep_published = timedelta(seconds=keep_published)
        self._lock = threading.Lock()
        self._loaded: _Loaded | None = None
        self._loaded_at: datetime | None = None

    def sign(self, claims: Mapping[str, Any], alg: str, typ: str | None) -> str:
        """Return a JWT signed with the active key. Raises `KeyUnavailable`."""
        key = self.active(alg)
        header = make_header(alg, key.kid, typ)
        return jwt.encode(header, dict(claims), key, algorithms=[alg], default_type=typ)

    def active(self, alg: str) -> Key:
        """Return the active key of an algorithm. Raises `KeyUnavailable`."""
        view = self._view()
        try:
            return view.active[alg]
        except KeyError:
            reason = WRONG_SECRET_KEY if alg in view.undecrypted else NO_ACTIVE_KEY
            raise KeyUnavailable(reason) from None

    def verify(self, token: str, typ: str) -> dict[str, Any] | None:
        """Return the claims of a JWT that this server signed, or `None`. Does not check times."""
        try:
            header = _header(token)
            kid = header.get("kid")
            if header.get("typ") != typ or not isinstance(kid, str):
                return None
            alg, key = self._view().public.get(kid, (None, None))
            if alg is None or key is None or header.get("alg") != alg:
                return None
            return dict(jwt.decode(token, key, algorithms=[alg]).claims)
        except (JoseError, ValueError, TypeError, RecursionError):
            return None

    def has_key_of(self, token: str) -> bool:
        """Return whether a JWT names a key of this ring, whether or not that has signed it."""
        try:
            return _header(token).get("kid") in self._view().public
        except (ValueError, TypeError, RecursionError):
            return False

    def jwks(self) -> bytes:
        """Return the public key set as JSON (RFC 7517 §5)."""
        return self._view().jwks

    def refresh(self) -> None:
        """Read the keys now if that is due. Call it before a transaction takes a connection."""
        self._view()

    def reload(self) -> None:
        """Read the keys again at the next use."""
        self._loaded_at = None

    def _view(self) -> _Loaded:
        now = clock.now()
        loaded, loaded_at = self._loaded, self._loaded_at
        if loaded and loaded_at and loaded_at <= now < loaded_at + RELOAD_AFTER:
            return loaded
        # While another thread reads, use the previous keys: this thread may hold the last
        # connection, which the other thread waits for.
        if self._lock.acquire(blocking=loaded is None or loaded_at is None):
            try:
                loaded = self._loaded = self._read(self._loaded)
                self._loaded_at = now
            finally:
                self._lock.release()
        assert loaded
        return loaded

    def _read(self, before: _Loaded | None) -> _Loaded:
        rows = list(self._load())
        published = [row for row in rows if self._is_published(row)]
        # Includes the ciphertext: a key that this process could not decrypt may be re-encrypted.
        stamp = frozenset((row.state, row.sealed_private_jwk) for row in rows) | {
            ("published", row.kid) for row in published
        }
        if before is not None and before.stamp == stamp:
            return before
        decrypted = {key.kid: key for key in before.active.values()} if before else {}
        active = {
            row.alg: decrypted.get(row.kid) or self._private(row)
            for row in rows
            if row.state == "active"
        }
        return _Loaded(
            stamp=stamp,
            undecrypted=frozenset(alg for alg, key in active.items() if key is None),
            active={alg: key for alg, key in active.items() if key is not None},
            public={row.kid: (row.alg, import_key(json.loads(row.public_jwk))) for row in rows},
            jwks=json.dumps({"keys": [json.loads(row.public_jwk) for row in published]}).encode(),
        )

    def _is_published(self, row: StoredKey) -> bool:
        return row.retired_at is None or clock.now() < row.retired_at + self._keep_published

    def _private(self, row: StoredKey) -> Key | None:
        """Return the private key, or `None` if no secret key decrypts it."""
        try:
            clear = crypto_secrets.decrypt(self._secret_keys, _PURPOSE, row.sealed_private_jwk)
        except crypto_secrets.InvalidToken:
            return None
        return import_key({**json.loads(clear), "kid": row.kid})


def make_header(alg: str, kid: str | None, typ: str | None) -> dict[str, Any]:
    """Return the header of a token that this server signs."""
    return {"alg": alg, "kid": kid, **({"typ": typ} if typ else {})}


def _header(token: str) -> dict[str, Any]:
    header = json.loads(urlsafe_b64decode(token.split(".", 1)[0].encode()))
    return header if isinstance(header, dict) else {}


def make_jti() -> str:
    """Return a random JWT identifier (RFC 7519 §4.1.7)."""
    return secrets.token_urlsafe(16)
