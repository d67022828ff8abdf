"""Second factors of a person of a Keycloak realm, their links to providers, and their consents.

Passkeys are bound to a host name, the relying party: they are only taken if it stays.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sso.crypto import secrets
from sso.imports import foreign_factors
from sso.imports.foreign_factors import (
    BROKEN_KEYS,
    MOST_PASSKEYS,
    OTHER_APPS,
    OTHER_HOST,
    from_base64,
)
from sso.imports.person import (
    APPS,
    CODES,
    IDENTITIES,
    KEYS,
    Factors,
    Person,
    StoredPasskey,
    json_value,
    mapping,
    text,
    texts,
)

_MOST_CODES = 100
_TOTP = {"subType": "totp", "digits": 6, "period": 30, "algorithm": "HmacSHA1"}
_PASSKEYS = ("webauthn", "webauthn-passwordless")
MORE_APPS = "authenticator apps besides the first"
ONLY_CODES = f"{CODES} of people without a factor that they replace"


@dataclass(frozen=True)
class Here:
    """What this server says about factors.

    `has_same_host`: by type, whether passkeys there have the relying party of this server.
    `providers`: by alias there, the ID and the issuer of the provider here.
    """

    has_same_host: Mapping[str, bool] = field(default_factory=dict)
    providers: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def take(person: Person, entry: dict[str, Any], here: Here) -> None:
    """Set the factors of a person, and name those that are lost."""
    stored = entry.get("credentials")
    lost = [name for name in person.lost if name not in (APPS, KEYS, CODES, IDENTITIES)]
    factors = Factors()
    for credential in map(mapping, stored if isinstance(stored, list) else ()):
        if problem := _take(factors, credential, here):
            lost.append(problem)
    if factors.recovery_codes and not (factors.totp or factors.passkeys):
        factors.recovery_codes = []
        lost.append(ONLY_CODES)
    lost += _identities(factors, entry, here)
    consents = entry.get("clientConsents")
    for consent in map(mapping, consents if isinstance(consents, list) else ()):
        client_id = text(consent.get("clientId"))
        if client_id and client_id.isprintable():
            factors.consents[client_id] = texts(consent.get("grantedClientScopes"))
    person.factors, person.lost = factors, lost


def _take(factors: Factors, credential: dict[str, Any], here: Here) -> str | None:
    """Take one credential. Returns why it is lost."""
    kind = text(credential.get("type"))
    data, secret = (
        json_object(credential.get("credentialData")),
        json_object(credential.get("secretData")),
    )
    if kind == "hotp":
        return OTHER_APPS
    if kind in ("otp", "totp"):
        return _take_totp(factors, data, secret)
    if kind in _PASSKEYS:
        if not here.has_same_host.get(kind):
            return OTHER_HOST
        passkey = _passkey(data, text(credential.get("userLabel")))
        if passkey is None or len(factors.passkeys) >= MOST_PASSKEYS:
            return BROKEN_KEYS
        factors.passkeys.append(passkey)
    elif kind == "recovery-authn-codes":
        codes = list(_codes(data, secret))
        if not codes:
            return CODES
        factors.recovery_codes = codes
    return None


def _take_totp(factors: Factors, data: dict[str, Any], secret: dict[str, Any]) -> str | None:
    if any(data.get(name, usual) != usual for name, usual in _TOTP.items()):
        return OTHER_APPS
    if factors.totp:
        return MORE_APPS
    value = secret.get("value")
    if not isinstance(value, str):
        return OTHER_APPS
    if data.get("secretEncoding") == "BASE32":
        raw = foreign_factors.from_base32(value)
    else:
        raw = value.encode("utf-8", "surrogatepass")
    factors.totp = foreign_factors.totp_secret(raw)
    return None if factors.totp else OTHER_APPS


def _passkey(data: dict[str, Any], label: str) -> StoredPasskey | None:
    return foreign_factors.passkey(
        from_base64(data.get("credentialId")),
        from_base64(data.get("credentialPublicKey")),
        count=data.get("counter", 0),
        transports=texts(data.get("transports")),
        label=label,
    )


def _codes(data: dict[str, Any], secret: dict[str, Any]) -> Iterator[str]:
    """Yield the digests of recovery codes, of which Keycloak has the hashes."""
    listed = secret.get("codes")
    if data.get("algorithm") != "SHA-512" or not isinstance(listed, list):
        return
    for code in map(mapping, listed[:_MOST_CODES]):
        hashed = from_base64(code.get("encodedHashedValue"))
        if len(hashed) == 64:
            yield secrets.digest_of_foreign_code(hashed)


def _identities(factors: Factors, entry: dict[str, Any], here: Here) -> Iterator[str]:
    listed = entry.get("federatedIdentities")
    for identity in map(mapping, listed if isinstance(listed, list) else ()):
        provider = here.providers.get(text(identity.get("identityProvider")))
        if problem := foreign_factors.take_identity(
            factors, provider, text(identity.get("userId"))
        ):
            yield problem


def json_object(value: Any) -> dict[str, Any]:
    """Parse the text of a JSON object; empty if it is none."""
    return mapping(json_value(value))
