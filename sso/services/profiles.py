"""What high-assurance clients are registered with, and profiles that ask for all of it.

Names are those of RFC 7591, RFC 9126 §6, RFC 9449 §5.2 and RFC 9101 §10.5.
"""

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from sso.config.auth_methods import ANY_AUTH_METHOD, FAPI2, PRIVATE_KEY_JWT, has_secret
from sso.config.urls import call_error, strict_url_error
from sso.crypto import client_jwt
from sso.crypto.client_jwt import FAPI_ALGORITHMS
from sso.i18n.message import Message

PROFILES = (FAPI2,)
# What the profile asks for, unless something else that fits is given.
_IMPLIED: Mapping[str, Any] = {
    "token_endpoint_auth_method": PRIVATE_KEY_JWT,
    "require_pushed_authorization_requests": True,
    "dpop_bound_access_tokens": True,
    "id_token_signed_response_alg": "ES256",
}
_OPTIONS = {
    "require_pushed_authorization_requests": "--require-par",
    "dpop_bound_access_tokens": "--require-dpop",
}

_NEEDED = {
    "require_pushed_authorization_requests": "authorization requests that are not pushed",
    "require_pkce": "authorization requests without PKCE",
    "dpop_bound_access_tokens": "token requests without a DPoP proof, and tokens without a key",
}


def implied(
    given: Mapping[str, Any], before: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, bool]]:
    """The metadata and the switches that a client gets with its profile."""
    if given.get("profile") != FAPI2 or before.get("profile") == FAPI2:
        return {}, {}
    algorithm = before.get("id_token_signed_response_alg")
    kept = {"id_token_signed_response_alg": algorithm} if algorithm in FAPI_ALGORITHMS else {}
    return {**_IMPLIED, **kept}, {"require_pkce": True}


def notes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterable[str]:
    """What a client has to do differently, now that it has got a profile or lost it."""
    is_new = after.get("profile") == FAPI2
    if is_new == (before.get("profile") == FAPI2):
        return
    if not is_new:
        yield "What the profile switched on stays, but refresh tokens are replaced at each use,"
        yield "authorization requests need a state, and userinfo has id and emailVerified again."
        return
    for name, what in _NEEDED.items():
        if not before.get(name):
            yield f"Refused from now on: {what}."
    old, new = (one["id_token_signed_response_alg"] for one in (before, after))
    if old != new:
        yield f"Identity tokens are signed by {new} instead of {old}."
    yield "Refresh tokens are no longer replaced at each use."
    yield "Userinfo leaves out id and emailVerified; sub and email_verified are the same values."


def need_secret(given: Mapping[str, Any]) -> bool:
    """Whether a new client with this metadata authenticates with a secret."""
    method = {**implied(given, {})[0], **given}.get("token_endpoint_auth_method", ANY_AUTH_METHOD)
    return has_secret(method)


def without_other_keys(given: Mapping[str, Any]) -> dict[str, None]:
    """A key set replaces a JWKS URL, and the other way round."""
    pairs = (("jwks", "jwks_uri"), ("jwks_uri", "jwks"))
    return {other: None for one, other in pairs if given.get(one) is not None}


def errors(metadata: Mapping[str, Any]) -> Iterable[str]:
    """Why a client cannot have this metadata."""
    method = metadata["token_endpoint_auth_method"]
    jwks, jwks_uri = metadata.get("jwks"), metadata.get("jwks_uri")
    if jwks is not None:
        yield from client_jwt.key_errors(jwks)
    if jwks_uri is not None and (error := _jwks_uri_error(jwks_uri)):
        yield Message("the JWKS URL is refused: %(reason)s", reason=error)
    if jwks is not None and jwks_uri is not None:
        yield Message("it has both a key set and a JWKS URL; give one of them (RFC 7591 §2)")
    signs = method == PRIVATE_KEY_JWT or "request_object_signing_alg" in metadata
    if signs and jwks is None and jwks_uri is None:
        yield Message(
            "its public keys are missing",
            for_commands="its public keys are missing: give --jwks FILE or --jwks-uri URL",
        )
    if "token_endpoint_auth_signing_alg" in metadata and method != PRIVATE_KEY_JWT:
        yield Message(
            "as long as it has an algorithm of client assertions, it authenticates by a key",
            for_commands=f"--auth-alg needs --auth-method {PRIVATE_KEY_JWT}",
        )
    profile = metadata.get("profile")
    for name, label in (
        ("token_endpoint_auth_signing_alg", Message("the algorithm of client assertions")),
        ("request_object_signing_alg", Message("the algorithm of request objects")),
        ("authorization_signed_response_alg", Message("the algorithm of authorization responses")),
    ):
        choices = FAPI_ALGORITHMS if profile else client_jwt.ALGORITHMS
        if name in metadata and metadata[name] not in choices:
            yield none_of(label, metadata[name], choices)
    if profile == FAPI2:
        yield from _fapi2_errors(metadata)
    elif profile is not None:
        yield none_of(Message("the profile"), profile, PROFILES)


def none_of(label: Message, value: str, choices: Iterable[str]) -> Message:
    """Why something cannot have this value."""
    return Message(
        "%(label)s %(value)s is none of %(choices)s",
        label=label,
        value=repr(value),
        choices=", ".join(choices),
    )


def requires(what: str) -> Message:
    """What a client with the profile FAPI 2.0 has to have."""
    return Message("the profile fapi2 requires %(what)s", what=what)


def _fapi2_errors(metadata: Mapping[str, Any]) -> Iterable[str]:
    if metadata["token_endpoint_auth_method"] != PRIVATE_KEY_JWT:
        yield requires(
            Message(
                "A private key (private_key_jwt)", for_commands=f"--auth-method {PRIVATE_KEY_JWT}"
            )
        )
    for name, option in _OPTIONS.items():
        if metadata.get(name) is not True:
            yield requires(option)
    if metadata["id_token_signed_response_alg"] not in FAPI_ALGORITHMS:
        yield requires(
            Message(
                "identity tokens that are signed by %(algorithms)s",
                algorithms=", ".join(FAPI_ALGORITHMS),
                for_commands=f"--id-token-alg {' or '.join(FAPI_ALGORITHMS)}",
            )
        )
    keys = client_jwt.usable_keys(metadata.get("jwks"))
    if keys and not any(set(one.algorithms) & set(FAPI_ALGORITHMS) for one in keys):
        yield requires(Message("a key for PS256, ES256 or EdDSA"))


def _jwks_uri_error(text: str) -> Message | None:
    if error := strict_url_error(text):
        return error
    if urlsplit(text).scheme != "https":
        return Message("it is not https")
    return Message("it has a fragment") if "#" in text else call_error(text, only_public=True)
