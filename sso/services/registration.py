"""Client metadata as JSON (RFC 7591 §2), for programs: read, checked by type, and written."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sso.models import Client
from sso.services import clients
from sso.services.checks import RegistrationError

# RFC 7591 names where there are such; what they have to be.
METADATA: Mapping[str, type] = {
    "client_name": str,
    "redirect_uris": list,
    "post_logout_redirect_uris": list,
    "backchannel_logout_uri": str,
    "home_url": str,
    "scope": str,
    "token_endpoint_auth_method": str,
    "id_token_signed_response_alg": str,
    "id_token_claims": str,
    "groups": list,
    "preset": dict,
    "profile": str,
    "jwks": dict,
    "jwks_uri": str,
    "token_endpoint_auth_signing_alg": str,
    "request_object_signing_alg": str,
    "authorization_signed_response_alg": str,
    "require_pushed_authorization_requests": bool,
    "dpop_bound_access_tokens": bool,
    "require_dpop_nonce": bool,
}
SWITCHES: Mapping[str, type] = {**dict.fromkeys(clients.SWITCHES, bool), "disabled": bool}
_WORDS = {str: "a text", bool: "true or false", list: "a list of texts", dict: "an object"}


@dataclass(frozen=True)
class Wanted:
    """What a program asks for, as the arguments of `clients.register` and `clients.change`."""

    metadata: Mapping[str, Any]
    switches: Mapping[str, bool]
    disabled: bool | None


def parsed(body: Any) -> Wanted:
    """What is known of a body, with the right types. Raises `RegistrationError`.

    What is not known is ignored, as RFC 7591 §2 asks.
    """
    if not isinstance(body, dict):
        raise RegistrationError(["the body is no JSON object"])
    given = {name: value for name, value in body.items() if value is not None}
    errors = [
        f"{name} is not {_WORDS[kind]}"
        for name, kind in {**METADATA, **SWITCHES}.items()
        if name in given and not _fits(given[name], kind)
    ]
    errors += [
        f"{name} is always {', '.join(value)}"
        for name, value in clients.FIXED.items()
        if name in given and (not _fits(given[name], list) or set(given[name]) - set(value))
    ]
    if errors:
        raise RegistrationError(errors)
    return Wanted(
        {name: given[name] for name in METADATA if name in given},
        {name: given[name] for name in clients.SWITCHES if name in given},
        given.get("disabled"),
    )


def replacing(wanted: Wanted) -> Wanted:
    """The same for the whole registration: what is left out is as in a new one (RFC 7592 §2.2)."""
    method = wanted.metadata.get("token_endpoint_auth_method")
    off = {**dict.fromkeys(clients.SWITCHES, False), "require_pkce": method == "none"}
    if wanted.metadata.get("profile"):
        off["require_pkce"] = True
    blank = {**dict.fromkeys(METADATA), **clients.DEFAULTS}
    return Wanted({**blank, **wanted.metadata}, {**off, **wanted.switches}, wanted.disabled)


def document(client: Client) -> dict[str, Any]:
    """A registration without its secret (RFC 7591 §3.2.1)."""
    shown = {name: value for name, value in clients.described(client).items() if name != "logo"}
    issued_at = int(client.created_at.timestamp())
    return {**shown, **clients.FIXED, "client_id_issued_at": issued_at}


def _fits(value: Any, kind: type) -> bool:
    if kind is list:
        return isinstance(value, list) and all(isinstance(one, str) for one in value)
    return isinstance(value, kind)
