"""Checks of a client's metadata, by RFC 7591 names: what may be registered, and why not."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from sso.config.urls import registration_fault, strict_url_fault
from sso.crypto.keys import ALGORITHMS
from sso.flow.scopes import SCOPES

AUTH_METHODS = ("any", "client_secret_post", "client_secret_basic")
ID_TOKEN_CLAIMS = ("standard", "all")
MAX_TEXT = 200
MAX_ADDRESSES = 100


def faults_of(metadata: Mapping[str, Any], had: Collection[str] = ()) -> list[str]:
    """Why a client with this metadata can't be registered; `had`: the groups it has so far."""
    faults = [text_fault("the client's name", metadata["client_name"])]
    if not metadata["redirect_uris"]:
        faults.append("there is no redirect address; an application needs at least one")
    for name, label in (
        ("redirect_uris", "redirect address"),
        ("post_logout_redirect_uris", "post-logout redirect address"),
    ):
        faults += _address_faults(label, metadata[name], registration_fault)
    backchannel = metadata.get("backchannel_logout_uri")
    if backchannel is not None:
        faults += _address_faults("back-channel logout address", [backchannel], _backchannel_fault)
    faults.append(_scope_fault(metadata["scope"]))
    faults += group_faults(metadata["groups"], had)
    for name, label, choices in (
        ("token_endpoint_auth_method", "authentication method", AUTH_METHODS),
        ("id_token_signed_response_alg", "identity token algorithm", ALGORITHMS),
        ("id_token_claims", "choice of identity token claims", ID_TOKEN_CLAIMS),
    ):
        if metadata[name] not in choices:
            faults.append(f"the {label} {metadata[name]!r} is none of {', '.join(choices)}")
    return [fault for fault in faults if fault]


def text_fault(label: str, text: str) -> str | None:
    """Why a name is no clean, short, visible text, or `None`."""
    if not text.strip():
        return f"{label} is empty"
    if len(text) > MAX_TEXT:
        return f"{label} is longer than {MAX_TEXT} characters"
    if any(c < " " or "\x7f" <= c < "\xa0" or "\ud800" <= c <= "\udfff" for c in text):
        return f"{label} has control characters or is not UTF-8"
    return None


def group_faults(groups: Iterable[str], had: Collection[str]) -> list[str]:
    """Why groups can't be given; those that somebody has already stay."""
    faults = (_group_fault(group) for group in groups if group not in had)
    return [fault for fault in faults if fault]


def _group_fault(name: str) -> str | None:
    """Lists show groups with commas between them."""
    if fault := text_fault("a group's name", name):
        return fault
    if "," in name:
        return f"the group's name {name!r} has a comma; give each group by itself"
    if name != name.strip():
        return f"the group's name {name!r} begins or ends with a space"
    return None


def _address_faults(
    label: str, addresses: Iterable[str], fault_of: Callable[[str], str | None]
) -> list[str | None]:
    listed = list(addresses)
    if len(listed) > MAX_ADDRESSES:
        return [f"there are more than {MAX_ADDRESSES} {label}es"]
    return [
        f"the {label} {text[:MAX_TEXT]!r} is refused: {fault}"
        for text in listed
        if (fault := fault_of(text))
    ]


def _backchannel_fault(text: str) -> str | None:
    """OIDC Back-Channel Logout §2.2: absolute, no fragment; we call it, so it is http or https."""
    if fault := strict_url_fault(text):
        return fault
    if urlsplit(text).scheme not in ("http", "https"):
        return "it is neither http nor https"
    return "it has a fragment" if "#" in text else None


def _scope_fault(scope: str) -> str | None:
    known = ", ".join(SCOPES)
    unknown = [name for name in scope.split() if name not in SCOPES]
    if unknown:
        return f"unknown scopes: {', '.join(map(repr, unknown))}; known: {known}"
    return None if scope.split() else f"there is no scope; known: {known}"
