"""Validation of clients, users and groups; every error is reported at once.

The fields of a client are in `sso.config.client_fields`. The profile of a high-assurance client
implies further fields.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date, timedelta
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sso import clock
from sso.config import images
from sso.config.auth_methods import FAPI2, NO_AUTH_METHOD, PRIVATE_KEY_JWT, has_secret
from sso.config.client_fields import (
    AUTHORIZATION_CODE,
    CLIENT_CREDENTIALS,
    DEVICE_CODE,
    FIELDS,
    JWT_BEARER,
    METADATA,
    REFRESH_TOKEN,
    TOKEN_EXCHANGE,
)
from sso.config.fields import Field, Kind
from sso.config.urls import refused, registration_error, strict_url_error
from sso.crypto import client_jwt
from sso.crypto.client_jwt import FAPI_ALGORITHMS
from sso.errors import OperatorError
from sso.flow import own_claims, role_claims
from sso.flow.profile_claims import CLAIMS, Format
from sso.flow.scopes import SCOPES
from sso.i18n import times
from sso.i18n.message import Message, code_of
from sso.services import issuer_checks, saml_checks

_AUTH_METHOD = FIELDS["token_endpoint_auth_method"]
_GRANT_TYPES = "grant_types"
_TRUST_ISSUER = "trust_issuer"
_PROXY_URLS = "proxy_urls"
_OF_OWNERS = ("repo:", "project_path:")  # then the owner and a slash
_ID_TOKEN_ALGORITHM = FIELDS["id_token_signed_response_alg"]
# Defaults of the profile; some fields accept other values, too.
_IMPLIED: Mapping[str, Any] = {
    _AUTH_METHOD.name: PRIVATE_KEY_JWT,
    "require_pushed_authorization_requests": True,
    "dpop_bound_access_tokens": True,
    _ID_TOKEN_ALGORITHM.name: "ES256",
    "require_pkce": True,
}
_REFUSED = {
    "require_pushed_authorization_requests": "authorization requests that are not pushed",
    "require_pkce": "authorization requests without PKCE",
    "dpop_bound_access_tokens": "token requests without a DPoP proof, and tokens without a key",
}


def implied(fields: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that a client gets with its profile, with an issuer that it trusts, or
    behind a proxy.
    """
    if fields.get(_PROXY_URLS) and not before:
        return {
            _AUTH_METHOD.name: NO_AUTH_METHOD,
            _ID_TOKEN_ALGORITHM.name: "ES256",  # signs an assertion for each request
            "scope": "openid profile email groups",
            "require_pkce": True,
        }
    if fields.get(_TRUST_ISSUER) and not before.get(_TRUST_ISSUER):
        return {_AUTH_METHOD.name: PRIVATE_KEY_JWT}
    if fields.get("profile") != FAPI2 or before.get("profile") == FAPI2:
        return {}
    algorithm = before.get(_ID_TOKEN_ALGORITHM.name)
    unchanged = {_ID_TOKEN_ALGORITHM.name: algorithm} if algorithm in FAPI_ALGORITHMS else {}
    return {**_IMPLIED, **unchanged}


def profile_notes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterable[str]:
    """Yield notes about the consequences of adding or removing a profile."""
    is_new = after.get("profile") == FAPI2
    if is_new == (before.get("profile") == FAPI2):
        return
    if not is_new:
        yield "What the profile switched on stays, but refresh tokens are replaced at each use,"
        yield "authorization requests need a state, and userinfo has id and emailVerified again."
        return
    for name, requests in _REFUSED.items():
        if not before.get(name):
            yield f"Refused from now on: {requests}."
    old, new = (fields[_ID_TOKEN_ALGORITHM.name] for fields in (before, after))
    if old != new:
        yield f"Identity tokens are signed by {new} instead of {old}."
    yield "Refresh tokens are no longer replaced at each use."
    yield "Userinfo leaves out id and emailVerified; sub and email_verified are the same values."


def need_secret(fields: Mapping[str, Any]) -> bool:
    """Return whether a new client with these fields authenticates with a secret."""
    registered = {**implied(fields, {}), **fields}
    if registered.get(saml_checks.ENTITY_ID):
        return False
    return has_secret(registered.get(_AUTH_METHOD.name, _AUTH_METHOD.default))


def without_other_keys(fields: Mapping[str, Any]) -> dict[str, None]:
    """Remove the JWKS URL if a key set is set, and the key set if a JWKS URL is set.

    A client that trusts an issuer has no keys of its own; those that are given with the issuer are
    the issuer's. Without the issuer, it trusts no subject.
    """
    pairs = [("jwks", "jwks_uri"), ("jwks_uri", "jwks")]
    if fields.get(_TRUST_ISSUER) is not None:
        pairs += [(_TRUST_ISSUER, name) for name in ("jwks", "jwks_uri") if name not in fields]
    removed: dict[str, None] = {
        other: None for name, other in pairs if fields.get(name) is not None
    }
    if _TRUST_ISSUER in fields and fields[_TRUST_ISSUER] is None:
        removed |= dict.fromkeys(("trust_subject", "trust_audience"))
    return removed


def profile_errors(metadata: Mapping[str, Any]) -> Iterable[str]:
    """Yield the errors of a client's keys and of its profile."""
    method = metadata[_AUTH_METHOD.name]
    jwks, jwks_uri = metadata.get("jwks"), metadata.get("jwks_uri")
    if jwks is not None and jwks_uri is not None:
        yield Message("it has both a key set and a JWKS URL; give one of them (RFC 7591 §2)")
    trusts = _TRUST_ISSUER in metadata
    signs = method == PRIVATE_KEY_JWT or "request_object_signing_alg" in metadata
    if signs and not trusts and jwks is None and jwks_uri is None:
        options = " or ".join(FIELDS[name].usage for name in ("jwks", "jwks_uri"))
        yield Message(
            "its public keys are missing",
            for_commands=f"its public keys are missing: give {options}",
        )
    algorithm = FIELDS["token_endpoint_auth_signing_alg"]
    if algorithm.name in metadata and method != PRIVATE_KEY_JWT:
        yield Message(
            "as long as it has an algorithm of client assertions, it authenticates by a key",
            for_commands=f"{algorithm.flag} needs {_AUTH_METHOD.flag} {PRIVATE_KEY_JWT}",
        )
    yield from _trust_errors(metadata)
    if metadata.get("profile") == FAPI2:
        yield from _fapi2_errors(metadata)


def _trust_errors(metadata: Mapping[str, Any]) -> Iterable[Message]:
    """Return why a client cannot trust JWTs of this issuer with this subject."""
    issuer, subject = FIELDS[_TRUST_ISSUER], FIELDS["trust_subject"]
    if issuer.name not in metadata:
        for name in (subject.name, "trust_audience"):
            if name in metadata:
                yield Message(
                    "%(label)s needs a trusted issuer",
                    label=FIELDS[name].noun,
                    for_commands=f"{FIELDS[name].flag} needs {issuer.flag}",
                )
        return
    if subject.name not in metadata:
        yield Message(
            "a trusted issuer needs a trusted subject; it signs for others, too",
            for_commands=f"{issuer.flag} needs {subject.usage}; the issuer signs for others, too",
        )
    elif metadata[subject.name].startswith("*"):
        yield Message("the trusted subject begins with *; anyone with a JWT of the issuer may fit")
    elif _lacks_owner(metadata[subject.name]):
        yield Message(
            "the trusted subject has no whole owner before its first *, such as repo:acme/; anyone "
            "may get a name that fits"
        )
    if metadata[_AUTH_METHOD.name] != PRIVATE_KEY_JWT:
        yield Message(
            "as long as it trusts an issuer, it authenticates by a key",
            for_commands=f"{issuer.flag} needs {_AUTH_METHOD.flag} {PRIVATE_KEY_JWT}",
        )
    for name in ("request_object_signing_alg", "token_endpoint_auth_signing_alg"):
        if name in metadata:
            yield Message("a client that trusts an issuer has no %(field)s", field=name)


def _lacks_owner(subject: str) -> bool:
    """Return whether a pattern fits subjects of others at GitHub or GitLab, where anyone may have
    an account.
    """
    fixed, wildcard, _ = subject.partition("*")
    is_theirs = any(name.startswith(fixed) or fixed.startswith(name) for name in _OF_OWNERS)
    return bool(wildcard) and is_theirs and "/" not in fixed


def none_of(label: Message | None, value: str, choices: Iterable[str]) -> Message:
    """Return the error for a value that is not one of the choices."""
    return Message(
        "%(label)s %(value)s is none of %(choices)s",
        label=label,
        value=repr(value),
        choices=", ".join(choices),
    )


def profile_requires(requirement: str) -> Message:
    """Return the error for a client that lacks a requirement of FAPI 2.0."""
    return Message("the profile fapi2 requires %(what)s", what=requirement)


def _fapi2_errors(metadata: Mapping[str, Any]) -> Iterable[str]:
    if metadata[_AUTH_METHOD.name] != PRIVATE_KEY_JWT:
        yield profile_requires(_AUTH_METHOD.value_term(PRIVATE_KEY_JWT))
    for name in ("require_pushed_authorization_requests", "dpop_bound_access_tokens"):
        if metadata.get(name) is not True:
            yield profile_requires(FIELDS[name].term)
    if metadata[_ID_TOKEN_ALGORITHM.name] not in FAPI_ALGORITHMS:
        yield profile_requires(
            Message(
                "identity tokens that are signed by %(algorithms)s",
                algorithms=", ".join(FAPI_ALGORITHMS),
                for_commands=f"{_ID_TOKEN_ALGORITHM.flag} {' or '.join(FAPI_ALGORITHMS)}",
            )
        )
    if _TRUST_ISSUER in metadata:
        yield profile_requires(Message("a key of the client itself, in place of a trusted issuer"))
    keys = client_jwt.usable_keys(metadata.get("jwks"))
    if keys and not any(set(key.algorithms) & set(FAPI_ALGORITHMS) for key in keys):
        yield profile_requires(Message("a key for PS256, ES256 or EdDSA"))


NAME = Message("the name")
MAX_CLAIM = 2000
_FARTHEST_EAST = timedelta(hours=14)  # of the time zone where each day begins first
_BIRTHDATE = re.compile(r"([0-9]{4})(?:-([0-9]{2})-([0-9]{2}))?")
_LOCALE = re.compile(r"[A-Za-z]{2,8}(?:[-_][A-Za-z0-9]{1,8}){0,8}")  # RFC 5646 §2.1
MAX_TEXT = 200
MAX_URLS = 100
MAX_GROUPS = 100  # of a user or a client
MAX_OPTIONS = 100  # of a preset
MAX_LOGO = 64 * 1024
MAX_JWKS = 64 * 1024


class Rule(StrEnum):
    """The codes of errors that the protocols tell apart (RFC 7591 §3.2.2, RFC 7644 §3.12)."""

    ALREADY_EXISTS = "already_exists"
    INVALID_REDIRECT_URI = "invalid_redirect_uri"


class Invalid(OperatorError, ValueError):
    """The input breaks a rule; `errors` has one line for each reason."""

    def __init__(self, errors: Sequence[str]) -> None:
        super().__init__("; ".join(errors))
        self.errors = list(errors)

    @property
    def rules(self) -> set[str | None]:
        """Return the codes of the errors; `None` is among them if an error has no code."""
        return {code_of(error) for error in self.errors}


def metadata_errors(
    metadata: Mapping[str, Any], before: Mapping[str, Any] | None = None
) -> list[str]:
    """Return the errors of a client's metadata.

    `before`: its metadata until now. URLs and groups that it already has may stay, so that a later
    rule does not stand in the way of another change.
    """
    errors: list[str | None] = []
    for field in METADATA:
        if field.name in metadata:
            errors += _field_errors(field, metadata, before or {})
    errors += profile_errors(metadata)
    errors += [*saml_checks.errors(metadata), *issuer_checks.errors(metadata, before or {})]
    errors += [] if saml_checks.is_provider(metadata) else _grant_errors(metadata)
    return [error for error in errors if error]


def uses_browser(metadata: Mapping[str, Any]) -> bool:
    """Return whether people sign in to the client by the authorization endpoint."""
    return AUTHORIZATION_CODE in metadata[_GRANT_TYPES]


def has_person(metadata: Mapping[str, Any]) -> bool:
    """Return whether people sign in to the client, in a browser or on another device."""
    grants = {AUTHORIZATION_CODE, DEVICE_CODE} & {*metadata[_GRANT_TYPES]}
    return bool(grants) or saml_checks.is_provider(metadata)


def _grant_errors(metadata: Mapping[str, Any]) -> Iterable[Message]:
    """Return why a client cannot have its grant types together."""
    grant_types = set(metadata[_GRANT_TYPES])
    if not grant_types - {REFRESH_TOKEN}:
        yield Message("there is no grant type by which it gets tokens")
    is_public = metadata[_AUTH_METHOD.name] == NO_AUTH_METHOD
    for grant_type in (CLIENT_CREDENTIALS, TOKEN_EXCHANGE, JWT_BEARER):
        if is_public and grant_type in grant_types:
            yield Message(
                "a public client cannot have the grant type %(grant_type)s; anyone could use it",
                grant_type=grant_type,
            )


def asks_nobody(grant_types: Collection[str], first_party: bool) -> Message | None:
    """Return an error for a client that presents assertions, but asks users for consent.

    Nobody is there to be asked: the operator decides.
    """
    if JWT_BEARER in grant_types and not first_party:
        return Message(
            "a client with the grant type %(grant_type)s has to be one that asks nobody for "
            "consent: %(switch)s",
            grant_type=JWT_BEARER,
            switch=FIELDS["first_party"].term,
        )
    return None


def _field_errors(
    field: Field, metadata: Mapping[str, Any], before: Mapping[str, Any]
) -> Iterable[str | None]:
    """Yield the errors of one field's value."""
    value, label = metadata[field.name], field.noun or Message(field.name)
    match field.kind:
        case Kind.TEXT:
            yield text_error(label, value)
        case Kind.URL if value == before.get(field.name):
            pass
        case Kind.URL if error := field.url_error(value):
            key_error = Message("the JWKS URL is refused: %(reason)s", reason=error)
            yield refused(label, value, error) if field.noun else key_error
        case Kind.REDIRECT_URIS if field.is_required and not uses_browser(metadata):
            if value:
                yield Message(
                    "a client without the grant type authorization_code has no redirect address",
                    code=Rule.INVALID_REDIRECT_URI,
                )
        case Kind.REDIRECT_URIS if field.is_required and not value:
            yield Message(
                "there is no redirect address; an application needs at least one",
                code=Rule.INVALID_REDIRECT_URI,
            )
        case Kind.REDIRECT_URIS if len(value) > MAX_URLS:
            yield Message(field.excess, most=MAX_URLS, code=Rule.INVALID_REDIRECT_URI)
        case Kind.REDIRECT_URIS:
            is_public = metadata[_AUTH_METHOD.name] == NO_AUTH_METHOD
            error_of = partial(registration_error, is_public=is_public)
            new = [url for url in value if url not in before.get(field.name, ())]
            yield from _url_errors(label, new, error_of)
        case Kind.WORDS:
            yield _scope_error(value)
        case Kind.NAMES:
            yield from group_errors(value, before.get(field.name, ()))
        case Kind.ISSUERS:
            yield from _issuer_errors(field, label, value, before.get(field.name, ()))
        case Kind.ORIGINS | Kind.PATHS:
            yield from _entry_errors(field, label, value, before.get(field.name, ()))
        case Kind.ROLES:
            yield from role_errors(value, before.get(field.name, ()))
        case Kind.CHOICES:
            yield from (
                none_of(label, choice, field.choices)
                for choice in value
                if choice not in field.choices
            )
        case Kind.OBJECT:
            yield _preset_error(value)
        case Kind.ATTRIBUTES:
            own = own_claims.names_of(metadata.get("own_claims", ()))
            yield from saml_checks.attribute_errors(value, own, text_error)
        case Kind.CERTIFICATES:
            yield saml_checks.certificate_error(value)
        case Kind.KEY_SET:
            yield from client_jwt.key_errors(value)
        case Kind.CHOICE:
            choices = (metadata.get("profile") and field.fapi_choices) or field.choices
            if value not in choices:
                yield none_of(label, value, choices)


def _issuer_errors(
    field: Field, label: Message, entries: Collection[str], before: Collection[str]
) -> Iterable[Message]:
    """Yield the errors of a list of issuers; entries that are there already may stay."""
    yield from _entry_errors(field, label, entries, before)
    issuers = {entry.partition(" ")[0] for entry in entries}
    if len(issuers) < len(entries) <= MAX_URLS:
        yield Message("%(label)s: an issuer is listed twice", label=label)


def _entry_errors(
    field: Field, label: Message, entries: Collection[str], before: Collection[str]
) -> Iterable[Message]:
    """Yield the errors of a list that `field.url_error` checks; present entries may stay."""
    if len(entries) > MAX_URLS:
        yield Message("%(label)s: there are more than %(most)d", label=label, most=MAX_URLS)
        return
    for entry in entries:
        if entry not in before and (error := field.url_error(entry)):
            yield refused(label, entry, error)


def text_error(label: Message, text: str) -> Message | None:
    """Return an error unless the text is short, visible and one line."""
    if not text.strip():
        return Message("%(label)s is empty", label=label)
    if len(text) > MAX_TEXT:
        return Message("%(label)s is longer than %(most)d characters", label=label, most=MAX_TEXT)
    if any(c < " " or "\x7f" <= c < "\xa0" or "\ud800" <= c <= "\udfff" for c in text):
        return Message("%(label)s has control characters or is not UTF-8", label=label)
    return None


def taken(email: str) -> Message:
    """Return the error for an email address that is taken by another user."""
    return Message(
        "there is already a user with the email address %(email)s",
        email=email,
        code=Rule.ALREADY_EXISTS,
    )


def logo(text: str, folder: Path = Path()) -> images.Image:
    """Read a logo from a path or a data URL; "" is no logo. Raises `Invalid`.

    A relative path begins at the folder.
    """
    try:
        if text.startswith("data:"):
            return images.from_data_url(text, MAX_LOGO)
        return images.read(folder / text, MAX_LOGO) if text else images.NO_IMAGE
    except ValueError as error:
        raise Invalid([f"the logo {text[:MAX_TEXT]!r} is refused: {error}"]) from None


def jwks(path: Path) -> dict[str, Any]:
    """Read a key set from a file; a single JWK counts as a set. Raises `Invalid`."""
    try:
        if not path.is_file():  # reading a pipe would block
            raise FileNotFoundError(0, "there is no such file")
        with path.open("rb") as file:
            keys = json.loads(file.read(MAX_JWKS))
    except OSError as error:
        reason = f"it cannot be read: {error.strerror}"
    except (ValueError, RecursionError):
        reason = f"it is not JSON of at most {MAX_JWKS} bytes"
    else:
        key_set: dict[str, Any] = client_jwt.as_set(keys)
        return key_set
    raise Invalid([f"the key set {str(path)[:MAX_TEXT]!r} is refused: {reason}"])


def group_errors(groups: Collection[str], before: Collection[str]) -> list[str]:
    """Return the errors of groups to set; earlier groups of the user or client may stay."""
    earlier = set(before)
    added = {group: None for group in groups if group not in earlier}
    if added and len(set(groups)) > MAX_GROUPS:
        return [Message("there are more than %(most)d groups", most=MAX_GROUPS)]
    return [error for group in added if (error := _group_error(group))]


def role_errors(entries: Sequence[str], before: Collection[str]) -> list[str]:
    """Return the errors of roles to set; see `flow.role_claims`. Earlier groups may stay."""
    if error := role_claims.error(entries):
        return [error]
    return group_errors(role_claims.groups_in(entries), role_claims.groups_in(before))


def claim_errors(claims: Mapping[str, Any]) -> list[str]:
    """Return the errors of claims that an operator sets; `None` removes a claim."""
    return [error for name, value in claims.items() if (error := _claim_error(name, value))]


def _group_error(name: str) -> Message | None:
    """Return the error of a group's name. Commas are refused: lists separate groups with them."""
    if error := text_error(Message("a group's name"), name):
        return error
    if "," in name:
        return Message(
            "the group's name %(name)s has a comma; give each group by itself", name=repr(name)
        )
    if name != name.strip():
        return Message("the group's name %(name)s begins or ends with a space", name=repr(name))
    return None


def _url_errors(
    label: Message, urls: Iterable[str], error_of: Callable[[str], Message | None]
) -> list[Message]:
    code = Rule.INVALID_REDIRECT_URI
    return [refused(label, text, error, code) for text in urls if (error := error_of(text))]


def _scope_error(scope: str) -> Message | None:
    scopes = ", ".join(SCOPES)
    unknown = [name for name in scope.split() if name not in SCOPES]
    if unknown:
        return Message(
            "unknown scopes: %(unknown)s; known: %(known)s",
            unknown=", ".join(map(repr, unknown)),
            known=scopes,
        )
    return None if scope.split() else Message("there is no scope; known: %(known)s", known=scopes)


def _preset_error(preset: Any) -> Message | None:
    """Check the shape alone: a preset that a newer version no longer has may stay."""
    url, options = preset.get("url", "-"), preset.get("options", {})
    texts = [preset.get("name"), url, *(options.values() if isinstance(options, dict) else [None])]
    are_texts = all(isinstance(text, str) and len(text) <= MAX_CLAIM for text in texts)
    if are_texts and preset.keys() <= {"name", "url", "options"} and len(texts) <= MAX_OPTIONS:
        return None
    return Message("the preset is not a name, a url and options, all of them texts")


def _claim_error(name: str, value: Any) -> Message | None:
    if name not in CLAIMS:
        return Message(
            "the claim %(name)s is not one that can be set; known: %(known)s",
            name=repr(name),
            known=", ".join(sorted(CLAIMS)),
        )
    if value is None:
        return None
    kind = CLAIMS[name].format
    if kind is Format.ADDRESS:
        if isinstance(value, dict) and value and all(_is_text(part) for part in value.values()):
            return None
        return Message(
            "the claim %(name)s is no JSON object of texts (OIDC Core §5.1.1), such as %(example)s",
            name=repr(name),
            example='{"locality": "Delft"}',
        )
    if kind is Format.SWITCH:
        if isinstance(value, bool):
            return None
        return Message("the claim %(name)s is neither true nor false", name=repr(name))
    if not _is_text(value):
        return Message(
            "the claim %(name)s is no clean text of at most %(most)d characters",
            name=repr(name),
            most=MAX_CLAIM,
        )
    if (error_of := _CLAIM_FORMATS.get(kind)) and (error := error_of(value)):
        return Message("the claim %(name)s is refused: %(reason)s", name=repr(name), reason=error)
    return None


def _web_error(text: str) -> Message | None:
    """Return an error unless the URL is http or https: applications show it as link or image."""
    if error := strict_url_error(text):
        return error
    if urlsplit(text).scheme not in ("http", "https"):
        return Message("it is neither http nor https")
    return None


def _birthdate_error(text: str) -> Message | None:
    """Check for ISO 8601 YYYY-MM-DD, with 0000 for an unknown year, or YYYY (OIDC Core §5.1)."""
    latest = (clock.now() + _FARTHEST_EAST).date()
    match = _BIRTHDATE.fullmatch(text)
    try:
        year, month, day = (int(part or 1) for part in match.groups()) if match else (0, 0, 0)
        # 2000 is a leap year, so it has every day.
        is_past = date(2000 if year == 0 and match and match[2] else year, month, day) <= latest
    except ValueError:
        return Message("it is no date such as 1990-01-31, 0000-01-31 or 1990")
    return None if is_past else Message("it is in the future")


def _zone_error(text: str) -> Message | None:
    try:
        times.checked_zone(text)
    except ValueError:
        return Message("it is no time zone such as Europe/Berlin")
    return None


def _locale_error(text: str) -> Message | None:
    return None if _LOCALE.fullmatch(text) else Message("it is no language such as de or pt-BR")


_CLAIM_FORMATS: Mapping[Format, Callable[[str], Message | None]] = {
    Format.WEB_URL: _web_error,
    Format.BIRTHDATE: _birthdate_error,
    Format.TIME_ZONE: _zone_error,
    Format.LANGUAGE: _locale_error,
}


def _is_text(value: Any) -> bool:
    """Return whether databases and tokens can store the value; addresses may have line breaks."""
    return (
        isinstance(value, str)
        and 0 < len(value) <= MAX_CLAIM
        and not any((c < " " and c not in "\r\n") or "\ud800" <= c <= "\udfff" for c in value)
    )
